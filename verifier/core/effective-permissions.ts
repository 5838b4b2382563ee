import type { Lease } from './lease.ts';
import type { Limit } from './limits.ts';
import type { Pools } from './pools.ts';

/** The identity of a key. */
export interface Identity {
  /** False = every key of the identity is refused. */
  readonly enabled: boolean;
  readonly id: string;
  readonly externalId: string;
  /** A JSON object. */
  readonly meta: string;
  /** A JSON object with `id`, `externalId` and `meta`. */
  readonly json: string;
  /** Rate limits that all keys of the identity share; undefined = none. */
  readonly limits: readonly Limit[] | undefined;
}

/** The effective permissions of a key at one moment: from the key itself, its roles and its identity. */
export interface EffectivePermissions {
  readonly slugSet: ReadonlySet<string>;
  readonly slugs: readonly string[];
  /** Names of the key's roles, without roles that do not exist. */
  readonly roles: readonly string[];
  /** undefined = the key has no identity. */
  readonly identity: Identity | undefined;
  /** The pools of the identity's rate limits. */
  readonly pools: Pools;
}

/** A key joined with its roles and its identity, all from one prefix of the shared log. */
export interface Join {
  /** False once any of the joined states has changed. */
  readonly isCurrent: boolean;
  /** The lease of the shared log. A verdict needs this lease as well as the key's. */
  readonly lease: Lease;
  /** undefined = the key has neither roles nor an identity, so its own record is enough. */
  readonly effectivePermissions: EffectivePermissions | undefined;
}
