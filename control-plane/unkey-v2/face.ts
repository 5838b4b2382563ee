import { type Static, type TSchema, Type } from 'typebox';
import { isAtVerifiers } from '#shared/protocol/writer/writer.ts';
import { unavailable } from '#shared/rules/errors.ts';
import type { Propagation, PropagationResponse } from '../core/schema/changes.ts';
import { makeCursor, openCursor } from '../core/schema/lists.ts';
import type { Call } from '../core/serve/call.ts';
import { type Operation, operation } from '../core/serve/operation.ts';

/** The response of an operation in the form of its face, besides `meta`. */
interface FaceAnswer<Data> {
  readonly data: Data;
  readonly pagination?: { readonly cursor?: string; readonly hasMore: boolean };
}

/**
 * The form of an operation in version 2 of the interface, `POST /v2/<name>`: its own request and data, and their
 * translation into the operation's and back.
 */
interface Face<Request, Response, Body extends TSchema, Data extends TSchema, ToRequest, ToAnswer> {
  /** The name in version 2, if it differs from the operation's. */
  readonly name?: string;
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
  toRequest(body: Static<Body>, needs: ToRequest): Request | Promise<Request>;
  /** Translates the operation's response into this form. */
  toAnswer(
    response: Response,
    context: { readonly body: Static<Body>; readonly call: Call },
    needs: ToAnswer,
  ): FaceAnswer<Static<Data>> | Promise<FaceAnswer<Static<Data>>>;
}

/** Names of ids in requests that differ from the operations' own. */
const ID_NAMES = { roleId: 'role', identityId: 'identity' };

/** Returns the operation as version 2 of the interface has it. The logic itself is only in the operation's own `handle`. */
export function inV2<
  Request extends TSchema,
  Response extends TSchema,
  Body extends TSchema,
  Data extends TSchema,
  Needs,
  ToRequest,
  ToAnswer,
>(
  original: Operation<string, Request, Response, Needs>,
  face: Face<Static<Request>, Static<Response>, Body, Data, ToRequest, ToAnswer>,
): Operation<string, TSchema, TSchema, Needs & ToRequest & ToAnswer> {
  const { handle, knowsDeleted: _, ...common }: Operation<string, TSchema, TSchema, Needs> = original;
  const { toRequest, toAnswer }: Face<unknown, unknown, TSchema, TSchema, ToRequest, ToAnswer> = face;
  const { name = original.name, description = original.description, request, example, data, paged } = face;
  return {
    ...common,
    ...{ path: `/v2/${name}`, id: name.split('.')[1] ?? name, idNames: ID_NAMES },
    ...{ description, request, example },
    response: Type.Object({ meta: Meta, data, ...(paged ? { pagination: Pagination } : {}) }),
    async handle(call, needs) {
      const body = call.request;
      const request = await toRequest(body, needs);
      call.translate(request);
      const response = await handle({ ...call, request }, needs);
      const answer = await toAnswer(response, { body, call }, needs);
      return { meta: { requestId: call.requestId }, ...answer };
    },
  };
}

/** Returns an operation that exists only in version 2 of the interface, and answers in its form. */
export const onlyV2 = <const Name extends string, Body extends TSchema, Data extends TSchema, Needs>({
  data,
  paged,
  ...common
}: Pick<
  Operation<Name, Body>,
  'name' | 'kind' | 'summary' | 'description' | 'permissions' | 'request' | 'errors' | 'example'
> &
  Partial<Pick<Operation, 'authorizesItself' | 'stops'>> &
  Pick<Face<unknown, unknown, Body, Data, unknown, unknown>, 'data' | 'paged'> & {
    handle(call: Call<Static<Body>>, needs: Needs): Promise<FaceAnswer<Static<Data>>>;
  }) =>
  inV2(operation({ ...common, response: Type.Unsafe<FaceAnswer<Static<Data>>>({}) }), {
    ...{ request: common.request, example: common.example, data, ...(paged ? { paged } : {}) },
    toRequest: same,
    toAnswer: same,
  });

/** The translation between equal forms. */
export const same = <Form>(form: Form) => form;
/** The answer whose data is the operation's response. */
export const asData = <Data>(data: Data) => ({ data });

const Meta = Type.Object({
  requestId: Type.String({ description: 'The id by which logs name the request.' }),
});
const Pagination = Type.Object({
  cursor: Type.Optional(Type.String({ description: 'For the next page.' })),
  hasMore: Type.Boolean({ description: 'true: there is a next page.' }),
});

/** Throws SERVICE_UNAVAILABLE while a change is not complete at the verifiers, because the response has no room to say so. */
export function onceComplete(
  propagation: Static<typeof Propagation>,
  advice = 'send it again to wait for it',
): void {
  if (!isAtVerifiers(propagation))
    throw unavailable(`the change is written as ${propagation.sequence} and not complete yet; ${advice}`);
}

/** The answer without content that a face gives to a complete change. */
const emptyAnswer = (advice?: string) => ({
  data: Type.Object({}),
  toAnswer({ propagation }: Static<typeof PropagationResponse>) {
    onceComplete(propagation, advice);
    return { data: {} };
  },
});
/** The answer to a change: a repeated call waits for it. */
export const CHANGED = emptyAnswer();
/** The answer to a deletion: a repeated call finds nothing, so the error says how the deletion ends. */
export const DELETED = emptyAnswer('it becomes so by itself, and the call sent again answers 404');

/** The fields of a request for one page. */
export const PAGE = {
  limit: Type.Integer({
    ...{ minimum: 1, maximum: 100, default: 100 },
    description: 'Maximum number of items in the page.',
  }),
  cursor: Type.Optional(
    Type.String({ minLength: 1, maxLength: 512, description: '`pagination.cursor` of the previous page.' }),
  ),
};

/** Returns the pagination for a response. */
export const pagination = (cursor: string | undefined) =>
  cursor === undefined ? { hasMore: false } : { cursor, hasMore: true };

const PLACE = /^v2:([0-9]{1,6})$/;

/**
 * Returns one page of a list that is read whole. Throws BAD_REQUEST if the cursor belongs to another listing.
 * @param listing as for `makeCursor`
 */
export function pageOf<Item>(
  all: readonly Item[],
  { limit, cursor }: { readonly limit: number; readonly cursor?: string },
  listing: Parameters<typeof makeCursor>[0],
) {
  const [from = 0] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE).map(Number);
  const next = from + limit;
  return {
    items: all.slice(from, next),
    pagination: pagination(next < all.length ? makeCursor(listing, `v2:${next}`) : undefined),
  };
}
