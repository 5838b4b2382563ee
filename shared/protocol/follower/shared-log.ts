import { LRUCache } from 'lru-cache';
import { SHARED_LOG } from '../../redis/redis-keys.ts';
import { hashSecret, IDENTITY, identityIdOf, ROOT_KEYS_ID } from '../../rules/key-format.ts';
import { slugsOf, slugsText } from '../../rules/slugs.ts';
import type { KeyState } from '../records/key-record.ts';
import { type Limit, largestOf } from '../records/limits-in-memory.ts';
import { type Override, overridesIn } from '../records/namespace-record.ts';
import { rootKeyMark, scopesIn } from '../records/root-keys-record.ts';
import type { Companion, Metered } from './companion.ts';
import type { Follower } from './follower.ts';
import { Entry, type Epoch, type Memory, meteredOf } from './key-cache.ts';
import type { Lease } from './lease.ts';
import { type EffectivePermissions, type Identity, type Join, type Links, linksOf } from './permissions.ts';

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
    const identityId = identityIdOf(externalId);
    const all = externalId === '' ? roles : [...roles, identityId];
    const missing = this.#missingOf(all);
    // If none is missing but the lease is over, reading any of them renews the lease.
    const ids = missing.length > 0 || follower.canAnswer ? missing : all.slice(0, 1);
    await Promise.all(ids.map((id) => this.#read(follower, id)));
    if (externalId === '') return;
    // The roles of the identity are known only now.
    const identity = this.#records.get(identityId)?.identityIn(entry.epoch.apiId);
    await Promise.all(this.#missingOf(identity?.roles ?? []).map((id) => this.#read(follower, id)));
  }

  #missingOf(ids: readonly string[]): string[] {
    return ids.filter((id) => this.#records.get(id) === undefined);
  }

  /**
   * Returns the overrides of a namespace (undefined = it has none), and the companion of its limits, if memory may
   * be used at this very instant. undefined = the caller must ask Redis (`readRecord`).
   */
  overridesOf(id: string):
    | {
        readonly overrides: Overrides | undefined;
        readonly companion: Companion;
        /** From then on every verifier obeys their latest change, by the monotonic clock. */
        readonly obeyedAtMs: number;
      }
    | undefined {
    const state = this.#records.get(id);
    if (!state?.epoch.lease.holds()) return undefined;
    const { overrides, obeyedAtMs } = state;
    return { overrides, companion: state.epoch.companion, obeyedAtMs };
  }

  /**
   * Notes that other limits of roles may apply to a customer's keys, because one of these keys changed.
   * @param obeyedAtMs time from which on every verifier obeys the change
   */
  notePlan(externalId: string, obeyedAtMs: number): void {
    const state = this.#records.get(identityIdOf(externalId));
    if (state?.record) state.obeyedAtMs = Math.max(state.obeyedAtMs, obeyedAtMs);
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
    const read = this.#readOnce(follower, id).finally(() => this.#reads.delete(id));
    this.#reads.set(id, read);
    return read;
  }

  #readOnce(follower: Follower, keyId: string): Promise<unknown> {
    if (!follower.readsNearby) return follower.fill({ keyId });
    return follower.readNearby({ keyId }).then((record) => record ?? follower.fill({ keyId }));
  }

  #make(entry: Entry, links: Links): JoinOf | undefined {
    const externalId = externalIdOf(entry);
    const state = externalId === '' ? undefined : this.#records.get(identityIdOf(externalId));
    if (state === undefined && externalId !== '') return undefined;
    const identity = state?.identityIn(entry.epoch.apiId);
    const all = identity && identity.roles.length > 0 ? withRoles(links, identity.roles) : links;
    const byRoles = all.roles.length === 0 ? undefined : this.#joinOfRoles(all);
    if (byRoles === undefined && all.roles.length > 0) return undefined;
    if (state === undefined) return byRoles;
    if (identity === undefined)
      return byRoles ? new JoinOf([state, ...byRoles.states], byRoles.effectivePermissions) : state.bare();
    const present = state.joins.get(links);
    if (present?.isCurrent) return present;
    const join = new JoinOf(
      [state, ...(byRoles?.states ?? [])],
      joinPermissions(byRoles?.effectivePermissions ?? links.ownPermissions, identity, state.epoch),
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
    const limits: Limit[] = [];
    const slugSet = new Set(links.ownPermissions?.slugSet);
    for (const id of links.roles) {
      const state = this.#records.get(id);
      if (state === undefined) return undefined;
      states.push(state);
      if (state.record === undefined) continue;
      names.push(state.record.details?.name ?? '');
      for (const slug of state.record.ownPermissions?.slugs ?? []) slugSet.add(slug);
      limits.push(...(state.record.limits ?? []));
    }
    const [first, ...rest] = states;
    if (first === undefined) return undefined;
    const slugs = Object.freeze([...slugSet].sort());
    const roles = Object.freeze(names.sort());
    const join = new JoinOf(
      [first, ...rest],
      joinPermissions({ slugSet, slugs, roles, limits: largestOf(limits) }, undefined, first.epoch),
    );
    this.#ofRoles.set(links, join);
    return join;
  }
}

