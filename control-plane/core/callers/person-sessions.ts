import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { type Clock, pause } from '#shared/process/clock.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { refreshLock, sessionRecord } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { hashSecret } from '#shared/rules/key-format.ts';
import type { Person } from '../schema/person.ts';
import {
  type Attributes,
  type PersonRule,
  type ProviderTokens,
  permissionsOf,
  personIdOf,
  type SignIn,
} from './person.ts';
import { type Caller, isUnauthorized } from './root-keys.ts';
import { Permissions } from './root-permissions.ts';

/** The provider is asked about a person again after this time, if it gave a refresh token. */
export const REFRESH_MS = 5 * 60_000;
/** A provider that does not answer is asked again after this time. */
const RETRY_MS = 60_000;
/** A session ends if the provider has not answered for this time. */
export const UNANSWERED_MS_MAX = 60 * 60_000;
/** Longer than the provider's answers may take. */
const LOCK_MS = 25_000;
const LOOK_MS = 100;

/** The part of a session's record that concerns a person. */
interface PersonRecord {
  readonly person: Person;
  readonly attributes: Attributes;
  /** The time at which the provider described the person, Unix milliseconds. */
  readonly answeredAt: number;
  /** The time at which to ask again; absent = there is no refresh token. */
  readonly dueAt?: number;
  /** The provider's tokens, encrypted with the session's token, which Redis does not have. */
  readonly sealedTokens: string;
}

/** A session of a person: its record, and the beginning of its value in Redis. */
interface PersonSession {
  readonly beginning: string;
  readonly record: PersonRecord;
}

interface PersonSessionsOptions {
  readonly nodes: RedisNodes;
  readonly clock: Clock;
  readonly issuer: string;
  readonly rules: readonly PersonRule[];
  /**
   * Asks the provider about a person again. Rejects with UNAUTHORIZED if it refuses, otherwise with another
   * error.
   */
  readonly refresh: (tokens: ProviderTokens, person: Person) => Promise<SignIn>;
  /** Time after which a session ends that has no call. */
  readonly idleMs: number;
}

/**
 * The part of sessions that concerns persons. Permissions are derived for each call from the claims in the
 * session, so that a change of the rules applies at once.
 */
export class PersonSessions {
  readonly #options: PersonSessionsOptions;

  constructor(options: PersonSessionsOptions) {
    this.#options = options;
  }

  /** Returns the text that the record of a new session contains. Throws INSUFFICIENT_PERMISSIONS. */
  textOf(token: string, signIn: SignIn): string {
    if (permissionsOf(this.#options.rules, signIn.attributes).length === 0)
      throw new ApiError('INSUFFICIENT_PERMISSIONS', 'OIDC_PERMISSIONS gives this person no permission');
    return JSON.stringify(this.#recordOf(token, signIn));
  }

  /**
   * Returns the caller of a session. If the claims are due, asks the provider first. Rejects with
   * UNAUTHORIZED if the session is over.
   */
  async callerOf(token: string, value: string): Promise<Caller> {
    const { record } = await this.#upToDate(token, parseSession(value));
    const { person } = record;
    const permissions = this.#permissionsOf(record);
    if (permissions.length === 0) throw sessionOver();
    return { id: person.personId, person, permissions: new Permissions(permissions), ancestors: [] };
  }

  /** Returns the permissions of the person in a session's value, as the rules now are. */
  permissionsIn(value: string): readonly string[] {
    return this.#permissionsOf(parseSession(value).record);
  }

  /** Returns none if another provider described the person. */
  #permissionsOf({ person, attributes }: PersonRecord): readonly string[] {
    const { issuer, rules } = this.#options;
    return personIdOf(issuer, person.subject) === person.personId ? permissionsOf(rules, attributes) : [];
  }

  async #upToDate(token: string, session: PersonSession): Promise<PersonSession> {
    const { nodes, clock, idleMs } = this.#options;
    if (!this.#isDue(session)) return session;
    const record = sessionRecord(hashSecret(token));
    const lock = refreshLock(hashSecret(token));
    // A provider may take a refresh token that is used twice for a stolen one.
    const locked = await nodes.run(lock, (redis) => redis.set(lock, '1', 'PX', LOCK_MS, 'NX'));
    if (locked === null) {
      await pause(clock, LOOK_MS);
      return this.#upToDate(token, await this.#read(record));
    }
    try {
      const current = await this.#read(record);
      if (!this.#isDue(current)) return current;
      const next = { ...current, record: await this.#refreshed(token, current.record) };
      const value = `${next.beginning}${JSON.stringify(next.record)}`;
      // XX: a session that was ended meanwhile stays ended.
      const reply = await nodes.run(record, (redis) => redis.set(record, value, 'PX', idleMs, 'XX'));
      if (reply === null) throw sessionOver();
      return next;
    } finally {
      await nodes.run(lock, (redis) => redis.del(lock));
    }
  }

  #isDue({ record: { dueAt } }: PersonSession): boolean {
    return dueAt !== undefined && this.#options.clock.wallMs() >= dueAt;
  }

  async #refreshed(token: string, record: PersonRecord): Promise<PersonRecord> {
    const { refresh, clock } = this.#options;
    try {
      return this.#recordOf(token, await refresh(unseal(token, record.sealedTokens), record.person));
    } catch (error) {
      const nowMs = clock.wallMs();
      if (isUnauthorized(error) || nowMs - record.answeredAt >= UNANSWERED_MS_MAX) throw sessionOver();
      return { ...record, dueAt: nowMs + RETRY_MS };
    }
  }

  async #read(record: string): Promise<PersonSession> {
    const value = await this.#options.nodes.run(record, (redis) => redis.get(record));
    if (value === null) throw sessionOver();
    return parseSession(value);
  }

  #recordOf(token: string, { person, attributes, tokens }: SignIn): PersonRecord {
    const answeredAt = this.#options.clock.wallMs();
    const due = tokens.refreshToken === undefined ? {} : { dueAt: answeredAt + REFRESH_MS };
    return { person, attributes, answeredAt, ...due, sealedTokens: seal(token, tokens) };
  }
}

/** Returns the session in a value of Redis: `<createdAt> <sessionId> <record>`. */
function parseSession(value: string): PersonSession {
  const at = value.indexOf('{');
  return { beginning: value.slice(0, at), record: JSON.parse(value.slice(at)) as PersonRecord };
}

/** Returns the ID token in the value of a person's session. */
export const idTokenIn = (token: string, value: string): string | undefined =>
  unseal(token, parseSession(value).record.sealedTokens).idToken;

const sessionOver = () => new ApiError('UNAUTHORIZED', 'the session is over; sign in again');

const CIPHER = 'aes-256-gcm';
const IV_BYTES = 12;
const TAG_BYTES = 16;

const keyOf = (token: string) => Buffer.from(hkdfSync('sha256', token, '', 'keyfence provider tokens', 32));

function seal(token: string, tokens: ProviderTokens): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(CIPHER, keyOf(token), iv);
  const text = Buffer.concat([cipher.update(JSON.stringify(tokens)), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), text]).toString('base64url');
}

function unseal(token: string, sealed: string): ProviderTokens {
  const bytes = Buffer.from(sealed, 'base64url');
  const textAt = IV_BYTES + TAG_BYTES;
  const decipher = createDecipheriv(CIPHER, keyOf(token), bytes.subarray(0, IV_BYTES));
  decipher.setAuthTag(bytes.subarray(IV_BYTES, textAt));
  return JSON.parse(Buffer.concat([decipher.update(bytes.subarray(textAt)), decipher.final()]).toString());
}
