import { CliError } from '../cli/exit.ts';
import { pages } from '../cli/pages.ts';
import { digestOf } from '../client/own-secret.ts';
import { type Declared, idOf } from './files.ts';
import { KIND_NAMES, type Kind, rulesOf } from './kinds.ts';
import { secretIn } from './secret-files.ts';

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
 * @param isAll with all kinds, and keys of APIs, that no file names
 * @returns also the kinds that no file names and the caller may not read
 */
export async function readPresent(
  call: Call,
  declared: readonly Declared[],
  set: string,
  isAll: boolean,
): Promise<{ readonly present: Map<string, Present>; readonly unread: readonly Kind[] }> {
  const present = new Map<string, Present>();
  const ids = new Set(declared.map(({ id }) => id));
  const named = new Set(declared.map(({ kind }) => kind));
  const unread: Kind[] = [];
  const kinds = isAll ? KIND_NAMES : [...named];
  const lists = await Promise.all(
    kinds.map(async (kind) => {
      const ofKind = declared.filter((each) => each.kind === kind);
      const answers = await READERS[kind](call, ofKind, set, isAll).catch((error: unknown) => {
        if (named.has(kind) || !(error instanceof CliError && error.exit === 'NOT_PERMITTED')) throw error;
        unread.push(kind);
        return [];
      });
      return answers.map((answer) => ({ kind, answer }));
    }),
  );
  for (const { kind, answer } of lists.flat()) {
    const { ref, sequence, managedBy, driftedAt, ...fields } = answer;
    if (rulesOf(kind).ids.some((name) => fields[name] === undefined)) continue;
    const id = idOf(kind, fields);
    if (!ids.has(id) && managedBy !== set) continue;
    const earlier = present.get(id);
    if (earlier && ids.has(id) && (earlier.managedBy === set) === (managedBy === set))
      throw new CliError('NO', `there are several of the name ${id}: rename or delete all but one`, {
        code: 'CONFLICT',
      });
    if (earlier?.managedBy === set) {
      // Another of its name that no file declares: it is of the set too, and goes with a prune.
      if (managedBy === set)
        present.set(`${id} (${Object.values(Object(ref)).join()})`, presentOf(kind, answer));
      continue;
    }
    present.set(id, presentOf(kind, answer));
  }
  return { present: await bySecret(call, declared, present, set), unread };
}

function presentOf(kind: Kind, answer: Answer): Present {
  const { ref, sequence, managedBy, driftedAt, ...fields } = answer;
  return {
    ...{ kind, id: idOf(kind, fields), fields, version: Number(sequence), ref: ref as Present['ref'] },
    ...(managedBy === undefined ? {} : { managedBy: String(managedBy) }),
    ...(driftedAt === undefined ? {} : { driftedAt: Number(driftedAt) }),
  };
}

/**
 * Returns what is present, with each key of the set under the name that files give its secret: so a rename is a change of the key, and
 * two may swap their names. Only a key whose secret begins otherwise than that in its file, or that is not there, is asked about.
 */
async function bySecret(
  call: Call,
  declared: readonly Declared[],
  present: Map<string, Present>,
  set: string,
): Promise<Map<string, Present>> {
  const keys = declared.flatMap(({ kind, id, secret, fields }) => {
    const file = kind === 'Key' ? secret?.file : undefined;
    const text = file === undefined ? undefined : secretIn(id, file);
    if (text === undefined || digestOf(text).start === present.get(id)?.fields['start']) return [];
    return [{ id, text, apiId: fields['apiId'] }];
  });
  const moves = await inParallel(keys, async ({ id, text, apiId }) => {
    const key = await orNone(call<Answer>('keys.whoami', { key: text }));
    if (!key || key['apiId'] !== apiId || key['managedBy'] !== set || key['rerolledTo'] !== undefined)
      return undefined;
    return { id, key: presentOf('Key', { ...key, ref: { keyId: key['keyId'] } }) };
  });
  const moved = new Map(moves.filter((move) => move !== undefined).map(({ id, key }) => [id, key]));
  if (moved.size === 0) return present;
  const keyIds = new Set([...moved.values()].map(({ ref }) => ref['keyId']));
  const rest = [...present].filter(([, { ref }]) => !keyIds.has(ref['keyId'] ?? ''));
  const others = rest.map(([id, each]): [string, Present] => {
    if (!moved.has(id)) return [id, each];
    const own = `${id} (${each.ref['keyId']})`;
    return [own, { ...each, id: own }];
  });
  return new Map([...others, ...[...moved].map(([id, key]): [string, Present] => [id, { ...key, id }])]);
}