/** Returns the links of a key whose identity has these roles. */
const withRoles = ({ roles, ownPermissions }: Links, ofIdentity: readonly string[]): Links =>
  linksOf(slugsText([...new Set([...roles, ...ofIdentity])]), ownPermissions);

const externalIdOf = ({ details }: Entry): string => details?.externalId ?? '';

function joinPermissions(
  permissions: Partial<EffectivePermissions> | undefined,
  identity: Identity | undefined,
  { companion }: Epoch,
): EffectivePermissions {
  const { slugSet = NO_PERMISSIONS, slugs = [], roles = [], limits } = permissions ?? {};
  return { slugSet, slugs, roles, limits, identity, companion };
}

const NO_PERMISSIONS: ReadonlySet<string> = new Set();

/** A join of some states. A hit reads nothing else. */
class JoinOf implements Join {
  readonly epoch: Epoch;
  readonly lease: Lease;
  readonly effectivePermissions: EffectivePermissions | undefined;
  readonly states: readonly State[];

  constructor(states: readonly [State, ...State[]], effectivePermissions: EffectivePermissions | undefined) {
    const [{ epoch }] = states;
    this.epoch = epoch;
    this.lease = epoch.lease;
    this.effectivePermissions = effectivePermissions;
    this.states = states;
  }

  get obeyedAtMs(): number {
    let latestMs = 0;
    for (const { obeyedAtMs } of this.states) if (obeyedAtMs > latestMs) latestMs = obeyedAtMs;
    return latestMs;
  }

  get isCurrent(): boolean {
    if (!this.epoch.current) return false;
    for (const state of this.states) if (state.isVoid) return false;
    return true;
  }
}

function identityOf({ keyId: id, enabled, details, limits, pool, links }: Entry): Identity {
  const { name: externalId = '', meta = '{}' } = details ?? {};
  // A flat string: V8 would join a concatenation at every use.
  const json = Buffer.from(
    `{"id":"${id}","externalId":${JSON.stringify(externalId)},"meta":${meta}}`,
  ).toString();
  return { enabled, id, externalId, meta, json, limits, pool, roles: links?.roles ?? [] };
}

/**
 * The state of a record in the shared log, at the follower's position: a record, or none. It is void after a
 * change, or once no change would reach it.
 */
class State {
  readonly epoch: Epoch;
  /** undefined = no record with this id. */
  readonly record: Entry | undefined;
  isVoid = false;
  /** From then on every verifier obeys the latest change of this record, by the monotonic clock. */
  obeyedAtMs: number;
  #identity: Identity | undefined;
  #overrides: Overrides | undefined;
  #scopes: Scopes | undefined;
  #apiIds: ReadonlySet<string> | undefined;
  #bare: JoinOf | undefined;
  #joins: WeakMap<Links, JoinOf> | undefined;

  constructor(epoch: Epoch, record?: Entry) {
    this.epoch = epoch;
    this.record = record;
    this.obeyedAtMs = epoch.obeyedAtMs;
  }

  /** The overrides, if this is the record of a namespace. */
  get overrides(): Overrides | undefined {
    if (this.record === undefined) return undefined;
    this.#overrides ??= new Overrides(this.record.details?.meta ?? '{}');
    return this.#overrides;
  }

  /** The scopes of all root keys, if this is the record about them. */
  get scopes(): Scopes | undefined {
    if (this.record === undefined) return undefined;
    this.#scopes ??= new Scopes(this.record.details?.meta ?? '{}');
    return this.#scopes;
  }

  /** Returns the identity if it applies to this API. */
  identityIn(apiId: string): Identity | undefined {
    if (this.record === undefined) return undefined;
    const { apiIds = '' } = this.record.details ?? {};
    if (apiIds !== '') {
      this.#apiIds ??= new Set(slugsOf(apiIds));
      if (!this.#apiIds.has(apiId)) return undefined;
    }
    this.#identity ??= identityOf(this.record);
    return this.#identity;
  }

  /** Returns the join of all keys without roles whose customer has no identity here. */
  bare(): JoinOf {
    this.#bare ??= new JoinOf([this], undefined);
    return this.#bare;
  }

  /** Joins of the keys of an identity. */
  get joins(): WeakMap<Links, JoinOf> {
    this.#joins ??= new WeakMap();
    return this.#joins;
  }
}

/** The states of roles, identities and namespaces by id. */
class Records implements Memory {
  readonly #states: LRUCache<string, State>;
  /**
   * The state of every identity while no identity exists. The first identity that is created makes it void.
   */
  #noIdentity: State | undefined;

