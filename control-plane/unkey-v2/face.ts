import type { Static, TSchema } from 'typebox';
import type { Call } from '../http/operations/call.ts';
import type { Services } from '../http/operations/services.ts';

/** The place where the next page of a listing begins. */
export interface Pagination {
  readonly cursor?: string;
  readonly hasMore: boolean;
}

/** The response of an operation in the form of its face. */
export interface FaceAnswer<Data> {
  readonly data: Data;
  readonly pagination?: Pagination;
}

/**
 * The form of an operation in version 2 of the interface, `POST /v2/<name>`: its own request and data, and their
 * translation into the operation's and back. The logic itself is only in the operation's `handle`.
 */
export interface Face<
  Request = unknown,
  Response = unknown,
  Body extends TSchema = TSchema,
  Data extends TSchema = TSchema,
> {
  /** The name in version 2, if it differs from the operation's. */
  readonly name?: string;
  readonly summary?: string;
  readonly description?: string;
  readonly request: Body;
  readonly data: Data;
  /** True if responses have a `pagination`. */
  readonly paged?: true;
  /** A valid body. */
  readonly example: object;
  /**
   * Returns the operation's request. Permissions were checked before, unless the operation authorizes itself.
   * Rejects with ApiError.
   */
  toRequest(body: Static<Body>, services: Services): Request | Promise<Request>;
  /** Translates the operation's response into this form. */
  toAnswer(
    response: Response,
    context: { readonly body: Static<Body>; readonly call: Call; readonly services: Services },
  ): FaceAnswer<Static<Data>> | Promise<FaceAnswer<Static<Data>>>;
}
