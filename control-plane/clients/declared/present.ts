import { CliError } from '../cli/exit.ts';
import { pages } from '../cli/pages.ts';
import { type Declared, idOf } from './files.ts';
import { type Kind, rulesOf } from './kinds.ts';

/** A thing as the control plane has it. */
export interface Present {
  readonly kind: Kind;
  readonly id: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** The fields by which calls refer to it. */
  readonly ref: Readonly<Record<string, string>>;
  readonly managedBy?: string;
  readonly driftedAt?: number;
  /** Another after each change: the sequence of the last, or of a webhook its time. */
  readonly version: number;
}

/** Calls one operation; it may be repeated if the operation is a query. */
export type Call = <T>(operation: string, input?: object) => Promise<T>;

type Answer = Readonly<Record<string, unknown>>;

/** Up to so many keys, the keys of an API are all compared; of more, only those of the set. */
const KEYS_COMPARED_MAX = 10_000;
const AT_ONCE = 8;
/** A page has a hundred identities. */
const LISTED_FOR_EACH = 10;

/** Runs a task for each item, a few at a time. */
export async function inParallel<T, R>(items: readonly T[], task: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < items.length; at = next++) results[at] = await task(items[at] as T);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, worker));
  return results;
}

async function all(call: Call, operation: string, field: string, input: object = {}): Promise<Answer[]> {
  const items: Answer[] = [];
  for await (const page of pages<Answer>(call, operation, input, field)) items.push(...page.items);
  return items;
}

/** Returns those of these identities that exist, if to list all costs a tenth of asking for each; undefined = it costs more. */
async function listed(call: Call, declared: readonly Declared[]): Promise<Answer[] | undefined> {
  if (declared.length === 0) return [];
  const limit = LISTED_FOR_EACH * declared.length;
  const names = new Set(declared.map(({ fields }) => fields['externalId']));
  const items: Answer[] = [];
  let rest: string | undefined;
  for await (const page of pages<Answer>(call, 'identities.listIdentities', {}, 'identities', limit)) {
    items.push(...page.items.filter(({ externalId }) => names.has(externalId)));
    rest = page.cursor;
  }
  return rest === undefined ? items : undefined;
}

const orNone = <T>(answer: Promise<T>): Promise<T | undefined> =>
  answer.catch((error: unknown) => {
    if (error instanceof CliError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  });

/** Reads how the kinds are listed, and those that files name or their set has. */
export const READERS: Readonly<
  Record<
    Kind,
    (call: Call, declared: readonly Declared[], set: string | undefined, isAll: boolean) => Promise<Answer[]>
  >
> = {
  Api: async (call) =>
    (await all(call, 'apis.listApis', 'apis')).map((api) => ({
      ...api,
      apiId: api['id'],
      ref: { apiId: api['id'] },
    })),
  Permission: async (call) =>
    (await call<Answer[]>('permissions.listPermissions')).map((one) => ({
      ...one,
      ref: { permissionId: one['slug'] },
    })),
  Role: async (call) =>
    (await call<Answer[]>('permissions.listRoles')).map((role) => ({
      ...role,
      permissions: (role['permissions'] as { id: string }[]).map(({ id }) => id),
      ref: { roleId: role['id'] },
    })),
  async Identity(call, declared, managedBy) {
    const ofSet = await all(call, 'identities.listIdentities', 'identities', { managedBy });
    const ids = new Set(ofSet.map(({ externalId }) => externalId));
    const others = declared.filter(({ fields }) => !ids.has(fields['externalId']));
    const rest =
      (await listed(call, others)) ??
      (await inParallel(others, ({ fields: { externalId } }) =>
        orNone(call<Answer>('identities.getIdentity', { externalId })),
      ));
    return [...ofSet, ...rest.filter((one) => one !== undefined)].map((one) => ({
      ...one,
      ref: { identityId: one['id'] },
    }));
  },
  async Key(call, declared, managedBy, isAll) {
    const named = declared.map(({ fields }) => String(fields['apiId']));
    const others = isAll ? (await all(call, 'apis.listApis', 'apis')).map(({ id }) => String(id)) : [];
    const lists = await inParallel([...new Set([...named, ...others])], async (apiId) => {
      const api = named.includes(apiId)
        ? await orNone(call<Answer>('apis.getApi', { apiId }))
        : { keys: Infinity };
      if (!api) return [];
      const isFew = Number(api['keys'] ?? Infinity) <= KEYS_COMPARED_MAX;
      return (await all(call, 'apis.listKeys', 'keys', isFew ? { apiId } : { apiId, managedBy })).filter(
        ({ rerolledTo }) => rerolledTo === undefined,
      );
    });
    return lists.flat().map((key) => ({ ...key, ref: { keyId: key['keyId'] } }));
  },
  Webhook: async (call) =>
    (await call<{ endpoints: Answer[] }>('webhooks.listEndpoints')).endpoints.map((one) => ({
      ...one,
      sequence: one['updatedAt'] ?? one['createdAt'],
      ref: { endpointId: one['endpointId'] },
    })),
};

/**
 * Reads the things that files declare, and those of their set, by their ids. Rejects with NO if several have the name of one
 * that is declared, or with CliError.
 * @param isAll with keys of APIs that no file names
 */
export async function readPresent(
  call: Call,
  declared: readonly Declared[],
  set: string,
  isAll: boolean,
): Promise<Map<string, Present>> {
  const present = new Map<string, Present>();
  const ids = new Set(declared.map(({ id }) => id));
  const kinds = [...new Set(declared.map(({ kind }) => kind))];
  await Promise.all(
    kinds.map(async (kind) => {
      const ofKind = declared.filter((each) => each.kind === kind);
      for (const { ref, sequence, managedBy, driftedAt, ...fields } of await READERS[kind](
        call,
        ofKind,
        set,
        isAll,
      )) {
        if (rulesOf(kind).ids.some((name) => fields[name] === undefined)) continue;
        const id = idOf(kind, fields);
        if (!ids.has(id) && managedBy !== set) continue;
        const earlier = present.get(id);
        if (earlier && ids.has(id) && (earlier.managedBy === set) === (managedBy === set))
          throw new CliError('NO', `there are several of the name ${id}: rename or delete all but one`, {
            code: 'CONFLICT',
          });
        if (earlier?.managedBy === set) continue;
        present.set(id, {
          ...{ kind, id, fields, version: Number(sequence) },
          ref: ref as Present['ref'],
          ...(managedBy === undefined ? {} : { managedBy: String(managedBy) }),
          ...(driftedAt === undefined ? {} : { driftedAt: Number(driftedAt) }),
        });
      }
    }),
  );
  return present;
}
