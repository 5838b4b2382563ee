import type { CreditsChange, LogEntry } from '#shared/protocol/log/change-log-port.ts';
import { inSharedLog } from '#shared/protocol/log/new-log.ts';
import type { RecordParts } from '#shared/protocol/log/new-shared-record.ts';
import { managedByOthers } from '#shared/protocol/log/write-error.ts';
import { KEY_FIELDS, type NewKeyFields, POOL, storedFields } from '#shared/protocol/records/key-record.ts';
import type { ChangeWriter, Propagation } from '#shared/protocol/writer/writer.ts';
import { identityIndexKey, indexOf, recordKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { slugsOf } from '#shared/rules/slugs.ts';
import type { Apis } from '../../core/apis/apis.ts';
import type { IdentitiesOfKeys, KeyIdentity, WithIdentity } from '../../core/ports.ts';
import {
  type CreditsView,
  type Key,
  type KeyView,
  type Managed,
  managedIn,
} from '../../core/records/key-view.ts';
import { CREDITS_VIEW } from '../../core/schema/credits.ts';

/** Number of APIs that are read in one step. */
const APIS_AT_ONCE = 100;

/** Letters of the fields that decide whether an identity applies to a key, whether it is enabled, and whether it has credits. */
const STATE_LETTERS = [KEY_FIELDS.apiIds.letter, KEY_FIELDS.enabled.letter, POOL];

/** An identity as responses show it. */
export interface Identity extends KeyIdentity, Managed {
  readonly meta: object;
  /** The sequence of its last change. */
  readonly sequence: number;
}

interface IdentitiesOptions extends RecordParts {
  readonly view: KeyView;
  readonly apis: Apis;
  readonly changeWriter: ChangeWriter;
}

/**
 * Identities in Redis: records of the shared log in the form of keys, without a secret. An identity's id is
 * derived from its `externalId`, so keys need not name their identity: verifiers join the two. All changes,
 * including creations, are entries of the shared log.
 */
export class Identities implements IdentitiesOfKeys {
  readonly #options: IdentitiesOptions;

  constructor(options: IdentitiesOptions) {
    this.#options = options;
  }

  /**
   * Creates an identity; its propagation is reported like that of a change. Rejects with CONFLICT (the
   * identity exists), BAD_REQUEST (one of its APIs does not exist) or VERIFIERS_TOO_OLD, in which case
   * nothing was created, or with SERVICE_UNAVAILABLE.
   */
  async create(
    { externalId, ...fields }: NewKeyFields & { readonly externalId: string },
    credits: CreditsChange | undefined,
    waitMs: number | undefined,
    onWritten: (entry: LogEntry) => void,
  ): Promise<{ readonly identityId: string; readonly propagation: Propagation }> {
    const { changeWriter } = this.#options;
    await this.checkApis(fields.apiIds);
    const identityId = identityIdOf(externalId);
    const storedTexts = storedFields({ ...fields, name: externalId });
    const about = { apiId: SHARED_LOG, operation: 'create', keyId: identityId } as const;
    const write = { ...about, fields: storedTexts, ...(credits ? { credits } : {}) };
    const propagation = await inSharedLog(
      this.#options,
      () => changeWriter.apply(write, waitMs, onWritten),
      (applied) => applied === undefined,
    );
    if (!propagation) throw unavailable('the shared log was lost; nothing was created');
    return { identityId, propagation };
  }

  async get(identityId: string): Promise<Identity | undefined> {
    const record = await this.#options.view.get(SHARED_LOG, identityId);
    return record && identityOf(record);
  }

  /**
   * The version that an identity's record must have to be deleted; undefined if there is no such identity.
   * Rejects with CONFLICT if the identity is disabled, because its keys would be accepted again.
   */
  async toDelete(identityId: string, ifManagedBy?: string): Promise<string | undefined> {
    const record = recordKey(SHARED_LOG, identityId);
    const [version, isEnabled, managedBy] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, 'v', KEY_FIELDS.enabled.letter, 'B'),
    );
    if (!version) return undefined;
    if (ifManagedBy !== undefined && managedBy !== ifManagedBy) throw managedByOthers(ifManagedBy);
    if (isEnabled !== '1')
      throw new ApiError(
        'CONFLICT',
        'the identity is disabled, and its keys would be accepted again: enable it before you delete it',
      );
    return version;
  }

  /**
   * One page of identities in order of creation, beginning at the sequence `from`. With `search`, only those that have it in
   * their external id or id; the page may then be short and still have a `next`.
   */
  async list(
    limit: number,
    from?: number,
    { search = '', managedBy }: { readonly search?: string; readonly managedBy?: string } = {},
  ): Promise<{
    readonly identities: readonly Identity[];
    readonly total: number;
    readonly next?: number;
  }> {
    const index = indexOf(SHARED_LOG, identityIdOf(''));
    const filter = { search, ...(managedBy === undefined ? {} : { managedBy }) };
    const page = await this.#options.view.list(SHARED_LOG, filter, limit, 'asc', from, index);
    if (!page) return { identities: [], total: 0 };
    const { keys, ...rest } = page;
    return { identities: keys.map(identityOf), ...rest };
  }

  /** The same of those whose `managedBy` begins with a prefix, in the order of that, after `next` of the page before. */
  async listDeclared(
    prefix: string,
    limit: number,
    after: string,
    { search = '', managedBy }: { readonly search?: string; readonly managedBy?: string } = {},
  ): Promise<{
    readonly identities: readonly Identity[];
    readonly total: number;
    readonly next?: string;
  }> {
    const index = indexOf(SHARED_LOG, identityIdOf(''));
    const filter = { search, ...(managedBy === undefined ? {} : { managedBy }) };
    const page = await this.#options.view.listDeclared(SHARED_LOG, prefix, filter, limit, after, index);
    if (!page) return { identities: [], total: 0 };
    const { keys, ...rest } = page;
    return { identities: keys.map(identityOf), ...rest };
  }

  /**
   * One page of the APIs that have keys with this `externalId`, ordered by id; it may be empty and still have a
   * `next`.
   * @param after the id after which the page begins; '' = from the start
   * @param only the only APIs to examine, sorted; undefined = all
   */
  async apisWithKeys(
    externalId: string,
    after: string,
    only?: readonly string[],
  ): Promise<{ readonly apiIds: readonly string[]; readonly examined: number; readonly next?: string }> {
    const { apis, nodes } = this.#options;
    const page = only
      ? only.filter((apiId) => apiId > after).slice(0, APIS_AT_ONCE)
      : await apis.ids(after, APIS_AT_ONCE);
    const existing = await Promise.all(
      page.map((apiId) => {
        const index = identityIndexKey(apiId, externalId);
        return nodes.run(index, (redis) => redis.exists(index));
      }),
    );
    const next = page.length === APIS_AT_ONCE ? page.at(-1) : undefined;
    return {
      apiIds: page.filter((_apiId, i) => existing[i] === 1),
      examined: page.length,
      ...(next === undefined ? {} : { next }),
    };
  }

  /** Number of keys with an `externalId` in these APIs. */
  async keysIn(apiIds: readonly string[], externalId: string): Promise<number> {
    const counts = await Promise.all(
      apiIds.map((apiId) => {
        const index = identityIndexKey(apiId, externalId);
        return this.#options.nodes.run(index, (redis) => redis.zcard(index));
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** The keys, each with its identity if one exists that applies in the key's API. */
  async withIdentities<Shown extends Pick<Key, 'apiId' | 'externalId'>>(
    keys: readonly Shown[],
  ): Promise<WithIdentity<Shown>[]> {
    const externalIds = [...new Set(keys.flatMap(({ externalId }) => externalId ?? []))];
    if (externalIds.length === 0) return [...keys];
    const states = await Promise.all(
      externalIds.map(async (externalId) => {
        const id = identityIdOf(externalId);
        const record = recordKey(SHARED_LOG, id);
        const [isThere, scope, enabled, pool] = await this.#options.nodes.run(record, (redis) =>
          redis.hmget(record, 'p', ...STATE_LETTERS),
        );
        const credits = pool ? (await this.get(id))?.credits : undefined;
        const identity = { id, externalId, enabled: enabled === '1', ...(credits ? { credits } : {}) };
        return [externalId, isThere ? { identity, apiIds: slugsOf(scope ?? '') } : undefined] as const;
      }),
    );
    const stateOf = new Map(states);
    return keys.map((key) => {
      const { identity, apiIds = [] } = stateOf.get(key.externalId ?? '') ?? {};
      return identity && (apiIds.length === 0 || apiIds.includes(key.apiId)) ? { ...key, identity } : key;
    });
  }

  /** Rejects with BAD_REQUEST if one of these APIs does not exist. */
  async checkApis(apiIds: readonly string[] = []): Promise<void> {
    const { apis } = this.#options;
    for (const [i, apiId] of apiIds.entries())
      if (!(await apis.get(apiId))) throw new ApiError('BAD_REQUEST', `apiIds.${i}: there is no such API`);
  }
}

function identityOf(record: Key): Identity {
  const { keyId, name = '', enabled, meta, ratelimits = [], concurrency = [] } = record;
  const { roles = [], apiIds, sequence } = record;
  const credits = Object.entries(record).filter(([field]) => field in CREDITS_VIEW);
  return {
    ...{ id: keyId, externalId: name, enabled, meta, ratelimits, concurrency, roles, sequence },
    ...managedIn(record),
    ...(apiIds ? { apiIds } : {}),
    ...(credits.length > 0 ? { credits: Object.fromEntries(credits) as CreditsView } : {}),
  };
}
