import { Gathering } from '#shared/process/gathering.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { rootKeyFrom } from '#shared/protocol/records/root-keys-record.ts';
import { command, list } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { rootKeyDescendants, rootKeyIndex, rootKeyRecord } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { generateId, generateKey, hashSecret, isWellFormed } from '#shared/rules/key-format.ts';
import type { Draw } from '../ports.ts';
import type { Person } from '../schema/person.ts';
import type { BootstrapKeys } from './bootstrap-keys.ts';
import { Permissions } from './root-permissions.ts';

export const createRootKey = command(
  new URL('./create-root-key.lua', import.meta.url),
  ['record', 'index', 'descendants'],
  ['id', 'secretHash', 'most', 'mostDescendants', 'ancestors', '...fields'],
  String,
);
export const updateRootKey = command(
  new URL('./update-root-key.lua', import.meta.url),
  ['record'],
  ['rootKeyId', 'enabled'],
  (reply) => reply === 'OK',
);
const deleteRootKey = command(
  new URL('./delete-root-key.lua', import.meta.url),
  ['index', 'descendants'],
  ['rootKeyId', 'records'],
  Number,
);
export const readRootKey = command(new URL('./read-root-key.lua', import.meta.url), ['record'], [], list);

const ROOT_KEY_BYTES = 24;
const ROOT_KEY_PREFIX = 'kfroot';
/** The maximum number of root keys, so that one response can list them. */
export const ROOT_KEYS_MAX = 1000;
/** The maximum number of root keys that descend from one, so that no delegate takes all places. */
export const DESCENDANTS_MAX = 100;

/** The maximum length of a chain of root keys, each of which created the next. */
export const ANCESTORS_MAX = 8;

/** A root key as admins see it: never its secret or the hash of its secret. */
export interface RootKey {
  readonly rootKeyId: string;
  readonly name: string;
  readonly permissions: readonly string[];
  readonly enabled: boolean;
  readonly createdAt: number;
}

/** The caller of an operation. */
export interface Caller {
  /** The id of the root key, or of the person. */
  readonly id: string;
  /** The person who signed in; undefined = the caller has a root key. */
  readonly person?: Person;
  readonly permissions: Permissions;
  /**
   * Ids of the root keys that led to the caller's: each created the next, and the last created the caller's.
   * Empty if a key of the configuration created it.
   */
  readonly ancestors: readonly string[];
}

/** A root key's record. */
interface RootKeyRecord extends RootKey {
  readonly ancestors: readonly string[];
}

/** The root keys of the configuration, and those in Redis, which are stored only as SHA-256. */
export class RootKeys {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #bootstrap: BootstrapKeys;
  /**
   * Ids of root keys in Redis by the hash of their secret, as far as they were accepted: at most ROOT_KEYS_MAX. No id
   * ever changes.
   */
  readonly #ids = new Map<string, string>();
  /** Calls with the same root key that arrive together share one read. */
  readonly #reads = new Gathering<undefined, RootKeyRecord | undefined>((record) => this.#readRecord(record));

  /** @param bootstrap root keys that may do everything */
  constructor(nodes: RedisNodes, writer: DurableWriter, bootstrap: BootstrapKeys) {
    this.#nodes = nodes;
    this.#writer = writer;
    this.#bootstrap = bootstrap;
  }

  /**
   * Identifies the caller by the Authorization header. Reads Redis on every call. Rejects with UNAUTHORIZED.
   * @param onKnown is called at once with the caller's id, if it is known before the root key is read
   */
  async authenticate(authorization: string | undefined, onKnown: (id: string) => void): Promise<Caller> {
    const { caller } = await this.callerWith(rootKeyFrom(authorization), onKnown);
    return caller;
  }

