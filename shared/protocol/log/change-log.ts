import { randomInt } from 'node:crypto';
import { command, each, oneOf } from '../../redis/command.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import { apiKeys, indexOf, metaKey, recordKey } from '../../redis/redis-keys.ts';
import { type Run, send } from '../../redis/script.ts';
import { generateId, hashSecret } from '../../rules/key-format.ts';
import { LUA_FIELDS, POOL, type StoredFields } from '../records/key-record.ts';
import { protocolFor } from '../records/protocol.ts';
import type {
  BatchedChangeLog,
  Closing,
  KilledFollower,
  LogEntry,
  LogStatus,
  Successor,
  Write,
  WriteRefusal,
} from './change-log-port.ts';
import type { DurableWriter } from './durable-writer.ts';
import { CREATIONS_KEPT, digestOf } from './new-key-record.ts';

const WRITTEN = [
  ...[
    'sequence#',
    'hash',
    'leaseMs#',
    'previousVersion',
    'remaining',
    'debt',
    'server',
    'outlives',
    '...fields',
  ],
] as const;
const writtenOf = oneOf('status', {
  ...{ OK: WRITTEN, NOT_FOUND: [], EXISTS: [], CONFLICT: ['version'], UNLIMITED: [], REUSED: [] },
  NAME_TAKEN: ['name'],
  TOO_OLD: ['needs#', 'followers#', '...names'],
});
export const writeChange = command(
  new URL('./write-change.lua', import.meta.url),
  ['head', 'log', 'index', 'members', 'record', 'long'],
  [
    ...['operation', 'keyId', 'channel', 'now', 'maxlen', 'longest', 'condition', 'base', 'needs'],
    '...fields',
  ] as const,
  writtenOf,
  LUA_FIELDS,
);
export const writeChanges = command(
  new URL('./write-changes.lua', import.meta.url),
  ['head', 'log', 'index', 'members', '...records'],
  ['operation', 'channel', 'now', 'maxlen', 'longest', 'base', 'needs', 'count', '...rest'],
  each(writtenOf),
  LUA_FIELDS,
);
const reroll = command(
  new URL('./reroll-key.lua', import.meta.url),
  [...['head', 'log', 'index', 'members', 'record', 'long', 'creations', 'new', 'newLong']] as const,
  [
    ...['keyId', 'channel', 'now', 'maxlen', 'longest', 'condition', 'base', 'newId', 'secretHash', 'start'],
    ...['bytes', 'latest', 'kept', 'most', 'call', 'content'],
  ] as const,
  oneOf('status', {
    ...{ OK: ['expires', 'deleted', ...WRITTEN], NOT_FOUND: [], CONFLICT: [], ENDED: [], REUSED: [] },
    ...{ REROLLED: ['successor'], SHARED: ['keys#'], TOO_LONG: ['longestMs#', 'source'] },
  }),
  LUA_FIELDS,
);

/**
 * The maximum number of keys that share a pool of credits: if the pool is replaced, all of them change in one
 * step.
 */
export const SHARING_MAX = 100;

/** The minimum number of entries that a log keeps; a follower that missed more starts afresh. */
export const LOG_ENTRIES = 10_000;
/**
 * Pace of a batch, at most 6,250 keys a second: a part takes Redis two milliseconds, and the log keeps room
 * for other writers. A single change beside a batch takes about twice as long as usual (bench/changes/many.ts).
 */
export const BATCH_LIMITS = { partMax: 50, periodMs: 8, giveWayMs: 25, lagMax: 0.8 * LOG_ENTRIES };
/** Keys that one run of the script changes: more would block Redis for longer than a millisecond. */
const WRITTEN_AT_ONCE = 25;
/** Limits of what a write leaves in Redis. */
export const LIMITS = {
  logEntries: LOG_ENTRIES,
  /** Size above which a new state is logged as "forget this key". */
  payloadBytesMax: 1024,
  creationsKept: CREATIONS_KEPT,
};
/**
 * Upper bound of the random number that identifies a kill: scores are doubles, and randomInt allows no more.
 */
const KILL_MAX = 2 ** 48;

/** The change logs in real Redis. */
export class RedisChangeLog implements BatchedChangeLog {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #replicas: number;
  readonly #now: () => number;
  readonly #newPool: () => string;

  /**
   * @param now Unix milliseconds, for `updatedAt`
   * @param newPool returns a name that no pool ever had
   */
  constructor(
    nodes: RedisNodes,
    writer: DurableWriter,
    replicas: number,
    now: () => number,
    newPool = () => generateId('pool', now()),
  ) {
    this.#newPool = newPool;
    this.#nodes = nodes;
    this.#writer = writer;
    this.#replicas = replicas;
    this.#now = now;
  }

  async write(write: Write): Promise<LogEntry | WriteRefusal> {
    const { reply, replicated } = await this.#writer.send(writeRun(write, this.#now(), this.#newPool));
    return written(reply, replicated);
  }