  constructor(max: number) {
    this.#states = new LRUCache({
      max,
      dispose: (state) => {
        state.isVoid = true;
      },
    });
  }

  get(id: string): State | undefined {
    const state = (id.startsWith(IDENTITY) && this.#noIdentity) || this.#states.get(id);
    return state?.epoch.current ? state : undefined;
  }

  beginEpoch(epoch: Epoch, identities: number): void {
    this.#noIdentity = identities === 0 ? new State(epoch) : undefined;
  }

  put(_secretHash: string, entry: Entry): void {
    this.#states.set(entry.keyId, new State(entry.epoch, entry));
  }

  putAbsent(id: string, epoch: Epoch): void {
    this.#states.set(id, new State(epoch));
  }

  update(_secretHash: string, id: string, epoch: Epoch, state: KeyState): Metered[] {
    const before = this.#end(id);
    if (before?.epoch === epoch) this.#states.set(id, new State(epoch, new Entry(epoch, id, state)));
    return [...meteredIn(before), meteredOf(id, state)];
  }

  forget(_secretHash: string, id: string): Metered[] {
    return meteredIn(this.#end(id));
  }

  /** Makes the state of a changed record void. */
  #end(id: string): State | undefined {
    if (this.#noIdentity && id.startsWith(IDENTITY)) {
      this.#noIdentity.isVoid = true;
      this.#noIdentity = undefined;
    }
    const state = this.#states.peek(id);
    this.#states.delete(id);
    return state;
  }
}

const meteredIn = (state: State | undefined): Metered[] => (state?.record ? [state.record.metered] : []);

/** The overrides of a namespace, arranged for look-ups. */
export class Overrides {
  readonly #exact = new Map<string, Override>();
  /** The patterns, the longest first. */
  readonly #patterns: { readonly expression: readonly string[]; readonly override: Override }[] = [];
  /** The results for the latest identifiers, as many as there are patterns. */
  readonly #latest: LRUCache<string, { readonly override: Override | undefined }>;

  /** @param meta the `meta` of the namespace's record, as JSON */
  constructor(meta: string) {
    for (const override of overridesIn(JSON.parse(meta))) {
      const { identifier } = override;
      if (identifier.includes('*')) this.#patterns.push({ expression: identifier.split('*'), override });
      else this.#exact.set(identifier, override);
    }
    this.#patterns.sort((a, b) => b.override.identifier.length - a.override.identifier.length);
    this.#latest = new LRUCache({ max: Math.max(1, this.#patterns.length) });
  }

  /** Returns the override of an identifier: one that names it, else the longest pattern that matches. */
  of(identifier: string): Override | undefined {
    const exact = this.#exact.get(identifier);
    if (exact !== undefined || this.#patterns.length === 0) return exact;
    let result = this.#latest.get(identifier);
    if (result === undefined) {
      const pattern = this.#patterns.find(({ expression }) => matches(identifier, expression));
      result = { override: pattern?.override };
      this.#latest.set(identifier, result);
    }
    return result.override;
  }
}

/**
 * Tells whether a text consists of these parts, in this order, with any characters between two parts. Takes the
 * first place of each part, so the time is linear in the text for each part; a regular expression could take
 * exponentially longer.
 */
function matches(text: string, parts: readonly string[]): boolean {
  const [first = '', ...others] = parts;
  const last = others.pop() ?? '';
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const place = text.indexOf(part, at);
    if (place < 0) return false;
    at = place + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}

/** The questions that a caller may ask. */
export interface Scope {
  /** The APIs about whose keys it may ask; undefined = all. */
  readonly allowedApis: ReadonlySet<string> | undefined;
  /** True = it may ask about keys at all. */
  readonly keys: boolean;
  /** True = it may take from rate limits that belong to no key. */
  readonly limits: boolean;
}

/** The scopes of all root keys, arranged for look-ups. */
export class Scopes {
  readonly #scopes = new Map<string, Scope>();

  /** @param meta the `meta` of the record with all scopes, as JSON */
  constructor(meta: string) {
    for (const [mark, { apis, limits }] of Object.entries(scopesIn(JSON.parse(meta)))) {
      const allowedApis = apis === '*' ? undefined : new Set(apis);
      this.#scopes.set(mark, { allowedApis, keys: allowedApis?.size !== 0, limits });
    }
  }

  /** Returns what the holder of this root key may ask; undefined = it is unknown or disabled. */
  of(rootKey: string): Scope | undefined {
    return this.#scopes.get(rootKeyMark(hashSecret(rootKey)));
  }
}
