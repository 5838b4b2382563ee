import type { NamedLimit } from '#shared/credits.ts';
import { ApiError, unavailable } from '#shared/errors.ts';
import { KEY_FIELDS, type StoredFields, storedFields } from '#shared/key-record.ts';
import { apiKeys, indexOf, recordKey, WORKSPACE } from '#shared/redis/redis-keys.ts';
import type { Write } from '../../core/change-log.ts';
import type { Propagation, Propagator } from '../../core/propagation.ts';
import type { Apis } from '../apis.ts';
import type { Key, KeyView } from '../key-view.ts';
import { createRecord, type RecordParts, recordOf } from './new-record.ts';

/** Keys that are read, and linked, in one go. */
const KEYS_AT_ONCE = 1000;
/** APIs that are looked through in one go. */
const APIS_AT_ONCE = 100;
/** Times that links are written anew because something changed meanwhile, before the caller is told. */
const TRIES = 20;

/** A customer, as people see it. */
export interface Identity {
  readonly id: string;
  readonly externalId: string;
  readonly enabled: boolean;
  readonly meta: object;
  /** Rate limits that all keys of the owner share. */
  readonly ratelimits: readonly NamedLimit[];
}

interface IdentitiesOptions extends RecordParts {
  readonly view: KeyView;
  readonly apis: Apis;
  readonly propagator: Propagator;
}

/**
 * Identities in Redis: records of the space beside all APIs, of the form that keys have, which no secret leads to. A key of an
 * owner who has one holds its id. Changing identities is the change log's business; which keys hold which is decided here.
 */
export class Identities {
  readonly #options: IdentitiesOptions;

  constructor(options: IdentitiesOptions) {
    this.#options = options;
  }

  /**
   * Creates an identity and links the keys that its owner has already.
   * @returns its id, and the propagation of the last link where there are any
   * Rejects with CONFLICT where there is one, VERIFIERS_TOO_OLD, or SERVICE_UNAVAILABLE; sent again after that, a call
   * completes what this one began.
   */
  async create(
    identity: Omit<Identity, 'id'>,
  ): Promise<{ readonly identityId: string; readonly propagation?: Propagation }> {
    const { externalId, ...fields } = identity;
    const taken = () => new ApiError('CONFLICT', 'externalId: there is an identity of it already');
    if ((await this.idOf(externalId)) !== undefined) {
      const { propagation } = await this.linkKeysOf(externalId);
      if (propagation?.state === 'pending')
        throw unavailable('verifiers may not know yet that keys are its own');
      throw taken();
    }
    const identityId = await createRecord(
      this.#options,
      {
        ...{ kind: 'identity', owner: ownerOf(externalId), fields: { ...fields, name: externalId } },
        called: { one: 'the identity', many: 'identities' },
      },
      taken,
    );
    return { identityId, ...(await this.linkKeysOf(externalId)) };
  }

  async get(identityId: string): Promise<Identity | undefined> {
    const found = await this.#options.view.get(WORKSPACE, identityId);
    return found && shown(found);
  }