  async writeAll(writes: readonly Write[]) {
    const runs = together(writes).map((alike) => writeAllRun(alike, this.#now()));
    const { replies, replicated } = await this.#writer.sendInOrder(runs);
    return replies.flat().map((reply) => written(outcomeOf(reply), replicated));
  }

  async lag(apiId: string): Promise<number> {
    const { head, members } = apiKeys(apiId);
    // Read the score first: an acknowledgement in between then makes the lag look longer, never shorter.
    const [slowest, sequence] = await this.#nodes.run(head, (redis) =>
      Promise.all([
        redis.zrangebyscore(members, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1),
        redis.hget(head, 's'),
      ]),
    );
    return slowest.length === 0 ? 0 : Number(sequence ?? 0) - Math.floor(parseScore(slowest[1]));
  }

  /** Returns the version of a record, and its fields of these letters as stored; undefined = it does not exist. */
  async present(apiId: string, keyId: string, letters: readonly string[]) {
    const record = recordKey(apiId, keyId);
    const [version, ...values] = await this.#nodes.run(record, (redis) =>
      redis.hmget(record, 'v', ...letters),
    );
    if (!version) return undefined;
    return { version, fields: Object.fromEntries(letters.map((letter, i) => [letter, values[i] ?? ''])) };
  }

  check(change: CheckedChange): Promise<LogStatus> {
    const replicated = change.replicated && this.#replicas > 0;
    return this.#run(change.apiId, checkRun({ ...change, replicated }));
  }

  close(apiId: string, change: Pick<LogEntry, 'sequence' | 'hash' | 'server'>): Promise<Closing> {
    return this.#run(apiId, closeRun(apiId, change, -randomInt(1, KILL_MAX)));
  }

  reap(apiId: string, killed: readonly KilledFollower[]): Promise<number> {
    return this.#run(apiId, reapRun(apiId, killed));
  }

  #run<T>(apiId: string, run: Run<T>): Promise<T> {
    return this.#nodes.run(apiKeys(apiId).head, (redis) => send(redis, run));
  }
}

/** A write that is in the log, perhaps not on all replicas, or why it is not. */
export type Written = Omit<LogEntry, 'replicated'> | WriteRefusal;
const written = (outcome: Written, replicated: boolean): LogEntry | WriteRefusal =>
  outcome.status === 'OK' ? { ...outcome, replicated } : outcome;

/** WRITE, or REROLL where there is a successor. `newPool` returns a name that no pool ever had. */
export function writeRun(
  write: Write,
  nowMs: number,
  newPool: () => string,
  limits: typeof LIMITS = LIMITS,
): Run<Written> {
  const { apiId, operation, keyId, fields, credits, ifSequence, ifManagedBy, successor } = write;
  const ofSet = ifManagedBy === undefined ? '' : `of ${ifManagedBy}`;
  const condition = write.condition ?? ifSequence ?? ofSet;
  const about = {
    ...{ ...aboutWrite(write, nowMs, limits), keyId, condition },
    record: keyId ? recordKey(apiId, keyId) : apiKeys(apiId).head,
    long: keyId ? metaKey(apiId, keyId) : apiKeys(apiId).head,
  };
  if (successor) return rerollRun(apiId, about, successor, limits.creationsKept);
  const { read, ...run } = writeChange({
    ...{ ...about, operation, needs: neededBy(write) },
    fields: [
      ...Object.entries(fields).flat(),
      ...(operation === 'create' ? ['p', hashSecret(keyId)] : []),
      ...(credits ? [POOL, JSON.stringify({ ...credits, id: newPool() })] : []),
    ],
  });
  return { ...run, read: (reply) => outcomeOf(read(reply)) };
}

/** Makes the same change to several keys. */
function writeAllRun(alike: readonly [Write, ...Write[]], nowMs: number) {
  const [first] = alike;
  const { apiId, operation, fields } = first;
  return writeChanges({
    ...{ ...aboutWrite(first, nowMs, LIMITS), operation, needs: neededBy(first), count: alike.length },
    records: alike.flatMap(({ keyId }) => [recordKey(apiId, keyId), metaKey(apiId, keyId)]),
    rest: [
      ...alike.flatMap(({ keyId, condition = '' }) => [keyId, condition]),
      ...Object.entries(fields).flat(),
    ],
  });
}

const neededBy = ({ keyId, fields, credits, needs = 1 }: Write) =>
  Math.max(needs, protocolFor(keyId, fields, credits));

/** Returns what the scripts are told about any write. */
function aboutWrite({ apiId, keyId }: Write, now: number, limits: typeof LIMITS) {
  const { base, head, log, channel, members } = apiKeys(apiId);
  const { logEntries: maxlen, payloadBytesMax: longest } = limits;
  return { base, head, log, index: indexOf(apiId, keyId), channel, members, now, maxlen, longest };
}

