import { LRUCache } from 'lru-cache';
import { IDENTITY } from '#shared/contract/key-format.ts';
import type { KeyState } from '#shared/contract/key-record.ts';
import { slugsOf } from '#shared/contract/slugs.ts';
import type { EffectivePermissions, Identity, Join } from './effective-permissions.ts';
import { Entry, type Epoch, type Memory, poolsOf } from './key-cache.ts';
import type { Lease } from './lease.ts';
import { limitsOf } from './limits.ts';
import { Overrides } from './overrides.ts';
import type { Links } from './permissions.ts';
import { Scopes } from './scopes.ts';

/** A join of some states. A hit reads nothing else. */
export class JoinOf implements Join {
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

  get isCurrent(): boolean {
    if (!this.epoch.current) return false;
    for (const state of this.states) if (state.isVoid) return false;
    return true;
  }
}

function identityOf({ keyId: id, enabled, details, limits }: Entry): Identity {
  const { name: externalId = '', meta = '{}' } = details ?? {};
  // A flat string: V8 would join a concatenation at every use.
  const json = Buffer.from(
    `{"id":"${id}","externalId":${JSON.stringify(externalId)},"meta":${meta}}`,
  ).toString();
  return { enabled, id, externalId, meta, json, limits };
}

/**
 * The state of a record in the shared log, at the follower's position: a record, or none. It is void after a
 * change, or once no change would reach it.
 */
export class State {
  readonly epoch: Epoch;
  /** undefined = no record with this id. */
  readonly record: Entry | undefined;
  isVoid = false;
  #identity: Identity | undefined;
  #overrides: Overrides | undefined;
  #scopes: Scopes | undefined;
  #apiIds: ReadonlySet<string> | undefined;
  #bare: JoinOf | undefined;
  #joins: WeakMap<Links, JoinOf> | undefined;

  constructor(epoch: Epoch, record?: Entry) {
    this.epoch = epoch;
    this.record = record;
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
export class Records implements Memory {
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

  update(_secretHash: string, id: string, epoch: Epoch, state: KeyState): string[] {
    const before = this.#end(id);
    if (before?.epoch === epoch) this.#states.set(id, new State(epoch, new Entry(epoch, id, state)));
    return [...(before?.record?.pools ?? []), ...poolsOf(id, '', limitsOf(state))];
  }

  forget(_secretHash: string, id: string): string[] {
    return this.#end(id)?.record?.pools ?? [];
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
