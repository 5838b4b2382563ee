import { type Static, type TSchema, Type } from 'typebox';
import type { ErrorCode } from '#shared/rules/errors.ts';
import type { ApiAction, RootAction } from '../callers/root-permissions.ts';
import type { OperationEvent } from '../schema/event-types.ts';
import { List } from '../schema/primitives.ts';
import type { Call, IdNames } from './call.ts';

/**
 * A permission as documents write it: on the API that a call concerns, or on things that belong to no API.
 */
export type Permission = `api.<apiId>.${ApiAction}` | `root.*.${RootAction}`;

/**
 * One operation of the control plane. Its path, documentation, permission check and audit events follow from
 * this definition.
 */
export interface Operation<
  Name extends string = string,
  Request extends TSchema = TSchema,
  Response extends TSchema = TSchema,
  Needs = never,
> {
  /** `<group>.<method>`. */
  readonly name: Name;
  /**
   * A query changes nothing, and is a GET in version 1 of the interface. A question changes nothing either, and is a POST
   * because its input must not appear in a URL. A change is a POST.
   */
  readonly kind: 'query' | 'question' | 'change';
  /** Set if the operation may stop something, such as a stolen key: by each call, or by those with `enabled` false. */
  readonly stops?: 'always' | 'if disabled';
  /** The `operationId` in OpenAPI, where the name of the method is not unique. */
  readonly id?: string;
  readonly summary: string;
  readonly description: string;
  /**
   * All permissions that the root key needs. They are checked before `handle`, on the API of the request's
   * `apiId` or `keyId`.
   */
  readonly permissions: readonly [Permission, ...Permission[]];
  /** True if `handle` checks the permissions, because the request alone does not determine the API. */
  readonly authorizesItself?: true;
  readonly request: Request;
  readonly response: Response;
  /** Errors of this operation besides those of every call. */
  readonly errors: readonly ErrorCode[];
  /** A valid request, shown with what it is answered in `examples.json`. */
  readonly example: object;
  /** True if the operation also answers for keys that were deleted. Only version 1 of the interface does. */
  readonly knowsDeleted?: true;
  /** True if the operation is answered even under load, because it may be what stops a stolen key. */
  readonly neverShed?: true;
  /** True if a repetition would add or create once more: a call may have an Idempotency-Key, and then takes effect once. */
  readonly adds?: true;
  /** The webhook event that a call is sent as. */
  readonly event?: OperationEvent;
  /** Maximum size of the body, bytes, if it is not BODY_BYTES_MAX. */
  readonly bodyBytesMax?: number;
  /** True if `handle` validates the items of its body one by one, and calls `checkStrings` for each. */
  readonly checksStrings?: true;
  /** The path, if it is not `/v1/<name>`. The operation is then a POST. */
  readonly path?: string;
  readonly idNames?: IdNames;
  /**
   * Executes the operation. Depends on neither path nor HTTP. Rejects with ApiError.
   * @param needs the parts of the control plane that it names by its type
   */
  handle(call: Call<Static<Request>>, needs: Needs): Promise<Static<Response>>;
}

/**
 * Returns the operation with the types of its schemas. A change whose fields can be removed by null answers which it removed:
 * a client that lost a value on its way, such as NaN, which JSON writes as null, can see it.
 */
export function operation<
  const Name extends string,
  Request extends TSchema,
  Response extends TSchema,
  Needs,
>(definition: Operation<Name, Request, Response, Needs>): Operation<Name, Request, Response, Needs> {
  const { kind, adds, request, response } = definition;
  const canRemove = kind === 'change' && !adds && hasRemovable(request);
  const { properties } = response as { readonly properties?: Record<string, TSchema> };
  if (!canRemove || !properties) return definition;
  return {
    ...definition,
    response: { ...response, properties: { ...properties, removed: Removed } },
    async handle(call, needs) {
      const answer = await definition.handle(call, needs);
      const removed = removedIn(request, call.request);
      if (removed.length > 0) Object.assign(answer as object, { removed });
      return answer;
    },
  };
}

const Removed = Type.Optional(
  List(Type.String(), {
    description: 'Only if the call removed something: the fields that were null in it, such as `expires`.',
  }),
);

interface Fields extends TSchema {
  readonly type?: string;
  readonly anyOf?: readonly Fields[];
  readonly properties?: Readonly<Record<string, Fields>>;
}

/** The forms that a value may have, and null among them. */
const formsOf = (schema: Fields): readonly Fields[] => schema.anyOf ?? [schema];
const isRemovable = (schema: Fields) => formsOf(schema).some(({ type }) => type === 'null');

function hasRemovable(schema: Fields): boolean {
  const fields = formsOf(schema).flatMap(({ properties = {} }) => Object.values(properties));
  return fields.some((field) => isRemovable(field) || hasRemovable(field));
}

/** Returns the paths of fields that are null in a request and may be. */
function removedIn(schema: Fields, request: unknown, path = ''): string[] {
  return formsOf(schema).flatMap(({ properties = {} }) =>
    Object.entries(properties).flatMap(([name, field]) => {
      const value: unknown = Object(request)[name];
      if (value === null) return isRemovable(field) ? [path + name] : [];
      return typeof value === 'object' ? removedIn(field, value, `${path}${name}.`) : [];
    }),
  );
}

/** The needs of operations together: all that each of them names. */
export type NeedsOf<Operations extends readonly Operation[]> = (
  Operations[number] extends infer Each
    ? Each extends Operation<string, TSchema, TSchema, infer Needs>
      ? (needs: Needs) => void
      : never
    : never
) extends (needs: infer All) => void
  ? All
  : never;

/** Returns the path of the operation. */
export const pathOf = ({ name, path = `/v1/${name}` }: Pick<Operation, 'name' | 'path'>): string => path;

/** Tells whether a call of the operation is a GET with a query. */
export const isGet = ({ kind, path }: Pick<Operation, 'kind' | 'path'>): boolean =>
  kind === 'query' && path === undefined;

/** Tells whether a call stops something, such as a stolen key. */
export const isStop = ({ stops }: Pick<Operation, 'stops'>, body: unknown): boolean =>
  stops === 'always' || (stops === 'if disabled' && Object(body).enabled === false);
