import { LRUCache } from 'lru-cache';
import { slugsOf } from '../../rules/slugs.ts';
import type { Limit } from '../records/limits-in-memory.ts';
import type { Companion } from './companion.ts';
import type { Lease } from './lease.ts';

/**
 * Number of permission lists that are cached. The keys of an API mostly use the same few.
 */
const REMEMBERED_MAX = 1000;

/** The own permissions of a key, parsed. Keys with equal permissions share one object. */
export interface OwnPermissions {
  /** The text in Redis. */
  readonly text: string;
  readonly slugs: readonly string[];
  readonly slugSet: ReadonlySet<string>;
}

/** Own permissions by their text in Redis. */
const ownPermissionsByText = new LRUCache<string, OwnPermissions>({ max: REMEMBERED_MAX });

/** Returns the own permissions of a key; undefined = none. */
export function ownPermissionsOf(text: string): OwnPermissions | undefined {
  if (text === '') return undefined;
  const present = ownPermissionsByText.get(text);
  if (present) return present;
  const slugs = Object.freeze(slugsOf(text));
  const ownPermissions = { text, slugs, slugSet: new Set(slugs) };
  ownPermissionsByText.set(text, ownPermissions);
  return ownPermissions;
}

/** The roles and own permissions of a key. Keys with equal ones share one object. */
export interface Links {
  /** The text of the roles in Redis. */
  readonly text: string;
  /** Ids of the roles. */
  readonly roles: readonly string[];
  readonly ownPermissions: OwnPermissions | undefined;
}

/** Links by the texts of roles and permissions. */
const linksByText = new LRUCache<string, Links>({ max: REMEMBERED_MAX });

/** Returns the roles of a key together with its own permissions. */
export function linksOf(text: string, ownPermissions: OwnPermissions | undefined): Links {
  const name = `${text}|${ownPermissions?.text ?? ''}`;
  const present = linksByText.get(name);
  if (present) return present;
  const links = { text, roles: Object.freeze(slugsOf(text)), ownPermissions };
  linksByText.set(name, links);
  return links;
}

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
  /** Name of the pool from which keys without credits of their own take; `''` = none. */
  readonly pool: string;
  /** Ids of the roles that all keys of the identity have. */
  readonly roles: readonly string[];
}

/** The effective permissions of a key at one moment: from the key itself, its roles and its identity. */
export interface EffectivePermissions {
  readonly slugSet: ReadonlySet<string>;
  readonly slugs: readonly string[];
  /** Names of the roles of the key and its identity, without roles that do not exist. */
  readonly roles: readonly string[];
  /** Rate limits of the roles; undefined = none. */
  readonly limits: readonly Limit[] | undefined;
  /** undefined = the key has no identity. */
  readonly identity: Identity | undefined;
  /** That of the shared log, which has what the identity's keys share. */
  readonly companion: Companion;
}

/** A key joined with its roles and its identity, all from one prefix of the shared log. */
export interface Join {
  /** False once any of the joined states has changed. */
  readonly isCurrent: boolean;
  /** From then on every verifier obeys the latest changes of the joined states, by the monotonic clock. */
  readonly obeyedAtMs: number;
  /** The lease of the shared log. A verdict needs this lease as well as the key's. */
  readonly lease: Lease;
  /** undefined = the key has neither roles nor an identity, so its own record is enough. */
  readonly effectivePermissions: EffectivePermissions | undefined;
}