function rerollRun(
  apiId: string,
  about: ReturnType<typeof aboutWrite> &
    Record<'keyId' | 'record' | 'long', string> & { readonly condition: string | number },
  { keyId, secretHash, start, bytes, latestMs, operationId }: Successor,
  creationsKept: number,
): Run<Written> {
  const { read, ...run } = reroll({
    ...{ ...about, creations: apiKeys(apiId).creations, kept: creationsKept, most: SHARING_MAX },
    ...{
      new: recordKey(apiId, keyId),
      newLong: metaKey(apiId, keyId),
      newId: keyId,
      secretHash,
      start,
      bytes: bytes ?? '',
    },
    ...{ latest: latestMs, call: operationId, content: digestOf([keyId, secretHash]) },
  });
  return {
    ...run,
    read: (reply) => {
      const outcome = read(reply);
      if (outcome.status !== 'OK') return outcome;
      const { expires, deleted, ...change } = outcome;
      const [deletedId, deletedHash] = deleted.split(' ');
      const gone = deletedId && deletedHash ? { keyId: deletedId, secretHash: deletedHash } : undefined;
      return { ...outcomeOf(change), rerolled: { expires, deleted: gone } };
    },
  };
}

type CheckedChange = Parameters<BatchedChangeLog['check']>[0];

export function checkRun({
  apiId,
  sequence,
  hash,
  keyId,
  replicated,
  names,
  later,
}: CheckedChange): Run<LogStatus> {
  const { head, log, members } = apiKeys(apiId);
  return check({
    ...{ head, log, members, record: recordKey(apiId, keyId), sequence, hash, keyId },
    ...{ durable: replicated ? '1' : '0', limit: names },
    ...{ later: later?.sequence ?? 0, laterHash: later?.hash ?? '' },
  });
}

const STATUS_PARTS = [
  'followers#',
  'laggards#',
  'leaseMs#',
  'replicatedSequence#',
  'age',
  'version',
  '...names',
] as const;
const check = command(
  new URL('./fence-check.lua', import.meta.url),
  ['head', 'log', 'members', 'record'],
  ['sequence', 'hash', 'keyId', 'durable', 'limit', 'later', 'laterHash'],
  oneOf('state', { LOST: [], INTACT: STATUS_PARTS, TRIMMED: STATUS_PARTS }),
);

/** @param kill a random integer below 0 */
export function closeRun(
  apiId: string,
  { sequence, hash, server }: Pick<LogEntry, 'sequence' | 'hash' | 'server'>,
  kill: number,
): Run<Closing> {
  const { head, log, members } = apiKeys(apiId);
  const { read, ...run } = close({ head, log, members, sequence, hash, kill, writer: server });
  return {
    ...run,
    read: (reply) => {
      const closing = read(reply);
      if (closing.state === 'LOST') return closing;
      const { state, followers, leaseMs, removed, names } = closing;
      const killed = names.slice(removed).map((name) => ({ name, kill }));
      return { state, followers, leaseMs, removed: names.slice(0, removed), killed };
    },
  };
}

const close = command(
  new URL('./fence-close.lua', import.meta.url),
  ['head', 'log', 'members'],
  ['sequence', 'hash', 'kill', 'writer'],
  oneOf('state', { LOST: [], INTACT: ['followers#', 'leaseMs#', 'removed#', '...names'] }),
);

export const reapRun = (apiId: string, killed: readonly KilledFollower[]): Run<number> =>
  reap({
    members: apiKeys(apiId).members,
    kills: killed.flatMap(({ name, kill }) => [name, formatScore(kill)]),
  });

const reap = command(new URL('./reap-members.lua', import.meta.url), ['members'], ['...kills'], Number);

/** Groups writes that make the same change to different keys; the order is kept. */
function together(writes: readonly Write[]): [Write, ...Write[]][] {
  const groups: [Write, ...Write[]][] = [];
  for (const write of writes) {
    const group = groups.at(-1);
    if (group && group.length < WRITTEN_AT_ONCE && isAlike(group[0], write)) group.push(write);
    else groups.push([write]);
  }
  return groups;
}

const isAlike = (a: Write, b: Write): boolean =>
  a.apiId === b.apiId &&
  a.operation === b.operation &&
  a.fields === b.fields &&
  a.needs === b.needs &&
  // Each key has its own credits.
  a.credits === undefined &&
  b.credits === undefined;

function outcomeOf(reply: ReturnType<typeof writtenOf>): Written {
  if (reply.status !== 'OK') return reply;
  const { remaining, debt, fields, outlives, ...entry } = reply;
  const credits = remaining ? { credits: { remaining: Number(remaining), isOwed: debt === '1' } } : {};
  const outside = outlives === '' ? {} : { outlivesMs: Number(outlives) };
  return { ...entry, ...outside, before: fieldsOf(fields), ...credits };
}

/** Returns the fields that a script lists as names and values. */
function fieldsOf(listed: readonly string[]): StoredFields {
  const fields: Record<string, string> = {};
  for (let i = 0; i < listed.length; i += 2) fields[listed[i] ?? ''] = listed[i + 1] ?? '';
  return fields;
}

/**
 * Parses a sorted set's score as Redis writes it. `Number` cannot parse `-inf`, which no kill of ours uses
 * but an operator may set.
 */
export const parseScore = (text: string | undefined): number =>
  text === '-inf' ? Number.NEGATIVE_INFINITY : Number(text);

const formatScore = (score: number): string => (score === Number.NEGATIVE_INFINITY ? '-inf' : String(score));