  /**
   * The owner of an identity that is to be deleted, and the version that its record must have then; undefined where there is
   * none. Rejects with CONFLICT where it is disabled: its keys would be accepted again.
   */
  async toDelete(
    identityId: string,
  ): Promise<{ readonly externalId: string; readonly condition: string } | undefined> {
    const record = recordKey(WORKSPACE, identityId);
    const { name, enabled } = KEY_FIELDS;
    const [externalId, version, isEnabled] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, name.letter, 'v', enabled.letter),
    );
    if (!externalId) return undefined;
    if (isEnabled !== '1')
      throw new ApiError('CONFLICT', 'the identity is disabled: its keys would be accepted again');
    return { externalId, condition: version ?? '0' };
  }

  /** One page of identities in order of creation, from creation number `from` on. */
  async list(
    limit: number,
    from?: number,
  ): Promise<{
    readonly identities: readonly Identity[];
    readonly total: number;
    readonly next?: number;
  }> {
    const index = indexOf(WORKSPACE, 'identity_');
    const page = await this.#options.view.list(WORKSPACE, {}, limit, 'asc', from, index);
    if (!page) return { identities: [], total: 0 };
    const { keys, ...rest } = page;
    return { identities: keys.map(shown), ...rest };
  }

  /** The id of this owner's identity; undefined where there is none. */
  idOf(externalId: string): Promise<string | undefined> {
    return recordOf(this.#options.nodes, ownerOf(externalId));
  }

  /** The link of a key that gets this owner, where there is an identity of it; another one is taken away by `linkKeys`. */
  async linkTo(externalId: string | null | undefined): Promise<{ readonly identity?: string }> {
    const identity = externalId ? await this.idOf(externalId) : undefined;
    return identity === undefined ? {} : { identity };
  }

  /** New keys, each with the identity of its owner where there is one. */
  async linked<New extends { readonly externalId?: string }>(keys: readonly New[]): Promise<New[]> {
    const owners = [...new Set(keys.flatMap(({ externalId }) => externalId ?? []))];
    const ids = await Promise.all(owners.map((externalId) => this.idOf(externalId)));
    const of = new Map(owners.map((externalId, i) => [externalId, ids[i]]));
    return keys.map((key) => {
      const identity = key.externalId === undefined ? undefined : of.get(key.externalId);
      return identity === undefined ? key : { ...key, identity };
    });
  }

  /**
   * Makes certain that keys which were just written hold the identity of their owner, as it is now: one may have been made
   * or deleted meanwhile, and whoever did that may have looked for the owner's keys too early to see them.
   * @param settles whether what others wrote, and may have given up waiting for, is waited for too
   * @param waitMs the longest wait for the links, milliseconds
   * @returns the propagation of the last link that was written; undefined where all were right
   */
  async linkKeys(
    apiId: string,
    keyIds: readonly string[],
    settles = false,
    waitMs?: number,
  ): Promise<Propagation | undefined> {
    let last: Propagation | undefined;
    for (let tries = 0; tries < TRIES; tries++) {
      const { writes, latest } = await this.#wrong(apiId, keyIds);
      const [first, ...others] = writes;
      if (!first) return together(last, settles && latest ? await this.#settled(apiId, latest) : undefined);
      const { applied, propagation } = await this.#options.propagator.applyAll([first, ...others], waitMs);
      for (const each of applied)
        if ('failure' in each && each.failure.code === 'VERIFIERS_TOO_OLD') throw each.failure;
      last = together(last, propagation);
    }
    throw unavailable('keys of the owner change faster than they can be linked to its identity');
  }

  /**
   * The same for all keys of an owner, in all APIs: where nothing is pending, and what others wrote is waited for too, every
   * verifier goes by their links.
   * @param leftMs tells for how long changes may still be waited for; see `timeLeft`
   */
  async linkKeysOf(
    externalId: string,
    settles = true,
    leftMs: () => number | undefined = () => undefined,
  ): Promise<{ readonly propagation?: Propagation }> {
    const { apis, view } = this.#options;
    let last: Propagation | undefined;
    for (let after: string | undefined = ''; after !== undefined; ) {
      const some: string[] = await apis.ids(after, APIS_AT_ONCE);
      const each = await Promise.all(
        some.map(async (apiId) => {
          let of: Propagation | undefined;
          for (let from: number | undefined; ; ) {
            const page = await view.ids(apiId, externalId, KEYS_AT_ONCE, from);
            if (!page) return of;
            of = together(of, await this.linkKeys(apiId, page.keyIds, settles, leftMs()));
            from = page.next;
            if (from === undefined) return of;
          }
        }),
      );
      for (const of of each) last = together(last, of);
      after = some.length < APIS_AT_ONCE ? undefined : some.at(-1);
    }
    return last ? { propagation: last } : {};
  }

  /** Sees that all up to a change is complete, by a change of nothing where that one is not. */
  async #settled(apiId: string, { keyId, sequence }: Latest): Promise<Propagation | undefined> {
    const { propagator } = this.#options;
    const status = await propagator.status(apiId, keyId, sequence, true).catch((error: unknown) => {
      // A failover took it, or the key was changed once more.
      if (error instanceof ApiError && error.code === 'CONFLICT') return undefined;
      throw error;
    });
    if (status?.state === 'complete') return undefined;
    return propagator.apply({ apiId, operation: 'noop', keyId: '', fields: {} });
  }

  /** The writes that would mend the keys which do not hold the identity of their owner, and the latest change of any key. */
  async #wrong(
    apiId: string,
    keyIds: readonly string[],
  ): Promise<{ readonly writes: Write[]; readonly latest: Latest | undefined }> {
    const { nodes } = this.#options;
    const { externalId: owner, identity } = KEY_FIELDS;
    const records = await nodes.run(apiKeys(apiId).head, (redis) =>
      Promise.all(
        keyIds.map((keyId) => redis.hmget(recordKey(apiId, keyId), 'p', 'v', owner.letter, identity.letter)),
      ),
    );
    const owners = [...new Set(records.flatMap(([, , of]) => of || []))];
    const ids = await Promise.all(owners.map((of) => this.idOf(of)));
    const now = new Map(owners.map((of, i) => [of, ids[i]]));
    // Changes that are the same one are written together.
    const links = new Map<string, StoredFields>();
    const linkOf = (id: string): StoredFields => {
      const link = links.get(id) ?? storedFields({ identity: id || null });
      links.set(id, link);
      return link;
    };
    let latest: Latest | undefined;
    const writes = records.flatMap(([secretHash, version, of, held], i): Write[] => {
      const right = (of && now.get(of)) || '';
      const keyId = keyIds[i] ?? '';
      const sequence = Number.parseInt(version ?? '0', 10);
      if (sequence > (latest?.sequence ?? 0)) latest = { keyId, sequence };
      if (!secretHash || right === (held ?? '')) return [];
      const condition = version ?? '0';
      return [{ apiId, operation: 'update', keyId, fields: linkOf(right), condition }];
    });
    return { writes, latest };
  }
}

/** Change of a key. */
interface Latest {
  readonly keyId: string;
  readonly sequence: number;
}

/** Name of an identity in the index of owners: no role is called so. */
const ownerOf = (externalId: string): string => `@${externalId}`;

const shown = ({ keyId, name = '', enabled, meta, ratelimits = [] }: Key): Identity => ({
  ...{ id: keyId, externalId: name, enabled, meta, ratelimits },
});

/** The later of two propagations, complete only where both are. */
function together(a: Propagation | undefined, b: Propagation | undefined): Propagation | undefined {
  if (!a || !b) return b ?? a;
  return a.state === 'pending' && b.state !== 'pending' ? { ...a, sequence: b.sequence } : b;
}
