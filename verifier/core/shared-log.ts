import { identityIdOf } from '#shared/contract/key-format.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ROOT_KEYS_ID } from '#shared/redis/root-keys-record.ts';
import type { EffectivePermissions, Identity, Join } from './effective-permissions.ts';
import type { Follower } from './follower.ts';
import type { Entry, Epoch, Memory } from './key-cache.ts';
import type { Overrides } from './overrides.ts';
import type { Links } from './permissions.ts';
import type { Pools } from './pools.ts';
import type { Scopes } from './scopes.ts';
import { JoinOf, Records, type State } from './shared-records.ts';

/** Minimum capacity for roles and identities, including deleted ones. */
const RECORDS_MIN = 10_000;

/**
 * The roles and identities. The verifier follows their log from the first key with a role or an identity on.
 * All answers come from one prefix of the log, under its lease.
 */
export class SharedLog {
  readonly #follow: (apiId: string, memory: Memory) => Follower;
  readonly #records: Records;
  #follower: Follower | undefined;
  /** Joins by the keys' roles and own permissions. */
  readonly #ofRoles = new WeakMap<Links, JoinOf>();
  readonly #reads = new Map<string, Promise<unknown>>();

  /**
   * @param follow creates and starts a follower, which stores what it learns in the given memory
   * @param keysMax maximum number of keys in memory. The same number of roles and identities fits, but at
   * least RECORDS_MIN
   */
  constructor(follow: (apiId: string, memory: Memory) => Follower, keysMax: number) {
    this.#follow = follow;
    this.#records = new Records(Math.max(keysMax, RECORDS_MIN));
  }

  /**
   * Joins a key with its roles and its identity, if they are in memory and may be used at this very instant.
   * Call it in one synchronous block with reading the key. undefined = the caller must ask Redis (`learn`).
   */
  join(entry: Entry, links: Links): Join | undefined {
    let join = entry.join;
    if (join === undefined || !join.isCurrent) {
      join = this.#make(entry, links);
      if (join === undefined) return undefined;
      entry.join = join;
    }
    return join.lease.holds() ? join : undefined;
  }

  /** Reads the roles and the identity of a key that memory lacks. Rejects with SERVICE_UNAVAILABLE. */
  async learn(entry: Entry, { roles }: Links): Promise<void> {
    const follower = await this.#live();
    const externalId = externalIdOf(entry);
    const all = externalId === '' ? roles : [...roles, identityIdOf(externalId)];
    const missing = all.filter((id) => this.#records.get(id) === undefined);
    // If none is missing but the lease is over, reading any of them renews the lease.
    const ids = missing.length > 0 || follower.canAnswer ? missing : all.slice(0, 1);
    await Promise.all(ids.map((id) => this.#read(follower, id)));
  }

  /**
   * Returns the overrides of a namespace (undefined = it has none), and the pools of its limits, if memory may
   * be used at this very instant. undefined = the caller must ask Redis (`readRecord`).
   */
  overridesOf(id: string): { readonly overrides: Overrides | undefined; readonly pools: Pools } | undefined {
    const state = this.#records.get(id);
    if (!state?.epoch.lease.holds()) return undefined;
    return { overrides: state.overrides, pools: state.epoch.pools };
  }

  /**
   * The scopes of all root keys, if memory may be used at this very instant. undefined = the caller must
   * read the record (`readRecord`); if it is still undefined then, nobody has written it.
   */
  get scopes(): Scopes | undefined {
    const state = this.#records.get(ROOT_KEYS_ID);
    return state?.epoch.lease.holds() ? state.scopes : undefined;
  }

  /** Reads a record that memory lacks, or renews the lease. Rejects with SERVICE_UNAVAILABLE. */
  async readRecord(id: string): Promise<void> {
    await this.#read(await this.#live(), id);
  }

  /** The follower of the shared log; undefined = nothing needed it yet. */
  get follower(): Follower | undefined {
    return this.#follower;
  }

  async stop(): Promise<void> {
    await this.#follower?.stop();
  }

  /** Returns the follower once it is in sync; starts it if necessary. */
  async #live(): Promise<Follower> {
    this.#follower ??= this.#follow(SHARED_LOG, this.#records);
    await this.#follower.whenLive();
    return this.#follower;
  }

  /** Reads a record. There is one read per record at a time, however many callers wait. */
  #read(follower: Follower, id: string): Promise<unknown> {
    const present = this.#reads.get(id);
    if (present !== undefined) return present;
    const read = follower.fill({ keyId: id }).finally(() => this.#reads.delete(id));
    this.#reads.set(id, read);
    return read;
  }

  #make(entry: Entry, links: Links): JoinOf | undefined {
    const byRoles = links.roles.length === 0 ? undefined : this.#joinOfRoles(links);
    if (byRoles === undefined && links.roles.length > 0) return undefined;
    const externalId = externalIdOf(entry);
    if (externalId === '') return byRoles;
    const state = this.#records.get(identityIdOf(externalId));
    if (state === undefined) return undefined;
    const identity = state.identityIn(entry.epoch.apiId);
    if (identity === undefined)
      return byRoles ? new JoinOf([state, ...byRoles.states], byRoles.effectivePermissions) : state.bare();
    const present = state.joins.get(links);
    if (present?.isCurrent) return present;
    const join = new JoinOf(
      [state, ...(byRoles?.states ?? [])],
      joinPermissions(
        byRoles?.effectivePermissions?.roles ?? [],
        byRoles?.effectivePermissions ?? links.ownPermissions,
        identity,
        state.epoch,
      ),
    );
    state.joins.set(links, join);
    return join;
  }

  /** Joins roles with a key's own permissions; undefined = memory lacks some of the roles. */
  #joinOfRoles(links: Links): JoinOf | undefined {
    const present = this.#ofRoles.get(links);
    if (present?.isCurrent) return present;
    const states: State[] = [];
    const names: string[] = [];
    const slugSet = new Set(links.ownPermissions?.slugSet);
    for (const id of links.roles) {
      const state = this.#records.get(id);
      if (state === undefined) return undefined;
      states.push(state);
      if (state.record === undefined) continue;
      names.push(state.record.details?.name ?? '');
      for (const slug of state.record.ownPermissions?.slugs ?? []) slugSet.add(slug);
    }
    const [first, ...rest] = states;
    if (first === undefined) return undefined;
    const slugs = Object.freeze([...slugSet].sort());
    const roles = Object.freeze(names.sort());
    const join = new JoinOf(
      [first, ...rest],
      joinPermissions(roles, { slugSet, slugs }, undefined, first.epoch),
    );
    this.#ofRoles.set(links, join);
    return join;
  }
}

const externalIdOf = ({ details }: Entry): string => details?.externalId ?? '';

function joinPermissions(
  roles: readonly string[],
  permissions: Pick<EffectivePermissions, 'slugSet' | 'slugs'> | undefined,
  identity: Identity | undefined,
  { pools }: Epoch,
): EffectivePermissions {
  const { slugSet = NO_PERMISSIONS, slugs = [] } = permissions ?? {};
  return { slugSet, slugs, roles, identity, pools };
}

const NO_PERMISSIONS: ReadonlySet<string> = new Set();
