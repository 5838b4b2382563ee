import { hash as digest } from 'node:crypto';
import type {
  Closing,
  CreditsChange,
  KilledFollower,
  LogEntry,
  LogStatus,
  Successor,
  TooOld,
  Write,
  WriteRefusal,
} from '../../control-plane/writer/change-log-port.ts';
import type { Head, LeaseStep } from '../../control-plane/writer/sweep.ts';
import type { Change } from '../../shared/contract/change.ts';
import { hashSecret, IDENTITY } from '../../shared/contract/key-format.ts';
import { KEY_LETTERS } from '../../shared/contract/key-record.ts';
import { parsePointer, secretPointer } from '../../shared/redis/redis-keys.ts';
import type {
  PoolReply,
  PoolTurn,
  RegisterReply,
  SyncReply,
  SyncRequest,
} from '../../verifier/core/redis-port.ts';
import { PoolState, type Refill, refusal } from './pools.ts';
import { WindowState } from './windows.ts';

/** Limits that constants of the modules set for the real Redis. */
export interface RedisLimits {
  readonly logEntries: number;
  readonly creationsKept: number;
  readonly payloadBytesMax: number;
  readonly batchEntriesMax: number;
  readonly batchBytesMax: number;
  /** Time between two daily refills, where days are shorter than real ones. */
  readonly dayMs?: number;
}

/** A named change of credits that was made. */
interface Operation {
  /** What it was. */
  readonly asked: string;
  readonly sequence: number;
  readonly hash: string;
  readonly left: { remaining: number; isOwed: boolean } | undefined;
}

/** The name of a change of a key's credits among those of the API; undefined = it has none. */
export const operationOf = ({ keyId, credits }: Write): string | undefined =>
  credits?.operation === undefined ? undefined : `${keyId} ${credits.operation}`;

/** One API in Redis. */
export class ApiState {
  created = false;
  deleted = false;
  sequence = 0;
  /** Protocol that followers must speak. */
  needs = 1;
  hash = '';
  grantedMs = 0;
  fencedMs = 0;
  token = '';
  replicatedSequence = 0;
  /** Oldest first. */
  log: Change[] = [];
  /** Of the last creation, as `g`; empty while keys are created without marks. */
  mark = '';
  /** Keys created so far. */
  keysCreated = 0;
  /** Oldest first. */
  creations: { readonly number: number; readonly hash: string }[] = [];
  readonly members = new Map<string, number>();
  /** Fields by the names that the real record has; `m` also where it is kept apart. */
  readonly records = new Map<string, Readonly<Record<string, string>>>();
  readonly pools = new Map<string, PoolState>();
  readonly windows = new Map<string, WindowState>();
  /** Named changes of credits by key and name, and what was answered; the real ones end with an hour, or after 32 others. */
  readonly operations = new Map<string, Operation>();
  readonly held = new Set<string>();

  clone(): ApiState {
    const { members, records, log, creations, pools, windows, operations, held, ...rest } = this;
    const copy = Object.assign(new ApiState(), rest, { log: [...log], creations: [...creations] });
    for (const [name, score] of members) copy.members.set(name, score);
    for (const [keyId, record] of records) copy.records.set(keyId, record);
    for (const [id, pool] of pools) copy.pools.set(id, pool.clone());
    for (const [id, window] of windows) copy.windows.set(id, window.clone());
    for (const [name, operation] of operations) copy.operations.set(name, operation);
    for (const name of held) copy.held.add(name);
    return copy;
  }

  window(id: string): WindowState {
    const present = this.windows.get(id);
    if (present) return present;
    const fresh = new WindowState();
    this.windows.set(id, fresh);
    return fresh;
  }

  /** All creations that there are. */
  get lastMark(): string {
    return this.mark || '0-';
  }

  at(sequence: number): Change | undefined {
    return this.log[sequence - (this.log[0]?.sequence ?? 1)];
  }
}

/** Outcome of a script: its reply, whether it wrote (then replicas repeat it), and its messages. */
export interface Outcome<T> {
  readonly reply: T;
  readonly wrote: boolean;
  readonly messages?: readonly string[];
  /** Pools whose holders are asked to give back. */
  readonly recalls?: readonly string[];
}

