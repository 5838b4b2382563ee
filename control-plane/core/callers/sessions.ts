import { randomBytes } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { sessionList, sessionOrder, sessionRecord, sessionsOf } from '#shared/redis/redis-keys.ts';
import { generateId, hashSecret } from '#shared/rules/key-format.ts';
import type { Person } from '../schema/person.ts';
import type { SignIn } from './person.ts';
import { idTokenIn, type PersonSessions } from './person-sessions.ts';
import { type Caller, isUnauthorized, nameOf, type RootKeys } from './root-keys.ts';

/** A session ends after this time without a call. */
export const SESSION_IDLE_MS = 30 * 60_000;
/** A session ends after this time, whatever its calls. */
export const SESSION_MS_MAX = 12 * 3_600_000;

const TOKEN_BYTES = 32;
/** The form of a token. A text of another form costs no look-up. */
const TOKEN = /^[\w-]{43}$/;

/** The root key or the person that began a session. */
interface Beginner {
  readonly rootKeyId?: string;
  readonly person?: Person;
}

/** A session as its browser needs it. */
export interface BrowserSession extends Beginner {
  readonly sessionId: string;
  /** Each call with the session's cookie must have this in a header, which no other site can read or set. */
  readonly csrfToken: string;
  /** The permissions of the root key or the person, so that the browser shows only what is permitted. */
  readonly permissions: readonly string[];
}

/** A session as admins see it. */
export interface ListedSession extends Beginner {
  readonly sessionId: string;
  /** Address of the browser that began it. */
  readonly address: string;
  readonly createdAt: number;
}

/** Maximum number of sessions of one root key or person. */
export const SESSIONS_MAX = 100;
/** Of the oldest sessions, so many are removed at the beginning of one if they are over: more than begin. */
const SWEPT = 2;

/**
 * Sessions of browsers. Redis has only the hash of a session's token. With it are either the hash of the root
 * key that began the session, which ends with that root key at once, or the person who signed in.
 */
export class Sessions {
  readonly #nodes: RedisNodes;
  readonly #rootKeys: RootKeys;
  readonly #clock: Clock;
  readonly #persons: PersonSessions | undefined;

  /** @param persons undefined = only root keys begin sessions */
  constructor(nodes: RedisNodes, rootKeys: RootKeys, clock: Clock, persons?: PersonSessions) {
    this.#nodes = nodes;
    this.#rootKeys = rootKeys;
    this.#clock = clock;
    this.#persons = persons;
  }

  /**
   * Begins a session. Rejects with UNAUTHORIZED if the root key is not accepted. The oldest session ends if the root
   * key has SESSIONS_MAX others.
   * @param address address of the browser
   * @param count counts the call of the root key; rejects if there are too many
   */
  async begin(
    rootKey: string,
    address: string,
    count: (callerId: string) => Promise<void>,
  ): Promise<{ token: string; session: BrowserSession }> {
    const { caller, secretHash } = await this.#rootKeys.callerWith(rootKey);
    await count(caller.id);
    const token = newToken();
    const sessionId = await this.#open(token, secretHash, { ...nameOf(caller), address });
    return { token, session: sessionOf(token, sessionId, caller) };
  }

