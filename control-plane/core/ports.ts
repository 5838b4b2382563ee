import type { ConcurrencyLimit, RateLimit } from '#shared/protocol/records/limit.ts';
import type { CreditsView, Key } from './records/key-view.ts';
import type { EventType } from './schema/event-types.ts';
import type { GivenRole } from './schema/slugs.ts';

/** The ports of the core: all that calls about keys and APIs ask of other subjects, which implement them. */

/** Names of roles, to which records of keys refer by ids. */
export interface RoleNames {
  /** The role with its permissions; undefined = there is none. */
  get(roleId: string): Promise<{ readonly permissions: readonly { readonly id: string }[] } | undefined>;
  /** Ids of the roles that a call names, in their order. Rejects with NOT_FOUND if one of them does not exist. */
  idsOf(references: readonly GivenRole[]): Promise<string[]>;
  /** The id of a role that is given by its name or its id. Rejects with NOT_FOUND. */
  oneOf(reference: string): Promise<string>;
  /** The change to a key's roles that a call requests; `{}` if the call does not mention roles. Rejects like `idsOf`. */
  patchOf(
    references: readonly GivenRole[] | null | undefined,
  ): Promise<{ readonly roles?: readonly string[] | null }>;
  /** The keys with the names of their roles instead of the ids, sorted; deleted roles are left out. */
  withRoleNames<Shown extends Pick<Key, 'roles'>>(keys: readonly Shown[]): Promise<Shown[]>;
  /** Those ids that belong to an existing role. */
  existing(ids: readonly string[]): Promise<string[]>;
  /** Names of the roles of these ids, in their order; undefined for a role that does not exist. */
  namesOf(ids: readonly string[]): Promise<(string | undefined)[]>;
}

/** The identity of keys, as far as its keys share what it has. */
export interface KeyIdentity {
  readonly id: string;
  readonly externalId: string;
  readonly enabled: boolean;
  /** Limits that all keys of the identity share. */
  readonly ratelimits: readonly RateLimit[];
  readonly concurrency: readonly ConcurrencyLimit[];
  /** Shared by its keys without credits of their own; absent = unlimited. */
  readonly credits?: CreditsView;
  /** Its roles, which count for all its keys: their names in answers, otherwise their ids. */
  readonly roles: readonly string[];
  /** The APIs in which the identity applies; absent = all. */
  readonly apiIds?: readonly string[];
}

/** A key as responses show it, with its identity. */
export type WithIdentity<Shown> = Shown & {
  readonly identity?: Pick<KeyIdentity, 'id' | 'externalId' | 'enabled' | 'credits'>;
};

/** Finds the identities of keys. */
export interface IdentitiesOfKeys {
  get(identityId: string): Promise<KeyIdentity | undefined>;
  /** The keys, each with its identity if one exists that applies in the key's API. */
  withIdentities<Shown extends Key>(keys: readonly Shown[]): Promise<WithIdentity<Shown>[]>;
}

/** When verifiers last reported that a key was accepted, and that it was refused, in Unix milliseconds; absent = unknown. */
export interface LastUses {
  readonly lastUsedAt?: number;
  readonly lastRefusedAt?: number;
}

/** Knows when keys were last used. */
export interface UsesOfKeys {
  /** The keys of an API, each with the times of its last uses. */
  withLastUses<Shown extends { readonly keyId: string }>(
    apiId: string,
    keys: readonly Shown[],
  ): Promise<(Shown & LastUses)[]>;
}

/** Ends decrements that took more credits than Redis had. */
export interface Debts {
  /**
   * Waits until every connected verifier has given back what it held. The change must be complete. If a verifier does not
   * answer in time, the debt remains until the next change.
   * @returns credits left; undefined if the key no longer has counted credits
   */
  end(apiId: string, keyId: string): Promise<number | undefined>;
}

/** Something that happened without a call of its own in the audit log. */
export interface Notice {
  readonly type: EventType;
  /** Unix milliseconds. */
  readonly time: number;
  readonly data: Readonly<Record<string, unknown>>;
  /** Several keys to which it happened, each of which gets an event with its `keyId`. */
  readonly keyIds?: readonly string[];
}

/** Hears of such events, and tells others. */
export interface NoticeSink {
  /**
   * Adds notices.
   * @param mark a name for each notice, by which it is added only once a week; undefined = always
   * @returns the number of notices from the first on that need not be sent again
   */
  add(notices: readonly (Notice & { readonly mark?: string })[]): Promise<number>;
}

/**
 * Replaces chance in a call with an Idempotency-Key, so that a repetition after an interruption creates the same thing,
 * and not another.
 */
export interface Draw {
  /** The name of the call, where Redis remembers changes by their names. */
  readonly name: string;
  /** When the first call began. */
  readonly nowMs: number;
  /** Returns the same bytes for the same length. */
  readonly random: (length: number) => Buffer;
}