/** A script: what it does to the data of the server that runs it. */
export type Script<T> = (state: RedisState) => Outcome<T>;

/** Longest time after which a reroll that is sent again replaces its key. */
const REPEATED_MS_MAX = 3_600_000;
const read = <T>(reply: T): Outcome<T> => ({ reply, wrote: false });

/** Reply of write-change.lua. */
export type WriteReply = Omit<LogEntry, 'replicated'> | WriteRefusal;

/** The data of one Redis server, and the scripts of both processes as functions on it. Knows nothing of time. */
export class RedisState {
  readonly limits: RedisLimits;
  /** Id of the server, until it restarts or becomes the primary. */
  server = '';
  readonly apis = new Map<string, ApiState>();
  readonly pointers = new Map<string, string>();

  constructor(limits: RedisLimits) {
    this.limits = limits;
  }

  clone(): RedisState {
    const copy = new RedisState(this.limits);
    copy.server = this.server;
    for (const [apiId, api] of this.apis) copy.apis.set(apiId, api.clone());
    for (const [name, value] of this.pointers) copy.pointers.set(name, value);
    return copy;
  }

  api(apiId: string): ApiState {
    let api = this.apis.get(apiId);
    if (!api) {
      api = new ApiState();
      this.apis.set(apiId, api);
    }
    return api;
  }

  /** find-keys.lua, for one of them */
  find(name: string): Outcome<[name: string, value: string | undefined]> {
    return read([name, this.pointers.get(name)]);
  }

  /** register.lua; nothing for a follower that is too old */
  register(apiId: string, member: string, nonce: string): Outcome<RegisterReply | undefined> {
    const api = this.api(apiId);
    if (protocolOf(member) < api.needs) return read(undefined);
    api.members.set(member, api.sequence);
    const { sequence, hash, grantedMs: leaseMs, deleted: apiDeleted, lastMark: creations } = api;
    const identities = [...api.records.keys()].filter((keyId) => keyId.startsWith(IDENTITY)).length;
    return { reply: { nonce, sequence, hash, leaseMs, apiDeleted, creations, identities }, wrote: true };
  }

  /** ZREM */
  leave(apiId: string, member: string): Outcome<void> {
    return { reply: undefined, wrote: this.api(apiId).members.delete(member) };
  }

  /** sync.lua */
  sync(apiId: string, request: SyncRequest): Outcome<SyncReply> {
    const { member, position, hash, nonce, secretHash } = request;
    const api = this.api(apiId);
    const score = api.members.get(member);
    const nothing = {
      ...{ nonce, sequence: 0, hash: '', leaseMs: 0, apiDeleted: false, creations: '' },
      ...{ entries: [], record: [] },
    };
    const value = secretHash === undefined ? undefined : this.pointers.get(secretPointer(secretHash));
    const pointed = value === undefined ? {} : { pointer: parsePointer(value) };
    if (secretHash !== undefined && pointed.pointer?.apiId !== apiId)
      return read({ ...nothing, status: 'ELSEWHERE', ...pointed });
    const keyId = request.keyId ?? pointed.pointer?.keyId;
    if (score === undefined || score < 0 || score > api.sequence || protocolOf(member) < api.needs)
      return read({ ...nothing, status: 'NOREG' });
    const creations = compareCreations(api, request.creations);
    if (creations !== 'OK') return read({ ...nothing, status: creations });
    const entries: Change[] = [];
    if (position !== api.sequence || hash !== api.hash) {
      if (position >= api.sequence) return read({ ...nothing, status: 'DIVERGED' });
      if (position === 0) {
        if (api.log[0]?.sequence !== 1) return read({ ...nothing, status: 'TRIMMED' });
      } else {
        const last = api.at(position);
        if (!last) return read({ ...nothing, status: 'TRIMMED' });
        if (last.hash !== hash) return read({ ...nothing, status: 'DIVERGED' });
      }
      let bytes = 0;
      for (let next = api.at(position + 1); next; next = api.at(next.sequence + 1)) {
        bytes += Buffer.byteLength(next.payload) + 128;
        if (entries.length === this.limits.batchEntriesMax) break;
        if (bytes > this.limits.batchBytesMax && entries.length > 0) break;
        entries.push(next);
      }
    }
    const acknowledged = Math.max(Math.floor(score), position);
    const noted = acknowledged < api.sequence ? acknowledged + 0.5 : acknowledged;
    const news = noted !== score;
    if (news) api.members.set(member, noted);
    const found = (keyId && api.records.get(keyId)) || {};
    const { p, i = '0', q } = found;
    const record =
      p === undefined ? [] : [named(p, q), i, ...KEY_LETTERS.map((letter) => found[letter] ?? '')];
    const { sequence, grantedMs: leaseMs, deleted: apiDeleted, lastMark } = api;
    const reply: SyncReply = {
      ...{ nonce, status: 'OK', sequence, hash: api.hash, leaseMs, apiDeleted, creations: lastMark },
      ...{ entries, record, ...pointed },
    };
    return { reply, wrote: news };
  }

