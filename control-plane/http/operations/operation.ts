import type { Static, TSchema } from 'typebox';
import type { ErrorCode } from '#shared/contract/errors.ts';
import type { ApiAction, RootAction } from '../../core/root-permissions.ts';
import type { Call } from './call.ts';
import type { Services } from './services.ts';
import type { Face } from './v2/face.ts';

/** A permission as documents write it: on the API that a call is about, or on what belongs to no API. */
export type Permission = `api.<apiId>.${ApiAction}` | `root.*.${RootAction}`;

/** One thing that can be asked of the control plane. Its path, its document, its check of permissions and its audit events follow from it. */
export interface Operation<
  Name extends string = string,
  Request extends TSchema = TSchema,
  Response extends TSchema = TSchema,
  Body extends TSchema = TSchema,
  Data extends TSchema = TSchema,
> {
  /** `<group>.<method>`. Where the method begins with get or list, it is a GET with a query; any other is a POST with a body. */
  readonly name: Name;
  /** The id in documents, where its method's name is also another's. */
  readonly id?: string;
  readonly summary: string;
  readonly description: string;
  /** Permissions that the root key needs, all of them. They are checked before `handle`, on the API of the `apiId` or the `keyId` in the request. */
  readonly permissions: readonly [Permission, ...Permission[]];
  /** `handle` checks the permissions, because the request alone does not tell on which API. */
  readonly authorizesItself?: true;
  readonly request: Request;
  readonly response: Response;
  /** Errors of this operation besides those of every call. */
  readonly errors: readonly ErrorCode[];
  /** A body that is taken as it is. */
  readonly example?: object;
  /** It changes nothing though it is a POST, since what it is asked about may not stand in a URL. */
  readonly reads?: true;
  /** It is answered under load too, because it may be what stops a stolen key. */
  readonly neverShed?: true;
  /** Longest body, where that is not BODY_BYTES_MAX. */
  readonly bodyBytesMax?: number;
  /** `handle` judges the parts of its body one by one, and calls `checkStrings` for each. */
  readonly checksStrings?: true;
  /** Its form in the second generation of the interface, where it has one. */
  readonly v2?: Face<Static<Request>, Static<Response>, Body, Data>;
  /** Does it. Knows neither path nor HTTP. Rejects with ApiError. */
  handle(call: Call<Static<Request>>, services: Services): Promise<Static<Response>>;
}

/** Returns the operation as it is, with the types of its schemas. */
export const operation = <
  const Name extends string,
  Request extends TSchema,
  Response extends TSchema,
  Body extends TSchema = TSchema,
  Data extends TSchema = TSchema,
>(
  definition: Operation<Name, Request, Response, Body, Data>,
) => definition;

/** Tells whether it is a GET with a query. */
export const isQuery = ({ name }: Pick<Operation, 'name'>): boolean => /\.(get|list)/.test(name);

/** Tells whether it changes something. */
export const isChange = (operation: Pick<Operation, 'name' | 'reads'>): boolean =>
  !isQuery(operation) && !operation.reads;