  /** Identifies the caller by the secret of a root key, as `authenticate` does. Rejects with UNAUTHORIZED. */
  async callerWith(
    secret: string,
    onKnown: (id: string) => void = () => undefined,
  ): Promise<{ caller: Caller; secretHash: string }> {
    const secretHash = hashSecret(secret);
    const id = this.#ids.get(secretHash);
    if (id !== undefined) onKnown(id);
    const bootstrap = this.#bootstrapCaller(secretHash);
    if (bootstrap !== undefined) return { caller: bootstrap, secretHash };
    // All root keys in Redis have our format, so a made-up key fails its checksum without a look-up.
    if (!isWellFormed(secret)) throw unknownRootKey('');
    const fix = secret.startsWith(`${ROOT_KEY_PREFIX}_`)
      ? ''
      : `; this is no root key but a key of an API: root keys begin with ${ROOT_KEY_PREFIX}_`;
    return { caller: await this.#storedCaller(secretHash, fix), secretHash };
  }

  /** Identifies the caller by the hash of a root key's secret. Rejects with UNAUTHORIZED. */
  async callerOf(secretHash: string): Promise<Caller> {
    return this.#bootstrapCaller(secretHash) ?? this.#storedCaller(secretHash, '');
  }

  /** Returns the caller with a root key of the configuration; undefined = it is none. */
  #bootstrapCaller(secretHash: string): Caller | undefined {
    const id = this.#bootstrap.idOf(secretHash);
    if (id === undefined) return undefined;
    return { id, permissions: new Permissions(['*']), ancestors: [] };
  }