  /**
   * write-change.lua, or reroll-key.lua; `nowMs` becomes `updatedAt`, and `poolId` names what the control plane does to credits
   * @param atMs the clock of Redis
   */
  write(write: Write, nowMs: number, poolId = '', atMs = nowMs): Outcome<WriteReply> {
    const messages: string[] = [];
    const { successor } = write;
    const reply = successor
      ? this.#reroll(write, successor, nowMs, messages)
      : this.#change(write, nowMs, poolId, messages, undefined, atMs);
    return reply.status === 'OK' ? { reply, wrote: true, messages } : read(reply);
  }

  /** change.lua; `join` = the pool of this name, which the key shares */
  #change(
    write: Write,
    nowMs: number,
    poolId: string,
    messages: string[],
    join?: string,
    atMs = nowMs,
  ): WriteReply {
    const { apiId, operation, keyId, fields, credits, condition = '' } = write;
    const api = this.api(apiId);
    if (api.deleted) return { status: 'NOT_FOUND' };
    const aboutKey = operation === 'update' || operation === 'delete';
    const record = aboutKey ? api.records.get(keyId) : undefined;
    const version = record ? (record['v'] ?? '0') : '';
    if (aboutKey) {
      if (!record) return { status: 'NOT_FOUND' };
      if (condition !== '' && condition !== version) return { status: 'CONFLICT' };
    } else {
      if (!api.created) return { status: 'NOT_FOUND' };
      if (operation === 'create' && api.records.has(keyId)) return { status: 'EXISTS' };
      if (operation !== 'create' && condition !== '' && Number(condition) !== api.sequence)
        return { status: 'CONFLICT' };
    }
    const letters = KEY_LETTERS.filter((letter) => letter in fields || operation === 'delete');
    const told = (sequence: number, hash: string, left: Operation['left']): WriteReply => ({
      ...{ status: 'OK', sequence, hash, leaseMs: api.fencedMs, previousVersion: version },
      server: this.server,
      before: Object.fromEntries(letters.map((letter) => [letter, record?.[letter] ?? ''])),
      ...(left ? { credits: left } : {}),
    });
    const name = operationOf(write);
    const what = credits && `${credits.op} ${'value' in credits ? credits.value : ''}`;
    const known = name === undefined ? undefined : api.operations.get(name);
    if (known)
      return known.asked === what ? told(known.sequence, known.hash, known.left) : { status: 'REUSED' };
    const isAdding = credits?.op === 'set' || credits?.op === 'none';
    if (credits && !isAdding && !record?.['q']) return { status: 'UNLIMITED' };
    const tooOld = gate(api, write.needs ?? 1);
    if (tooOld) return tooOld;
    const shared = isAdding ? api.pools.get(record?.['q'] ?? '') : undefined;
    for (const other of shared?.keys ?? []) {
      if (other === keyId) continue;
      const alike = { apiId, operation: 'update', keyId: other, fields: {} } as const;
      this.#change(alike, nowMs, '', messages, credits?.op === 'set' ? poolId : '');
    }
    const secretHash = operation === 'create' ? hashSecret(keyId) : (record?.['p'] ?? '');
    const changed =
      join === undefined
        ? credits && this.#credits(api, record, credits, poolId, atMs)
        : { pool: join, left: undefined };
    const state = { ...record, p: secretHash, ...fields, ...(changed ? { q: changed.pool } : {}) };
    const asked = join === undefined ? { ...credits, id: poolId } : { op: 'join', id: join };
    const done = changed ? sha1(JSON.stringify(asked)) : '';
    const payload = this.#payload(operation, named(secretHash, state['q'], done), state);
    const { hash: previousHash, sequence: previous } = api;
    const sequence = previous + 1;
    const hash = sha1(`${previousHash}|${sequence}|${keyId}|${payload}`);
    api.log.push({ sequence, hash, keyId, payload });
    if (api.log.length > this.limits.logEntries) api.log.shift();
    api.sequence = sequence;
    api.hash = hash;
    if (operation === 'update' || operation === 'create') {
      const kept = Object.entries(state).filter(([, value]) => value !== '');
      const stamps = {
        [operation === 'create' ? 'c' : 'u']: String(nowMs),
        v: `${sequence}-${hash.slice(0, 8)}`,
      };
      api.records.set(keyId, { ...Object.fromEntries(kept), ...stamps });
    } else if (operation === 'delete') {
      api.records.delete(keyId);
      leave(api, record?.['q'] ?? '', keyId);
      const predecessor = api.records.get(record?.['F'] ?? '');
      if (predecessor?.['T'] === keyId) {
        const { T: _, Y: __, ...rest } = predecessor;
        api.records.set(record?.['F'] ?? '', rest);
      }
    } else if (operation === 'api-deleted') api.deleted = true;
    messages.push(`${sequence}|${previousHash}|${hash}|${keyId}|${payload}`);
    if (name !== undefined && what !== undefined)
      api.operations.set(name, { asked: what, sequence, hash, left: changed?.left });
    return told(sequence, hash, changed?.left);
  }

  /** reroll-key.lua */
  #reroll(write: Write, successor: Successor, nowMs: number, messages: string[]): WriteReply {
    const { apiId, keyId, condition = '' } = write;
    const { keyId: made, secretHash, start, bytes, latestMs, operationId } = successor;
    const api = this.api(apiId);
    const record = api.records.get(keyId);
    if (!record || api.deleted) return { status: 'NOT_FOUND' };
    const { v: version = '0', T: present, Y: madeBy, q: pool = '', x: expires } = record;
    if (condition !== '' && condition !== version) return { status: 'CONFLICT' };
    const next = present === undefined ? undefined : api.records.get(present);
    const isNew =
      next !== undefined && next['T'] === undefined && nowMs - Number(next['c']) <= REPEATED_MS_MAX;
    const isAgain = present !== undefined && operationId !== '' && operationId === madeBy && isNew;
    if (present !== undefined && !isAgain) return { status: 'REROLLED', successor: present };
    if (!isAgain && expires && Number(expires) <= nowMs) return { status: 'ENDED' };
    if (api.records.has(made)) return { status: 'CONFLICT' };
    const { p, s, b, c, i, u, v, T, Y, F, ...copied } = (isAgain && api.records.get(present)) || record;
    const content = sha256(JSON.stringify([made, secretHash])).slice(0, 32);
    const number = this.#addCreation(api, `${content} ${version}`);
    const facts = { p: secretHash, s: start, c: String(nowMs), F: keyId, i: number };
    api.records.set(made, { ...facts, ...copied, ...(bytes === undefined ? {} : { b: String(bytes) }) });
    const shared = api.pools.get(pool);
    if (shared) shared.keys = [...(shared.keys.length === 0 ? [keyId] : shared.keys), made];
    const deleted = isAgain && { keyId: present, secretHash: api.records.get(present)?.['p'] ?? '' };
    if (isAgain)
      this.#change({ apiId, operation: 'delete', keyId: present, fields: {} }, nowMs, '', messages);
    const ends = expires && Number(expires) < latestMs ? expires : String(latestMs);
    const change = { apiId, operation: 'update', keyId, fields: { x: ends } } as const;
    const written = this.#change(change, nowMs, '', messages);
    const called = operationId === '' ? {} : { Y: operationId };
    api.records.set(keyId, { ...api.records.get(keyId), T: made, ...called });
    return written.status === 'OK'
      ? { ...written, rerolled: { expires: ends, deleted: deleted || undefined } }
      : written;
  }

  /** What becomes of credits, by write-change.lua; a `set` makes a pool of this id. */
  #credits(
    api: ApiState,
    record: Readonly<Record<string, string>> | undefined,
    change: CreditsChange,
    poolId: string,
    nowMs: number,
  ): { pool: string; left?: { remaining: number; isOwed: boolean } | undefined } {
    const present = record?.['q'] ?? '';
    const pool = api.pools.get(present);
    pool?.settle(api, nowMs);
    const refill = 'refill' in change ? change.refill : undefined;
    if (pool && refill !== undefined) pool.setRefill(this.#refill(refill), nowMs);
    if (change.op === 'set' || change.op === 'none') {
      api.pools.delete(present);
      if (change.op === 'none') return { pool: '' };
      const fresh = new PoolState(change.value, nowMs);
      fresh.keys = pool?.keys ?? [];
      if (pool) Object.assign(fresh, { refill: pool.refill, dueAtMs: pool.dueAtMs });
      else if (refill !== undefined) fresh.setRefill(this.#refill(refill), nowMs);
      api.pools.set(poolId, fresh);
      return { pool: poolId, left: { remaining: change.value, isOwed: false } };
    }
    return { pool: present, left: pool?.change(change, api, nowMs) };
  }

  /** A daily refill as pools have it, `d <amount>`. */
  #refill(text: string): Refill | undefined {
    return text === ''
      ? undefined
      : { amount: Number(text.slice(2)), periodMs: this.limits.dayMs ?? 86_400_000 };
  }

  /** exchange.lua */
  exchange(apiId: string, member: string, turns: readonly PoolTurn[], nowMs: number): Outcome<PoolReply[]> {
    const api = this.api(apiId);
    if ((api.members.get(member) ?? -1) >= 0) api.held.add(member);
    const recalls: string[] = [];
    const replies = turns.map((turn) => {
      const pool = api.pools.get(turn.pool);
      if (!pool && !turn.window) return refusal(turn, 'STALE');
      const done = turn.window
        ? api.window(turn.pool).exchange(member, turn, turn.window, api, nowMs)
        : (pool as PoolState).exchange(member, turn, api, nowMs);
      if (done.recalls) recalls.push(turn.pool);
      return done.reply;
    });
    return { reply: replies, wrote: true, recalls };
  }

  /** settle-credits.lua; whether nobody holds anything that the pool lacks */
  settleCredits(apiId: string, keyId: string, nowMs: number): Outcome<boolean> {
    const api = this.api(apiId);
    const pool = api.pools.get(api.records.get(keyId)?.['q'] ?? '');
    pool?.settle(api, nowMs);
    pool?.clamp(api);
    return { reply: !pool || pool.free >= 0, wrote: true };
  }

  #payload(
    operation: Write['operation'],
    secretHash: string,
    state: Readonly<Record<string, string>>,
  ): string {
    if (operation === 'noop') return '';
    if (operation === 'api-deleted') return encode(['api-deleted']);
    if (operation === 'delete') return encode(['forget', secretHash]);
    const payload = encode(['set', secretHash, ...KEY_LETTERS.map((letter) => state[letter] ?? '')]);
    return Buffer.byteLength(payload) > this.limits.payloadBytesMax
      ? encode(['forget', secretHash, sha1(payload)])
      : payload;
  }

  /** fence-check.lua */
  check({ apiId, sequence, hash, keyId, replicated, names, later }: CheckedChange): Outcome<LogStatus> {
    const api = this.api(apiId);
    const entry = api.at(sequence);
    if (api.sequence < sequence) return read({ state: 'LOST' });
    if (entry && (hash === '' ? entry.keyId !== keyId : entry.hash !== hash)) return read({ state: 'LOST' });
    if (later?.hash && api.at(later.sequence)?.hash !== later.hash) return read({ state: 'LOST' });
    const wrote = entry !== undefined && replicated && api.replicatedSequence < sequence;
    if (wrote) api.replicatedSequence = sequence;
    const behind = laggards(api, sequence).map(([name]) => name);
    return {
      reply: {
        state: entry ? 'INTACT' : 'TRIMMED',
        followers: api.members.size,
        laggards: behind.length,
        leaseMs: api.fencedMs,
        replicatedSequence: api.replicatedSequence,
        names: behind.slice(0, names),
      },
      wrote,
    };
  }

  /**
   * fence-close.lua
   * @param isWriter whether this server wrote the change
   */
  close(apiId: string, sequence: number, hash: string, kill: number, isWriter: boolean): Outcome<Closing> {
    const api = this.api(apiId);
    const entry = api.at(sequence);
    if (api.sequence < sequence || (entry && entry.hash !== hash)) return read({ state: 'LOST' });
    const { size: followers } = api.members;
    const behind = laggards(api, sequence).filter(([, score]) => score >= 0);
    const isOver = ([, score]: [string, number]) => isWriter && score < sequence && Number.isInteger(score);
    const removed = behind.filter(isOver).map(([name]) => name);
    const killed = behind.filter((member) => !isOver(member)).map(([name]) => ({ name, kill }));
    for (const name of removed) api.members.delete(name);
    for (const { name } of killed) api.members.set(name, kill);
    return {
      reply: { state: 'INTACT', followers, leaseMs: api.fencedMs, removed, killed },
      wrote: behind.length > 0,
    };
  }

  /** reap-members.lua */
  reap(apiId: string, killed: readonly KilledFollower[]): Outcome<number> {
    const api = this.api(apiId);
    const gone = killed.filter(
      ({ name, kill }) => api.members.get(name) === kill && api.members.delete(name),
    );
    return { reply: gone.length, wrote: gone.length > 0 };
  }

  /** set-lease.lua */
  setLease(apiId: string, step: LeaseStep, leaseMs: number, token: string): Outcome<boolean> {
    const api = this.api(apiId);
    if (!api.created) return read(false);
    if (step === 'fence-first') {
      api.fencedMs = Math.max(api.fencedMs, leaseMs);
      api.token = token;
    } else if (step === 'grant') {
      if (leaseMs > api.fencedMs) return read(false);
      api.grantedMs = leaseMs;
      api.token = token;
    } else {
      if (api.token !== token || api.grantedMs !== leaseMs) return read(false);
      api.fencedMs = leaseMs;
    }
    return { reply: true, wrote: true };
  }

  /** Reads what change-log.ts reads before it writes part of a batch. */
  lag(apiId: string): Outcome<number> {
    const api = this.api(apiId);
    const [[, slowest] = ['', api.sequence]] = ranked(api, (score) => score >= 0);
    return read(api.sequence - Math.floor(slowest));
  }

  /** Reads what sweep-store.ts reads. */
  head(apiId: string): Outcome<Head> {
    const api = this.apis.get(apiId) ?? new ApiState();
    const { sequence, grantedMs, fencedMs, token, created, deleted, members } = api;
    const killed = ranked(api, (score) => score < 0).map(([name, kill]) => ({ name, kill }));
    return read({ sequence, grantedMs, fencedMs, token, created, deleted, members: members.size, killed });
  }

  /** sweep-api.lua, and delete-pointer.lua for each key; whether there was any */
  removeKeys(apiId: string): Outcome<boolean> {
    const { records, pools, deleted } = this.api(apiId);
    if (!deleted || records.size === 0) return read(false);
    for (const { p, q = '' } of records.values()) {
      this.pointers.delete(secretPointer(p ?? ''));
      pools.delete(q);
    }
    records.clear();
    return { reply: true, wrote: true };
  }

  /** forget-api.lua */
  forget(apiId: string): Outcome<boolean> {
    const { records, deleted } = this.api(apiId);
    if (!deleted || records.size > 0) return read(false);
    this.apis.delete(apiId);
    return { reply: true, wrote: true };
  }

  /** set-pointer.lua */
  point(name: string, value: string): Outcome<boolean> {
    const present = this.pointers.get(name);
    if (present === undefined) this.pointers.set(name, value);
    return { reply: present === undefined || present === value, wrote: present === undefined };
  }

  /** create-api.lua */
  createApi(apiId: string, leaseMs: number): Outcome<boolean> {
    const api = this.api(apiId);
    if (api.created) return read(false);
    Object.assign(api, { created: true, grantedMs: leaseMs, fencedMs: leaseMs });
    return { reply: true, wrote: true };
  }

  /** create-key.lua */
  createKey(
    apiId: string,
    keyId: string,
    record: Readonly<Record<string, string>>,
    needs = 1,
    credits?: number,
    refill = '',
    nowMs = 0,
  ): Outcome<boolean> {
    const api = this.api(apiId);
    if (!api.created || api.deleted || api.records.has(keyId) || gate(api, needs)) return read(false);
    if (credits !== undefined) {
      const pool = new PoolState(credits, nowMs);
      pool.setRefill(this.#refill(refill), nowMs);
      api.pools.set(record['q'] ?? '', pool);
    }
    api.records.set(keyId, { ...record, i: this.#addCreation(api, contentOf(keyId, record)) });
    return { reply: true, wrote: true };
  }

  /** creation.lua */
  #addCreation(api: ApiState, content: string): string {
    const number = api.keysCreated + 1;
    const hash = sha1(`${api.lastMark}|${number}|${content}`).slice(0, 16);
    api.creations.push({ number, hash });
    api.creations.splice(0, api.creations.length - this.limits.creationsKept);
    api.keysCreated = number;
    api.mark = `${number}-${hash}`;
    return String(number);
  }
}

/** A key no longer draws on a pool, which goes with the last. */
function leave(api: ApiState, id: string, keyId: string): void {
  const pool = api.pools.get(id);
  if (!pool) return;
  pool.keys = pool.keys.filter((other) => other !== keyId);
  if (pool.keys.length === 0) api.pools.delete(id);
}

/** The protocol that a member speaks, by its name. */
const protocolOf = (member: string): number => Number.parseInt(member, 10) || 1;

/** gate.lua */
function gate(api: ApiState, needs: number): TooOld | undefined {
  if (needs <= api.needs) return undefined;
  const old = ranked(api, () => true).filter(([name]) => protocolOf(name) < needs);
  const names = old.slice(0, 10).map(([name]) => name);
  if (old.length > 0) return { status: 'TOO_OLD', needs, followers: old.length, names };
  api.needs = needs;
  return undefined;
}

/** A digest of all that a key is created with, as a control plane sends it. */
export const contentOf = (keyId: string, record: Readonly<Record<string, string>>): string =>
  sha1(encode([keyId, ...Object.entries(record).flat()]));

/** Tells whether the creations that a follower saw are a prefix of those that there are, as sync.lua finds out. */
function compareCreations(api: ApiState, seen: string): 'OK' | 'DIVERGED' | 'TRIMMED' {
  if (seen === api.lastMark) return 'OK';
  const [number = 0, hash] = [Number.parseInt(seen, 10), seen.split('-')[1]];
  if (number > Number.parseInt(api.lastMark, 10)) return 'DIVERGED';
  if (number === 0) return 'OK';
  const creation = api.creations.find((each) => each.number === number);
  if (!creation) return 'TRIMMED';
  return creation.hash === hash ? 'OK' : 'DIVERGED';
}

/** Arguments of fence-check.lua. */
export interface CheckedChange {
  readonly apiId: string;
  readonly sequence: number;
  readonly hash: string;
  readonly keyId: string;
  readonly replicated: boolean;
  readonly names: number;
  readonly later?: { readonly sequence: number; readonly hash: string };
}

/** The members that have not acknowledged a change; a score above the head is no acknowledgement. */
const laggards = (api: ApiState, sequence: number): [name: string, score: number][] => [
  ...ranked(api, (score) => score < sequence),
  ...ranked(api, (score) => score > api.sequence),
];

/** Some of the members, with their scores, as ZRANGE orders them. */
function ranked({ members }: ApiState, isMeant: (score: number) => boolean): [name: string, score: number][] {
  const found: [string, number][] = [];
  for (const member of members) if (isMeant(member[1])) found.push(member);
  return found.sort(([nameA, a], [nameB, b]) => a - b || (nameA < nameB ? -1 : 1));
}

/** A secret's hash, and behind it the pool and what was done to it. */
const named = (secretHash: string, pool = '', done = ''): string =>
  [secretHash, ...(pool || done ? [pool] : []), ...(done ? [done] : [])].join(' ');

const sha1 = (text: string): string => digest('sha1', text);
const sha256 = (text: string): string => digest('sha256', text);

/** As cjson writes it. */
const encode = (fields: readonly string[]): string => JSON.stringify(fields).replaceAll('/', '\\/');