  /**
   * Begins the session of a person; resolves with its token. Rejects with INSUFFICIENT_PERMISSIONS if the
   * person has none.
   */
  async beginFor(signIn: SignIn, address: string): Promise<string> {
    if (!this.#persons) throw new Error('no identity provider is configured');
    const token = newToken();
    await this.#open(token, this.#persons.textOf(token, signIn), { person: signIn.person, address });
    return token;
  }

  /** Resolves with the id of the session. */
  async #open(token: string, beginner: string, about: Omit<ListedSession, 'sessionId' | 'createdAt'>) {
    const tokenHash = hashSecret(token);
    const record = sessionRecord(tokenHash);
    const createdAt = this.#clock.wallMs();
    const sessionId = generateId('session', createdAt);
    const value = `${createdAt} ${sessionId} ${beginner}`;
    await this.#nodes.run(record, (redis) => redis.set(record, value, 'PX', SESSION_IDLE_MS));
    const entry = JSON.stringify({ ...about, createdAt, tokenHash });
    const own = ownList(about);
    const [, , , , ownIds, oldestIds] = await this.#nodes.run(sessionList, (redis) =>
      Promise.all([
        redis.hset(sessionList, sessionId, entry),
        redis.zadd(sessionOrder, 0, sessionId),
        redis.zadd(own, createdAt, sessionId),
        redis.pexpire(own, SESSION_MS_MAX),
        redis.zrange(own, '0', '-1'),
        redis.zrange(sessionOrder, '0', String(SWEPT - 1)),
      ]),
    );
    await this.#openAmong(oldestIds);
    if (ownIds.length <= SESSIONS_MAX) return sessionId;
    const open = await this.#openAmong(ownIds);
    for (const each of open.slice(0, -SESSIONS_MAX)) await this.endById(each.sessionId);
    return sessionId;
  }

  /** Returns the caller and the session of a token; undefined = the session is over, or there never was one. */
  async find(token: string): Promise<{ caller: Caller; session: BrowserSession } | undefined> {
    if (!TOKEN.test(token)) return undefined;
    const record = sessionRecord(hashSecret(token));
    const [value] = await this.#nodes.run(record, (redis) =>
      Promise.all([redis.get(record), redis.pexpire(record, SESSION_IDLE_MS)]),
    );
    if (value === null) return undefined;
    const [createdAt, sessionId = ''] = value.split(' ');
    const isYoung = this.#clock.wallMs() - Number(createdAt) < SESSION_MS_MAX;
    const caller = isYoung ? await this.#callerOf(token, value).catch(noneIfRefused) : undefined;
    if (caller !== undefined) return { caller, session: sessionOf(token, sessionId, caller) };
    await this.end(token);
    return undefined;
  }

  async #callerOf(token: string, value: string): Promise<Caller | undefined> {
    if (isPerson(value)) return this.#persons?.callerOf(token, value);
    const [, , secretHash = ''] = value.split(' ');
    return this.#rootKeys.callerOf(secretHash);
  }

  /**
   * Up to `limit` sessions that are not over, in order of their beginning.
   * @param after id of the session after which the page begins
   */
  async list(limit: number, after?: string): Promise<{ sessions: ListedSession[]; next?: string }> {
    const from = after === undefined ? '-' : `(${after}`;
    const ids = await this.#nodes.run(sessionOrder, (redis) =>
      redis.zrangebylex(sessionOrder, from, '+', 'LIMIT', 0, limit + 1),
    );
    const sessions = await this.#openAmong(ids.slice(0, limit));
    const last = ids.length > limit ? ids[limit - 1] : undefined;
    return { sessions, ...(last === undefined ? {} : { next: last }) };
  }

  /** Those of some sessions that are not over; removes the others from the lists. */
  async #openAmong(sessionIds: readonly string[]): Promise<ListedSession[]> {
    const sessions = await Promise.all(
      sessionIds.map(async (sessionId) => {
        const entry = await this.#entry(sessionId);
        if (!entry) return void (await this.#forget(sessionId));
        const { tokenHash, ...about } = entry;
        const record = sessionRecord(tokenHash);
        const isOpen = await this.#nodes.run(record, (redis) => redis.exists(record));
        if (isOpen === 0) await this.#forget(sessionId, ownList(about));
        return isOpen === 0 ? undefined : { sessionId, ...about };
      }),
    );
    return sessions.filter((session) => session !== undefined);
  }

  async #forget(sessionId: string, own?: string): Promise<void> {
    await this.#nodes.run(sessionList, (redis) =>
      Promise.all([
        redis.hdel(sessionList, sessionId),
        redis.zrem(sessionOrder, sessionId),
        ...(own === undefined ? [] : [redis.zrem(own, sessionId)]),
      ]),
    );
  }

  /** Returns who began a session, with their permissions now; undefined = there is no such session. */
  async beginnerOf(sessionId: string): Promise<(Beginner & { permissions: readonly string[] }) | undefined> {
    const entry = await this.#entry(sessionId);
    if (!entry) return undefined;
    const { rootKeyId, person, tokenHash } = entry;
    if (person === undefined) {
      const rootKey = await this.#rootKeys.get(rootKeyId ?? '');
      // A root key of the configuration has all permissions.
      return {
        ...(rootKeyId === undefined ? {} : { rootKeyId }),
        permissions: rootKey?.permissions ?? ['*'],
      };
    }
    const record = sessionRecord(tokenHash);
    const value = await this.#nodes.run(record, (redis) => redis.get(record));
    return { person, permissions: value === null ? [] : (this.#persons?.permissionsIn(value) ?? []) };
  }

  /** Ends a session by its id. */
  async endById(sessionId: string): Promise<void> {
    const entry = await this.#entry(sessionId);
    if (!entry) return;
    const record = sessionRecord(entry.tokenHash);
    await this.#nodes.run(record, (redis) => redis.del(record));
    await this.#forget(sessionId, ownList(entry));
  }

  async #entry(sessionId: string): Promise<SessionEntry | undefined> {
    const text = await this.#nodes.run(sessionList, (redis) => redis.hget(sessionList, sessionId));
    return text === null ? undefined : (JSON.parse(text) as SessionEntry);
  }

  /** Ends a session by its token; resolves with the ID token of its person, if it has one. */
  async end(token: string): Promise<string | undefined> {
    if (!TOKEN.test(token)) return undefined;
    const record = sessionRecord(hashSecret(token));
    const value = await this.#nodes.run(record, (redis) => redis.getdel(record));
    return value !== null && isPerson(value) ? idTokenIn(token, value) : undefined;
  }
}

/** A session in the list of all. */
interface SessionEntry extends Omit<ListedSession, 'sessionId'> {
  readonly tokenHash: string;
}

/** Returns undefined for a root key that is not accepted. Any other failure is an outage. */
function noneIfRefused(error: unknown): undefined {
  if (!isUnauthorized(error)) throw error;
}

/** The list of the sessions of whoever began one. */
const ownList = ({ rootKeyId, person }: Beginner) => sessionsOf(person?.personId ?? rootKeyId ?? '');

const newToken = () => randomBytes(TOKEN_BYTES).toString('base64url');

/** Tells whether a session's value in Redis has a person in place of the hash of a root key. */
const isPerson = (value: string) => value.includes('{');

const sessionOf = (token: string, sessionId: string, caller: Caller): BrowserSession => ({
  sessionId,
  ...nameOf(caller),
  permissions: caller.permissions.granted,
  csrfToken: hashSecret(`csrf ${token}`),
});
