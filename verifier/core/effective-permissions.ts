import type { Limit } from './allowances/limits.ts';
import type { Pools } from './allowances/pools.ts';
import type { Lease } from './following/lease.ts';

/** Identity of a key's owner. */
export interface Identity {
  /** False: no key of the owner is accepted. */
  readonly enabled: boolean;
  readonly id: string;
  readonly externalId: string;
  /** A JSON object. */
  readonly meta: string;
  /** A JSON object of the three above. */
  readonly json: string;
  /** Rate limits that all keys of the owner share; undefined = none. */
  readonly limits: readonly Limit[] | undefined;
}

/** All that a key may do, by itself, by its roles and by its owner's identity, at one moment. */
export interface EffectivePermissions {
  readonly slugSet: ReadonlySet<string>;
  readonly slugs: readonly string[];
  /** Names of its roles, those that there are. */
  readonly roles: readonly string[];
  /** undefined = its owner has none. */
  readonly identity: Identity | undefined;
  /** Counts of what the limits of identities allow. */
  readonly pools: Pools;
}

/** A key joined with its roles and the identity of its owner, all of one prefix of the shared log. */
export interface Join {
  /** False once a state that it was made of is another. */
  readonly isCurrent: boolean;
  /** The right to go by it, besides that to go by the key. */
  readonly lease: Lease;
  /** undefined = the key has no roles and its owner no identity, so that its own record says all. */
  readonly effectivePermissions: EffectivePermissions | undefined;
}