  async #storedCaller(secretHash: string, fix: string): Promise<Caller> {
    const rootKey = await this.#read(secretHash);
    if (!rootKey?.enabled) throw unknownRootKey(fix);
    const { rootKeyId, ancestors } = rootKey;
    const [oldest = ''] = this.#ids.size < ROOT_KEYS_MAX ? [] : this.#ids.keys();
    this.#ids.delete(oldest);
    this.#ids.set(secretHash, rootKeyId);
    const creators = await Promise.all(ancestors.map((id) => this.get(id)));
    if (!creators.every((ancestor) => ancestor?.enabled)) {
      const advice = 'enable that one, or use a root key that it did not make';
      throw new ApiError(
        'UNAUTHORIZED',
        `Authorization: a root key that made this one is disabled; ${advice}`,
      );
    }
    return { id: rootKeyId, permissions: new Permissions(rootKey.permissions), ancestors };
  }

  /** @returns the secret too, which is not stored */
  async create(by: Caller, name: string, permissions: readonly string[], nowMs: number, draw?: Draw) {
    // Root keys that a person created stay when the person leaves, as those of a bootstrap root key do.
    const isRoot = by.person !== undefined || this.#bootstrap.ids.includes(by.id);
    const ancestors = isRoot ? [] : [...by.ancestors, by.id];
    if (ancestors.length > ANCESTORS_MAX)
      throw new ApiError(
        'CONFLICT',
        `more than ${ANCESTORS_MAX} root keys would descend from each other; use an earlier one`,
      );
    const rootKeyId = generateId('root', draw?.nowMs ?? nowMs, draw?.random);
    const key = generateKey(ROOT_KEY_BYTES, ROOT_KEY_PREFIX, draw?.random);
    const secretHash = hashSecret(key);
    const fields = [
      'name',
      name,
      'permissions',
      JSON.stringify(permissions),
      'enabled',
      '1',
      'createdAt',
      nowMs,
    ];
    const run = createRootKey({
      ...{ record: rootKeyRecord(secretHash), index: rootKeyIndex, descendants: rootKeyDescendants },
      ...{ id: rootKeyId, secretHash, most: ROOT_KEYS_MAX, mostDescendants: DESCENDANTS_MAX },
      ...{ ancestors: ancestors.join(' '), fields },
    });
    const { reply, replicated } = await this.#writer.send(run);
    // What was drawn before, the first call created.
    if (reply === 'EXISTS' && !draw) throw new ApiError('CONFLICT', 'the root key exists already');
    if (reply === 'FULL')
      throw new ApiError('CONFLICT', `there are ${ROOT_KEYS_MAX} root keys already; delete some`);
    if (reply !== 'OK' && reply !== 'EXISTS')
      throw new ApiError(
        'CONFLICT',
        `${DESCENDANTS_MAX} root keys descend from ${reply} already; delete some of them`,
      );
    if (!replicated) throw unavailable('the root key is not on all replicas; disable it and create another');
    return { rootKeyId, key };
  }

  /** @returns undefined if there is no such root key */
  async get(rootKeyId: string): Promise<RootKey | undefined> {
    const secretHash = await this.#nodes.run(rootKeyIndex, (redis) => redis.hget(rootKeyIndex, rootKeyId));
    return secretHash ? this.#read(secretHash) : undefined;
  }

  /** The root key in Redis with this secret; undefined = none. Texts of another form cost no look-up. */
  async lookUp(secret: string): Promise<RootKey | undefined> {
    const mayBeOne = secret.startsWith(`${ROOT_KEY_PREFIX}_`) && isWellFormed(secret);
    return mayBeOne ? this.#read(hashSecret(secret)) : undefined;
  }

  async setEnabled(rootKeyId: string, enabled: boolean): Promise<void> {
    const secretHash =
      (await this.#nodes.run(rootKeyIndex, (redis) => redis.hget(rootKeyIndex, rootKeyId))) ?? '';
    const run = updateRootKey({ record: rootKeyRecord(secretHash), rootKeyId, enabled: enabled ? '1' : '0' });
    const { reply: isKnown, replicated } = await this.#writer.send(run);
    if (!isKnown) throw new ApiError('NOT_FOUND', `root key ${rootKeyId} not found`);
    if (!replicated) throw unavailable('the change is not on all replicas yet; send it again');
  }

  /** Deletes a root key and all that descend from it; resolves with their number. */
  async delete(rootKeyId: string): Promise<number> {
    const records = rootKeyRecord('');
    const run = deleteRootKey({ index: rootKeyIndex, descendants: rootKeyDescendants, rootKeyId, records });
    const { reply, replicated } = await this.#writer.send(run);
    if (!replicated)
      throw unavailable(
        'the deletion is not on all replicas yet; if the root key is still listed, send it again',
      );
    return reply;
  }

  async list(): Promise<RootKey[]> {
    return (await this.#all())
      .map(({ secretHash: _, ...rootKey }) => rootKey)
      .sort((a, b) => (a.rootKeyId < b.rootKeyId ? -1 : 1));
  }

  /** The root keys in Redis that are accepted now: they are enabled, and so are all that led to them. */
  async effective(): Promise<{ readonly secretHash: string; readonly permissions: readonly string[] }[]> {
    const all = await this.#all();
    const enabledIds = new Set(all.filter(({ enabled }) => enabled).map(({ rootKeyId }) => rootKeyId));
    return all.filter(({ rootKeyId, ancestors }) =>
      [rootKeyId, ...ancestors].every((id) => enabledIds.has(id)),
    );
  }

  async #all(): Promise<(RootKeyRecord & { readonly secretHash: string })[]> {
    const hashes = await this.#nodes.run(rootKeyIndex, (redis) => redis.hvals(rootKeyIndex));
    const all = await Promise.all(
      hashes.map(async (secretHash) => {
        const rootKey = await this.#read(secretHash);
        return rootKey && { ...rootKey, secretHash };
      }),
    );
    return all.filter((rootKey) => rootKey !== undefined);
  }

  #read(secretHash: string): Promise<RootKeyRecord | undefined> {
    return this.#reads.add(rootKeyRecord(secretHash), undefined).result;
  }

  async #readRecord(record: string): Promise<RootKeyRecord | undefined> {
    const reply = await this.#nodes.run(record, (redis) => send(redis, readRootKey({ record })));
    if (reply.length === 0) return undefined;
    const fields = Object.fromEntries(pairs(reply));
    return {
      rootKeyId: fields['id'] ?? '',
      name: fields['name'] ?? '',
      permissions: JSON.parse(fields['permissions'] ?? '[]') as string[],
      enabled: fields['enabled'] === '1',
      createdAt: Number(fields['createdAt']),
      ancestors: (fields['ancestors'] ?? '').split(' ').filter(Boolean),
    };
  }
}

/** Returns the caller's name, as sessions and the audit log show it. */
export const nameOf = ({ id, person }: Caller): { readonly rootKeyId?: string; readonly person?: Person } =>
  person === undefined ? { rootKeyId: id } : { person };

/** Returns true for the error of a root key or a session that is not accepted. */
export const isUnauthorized = (error: unknown): error is ApiError =>
  error instanceof ApiError && error.code === 'UNAUTHORIZED';

const unknownRootKey = (fix: string) =>
  new ApiError('UNAUTHORIZED', `Authorization: the root key is unknown or disabled${fix}`);

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let i = 0; i < flat.length; i += 2) yield [flat[i] ?? '', flat[i + 1] ?? ''];
}
