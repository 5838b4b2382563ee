import { LRUCache } from 'lru-cache';
import { slugsOf } from '#shared/contract/slugs.ts';
import { type ParsedQuery, parseQuery, type Query } from '#shared/permissions/permission-query.ts';

/**
 * Number of queries and permission lists that are cached. The questions of an API and the keys of an API
 * mostly use the same few.
 */
const REMEMBERED_MAX = 1000;

const queriesByText = new LRUCache<string, { readonly query: Query }>({ max: REMEMBERED_MAX });

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

/** Parses a query like `parseQuery`, and remembers texts. */
export function readQuery(value: unknown): ParsedQuery {
  if (typeof value !== 'string') return parseQuery(value);
  const cached = queriesByText.get(value);
  if (cached) return cached;
  const parsed = parseQuery(value);
  if ('query' in parsed) queriesByText.set(value, parsed);
  return parsed;
}
