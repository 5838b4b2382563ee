import type { Static, TSchema } from 'typebox';
import type { Call } from '../call.ts';
import type { Services } from '../services.ts';

/** The place where the next page of a listing begins. */
export interface Pagination {
  readonly cursor?: string;
  readonly hasMore: boolean;
}

/** An answer of an operation in the form of its face. */
export interface FaceAnswer<Data> {
  readonly data: Data;
  readonly pagination?: Pagination;
}

/**
 * The form that an operation has in the second generation of the interface, `POST /v2/<name>`: its own request and data, and
 * what turns them into the operation's and back. The rule itself stands in the operation's `handle` alone.
 */
export interface Face<
  Request = unknown,
  Response = unknown,
  Body extends TSchema = TSchema,
  Data extends TSchema = TSchema,
> {
  /** Its name, where that is not the operation's. */
  readonly name?: string;
  readonly summary?: string;
  readonly description?: string;
  readonly request: Body;
  readonly data: Data;
  /** Answers have a `pagination`. */
  readonly paged?: true;
  /** A body that is taken as it is. */
  readonly example: object;
  /** Returns the operation's request. The permissions are checked before, where the operation leaves that to others. Rejects with ApiError. */
  toRequest(body: Static<Body>, services: Services): Request | Promise<Request>;
  /** Returns what the operation answered, in this form. */
  toAnswer(
    response: Response,
    context: { readonly body: Static<Body>; readonly call: Call; readonly services: Services },
  ): FaceAnswer<Static<Data>> | Promise<FaceAnswer<Static<Data>>>;
}
