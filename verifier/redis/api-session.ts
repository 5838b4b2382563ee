import type { Redis } from 'ioredis';
import type { Change } from '#shared/contract/change.ts';
import { unavailable } from '#shared/contract/errors.ts';
import { PROTOCOL } from '#shared/contract/protocol.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { cut, type RedisNodes } from '#shared/redis/redis.ts';
import {
  apiKeys,
  broughtIndex,
  formatPointer,
  metaKey,
  parsePointer,
  poolKey,
  recordKey,
  secretPointer,
  windowKey,
} from '#shared/redis/redis-keys.ts';
import { type Run, Script, WAIT_MS } from '#shared/redis/script.ts';
import { asset } from '../assets.ts';
import type {
  Directory,
  Pointer,
  PoolReply,
  PoolTurn,
  RegisterReply,
  Session,
  SyncReply,
  SyncRequest,
} from '../core/redis-port.ts';
import { RECALL_MS } from '../core/verdict.ts';
import { PointerBatcher } from './pointer-batcher.ts';

const registerScript = new Script(asset('redis/lua/register.lua'));
const syncScript = new Script(asset('redis/lua/sync.lua'));
const exchangeScript = new Script(asset('redis/lua/exchange.lua'));

/** Limits of the entries that one SYNC brings: their number, and their length in bytes. */
const BATCH = { batchEntriesMax: 500, batchBytesMax: 1_048_576 };

/**
 * Opens sessions with real Redis. All sessions with one server share a connection (RESP3 carries commands and
 * messages).
 */
export class RedisDirectory implements Directory {
  readonly #nodes: RedisNodes;
  readonly #replicas: number;
  readonly #keys: PointerBatcher;
  readonly #lines = new WeakMap<Redis, SharedConnection>();

  /** @param replicas number of replicas that must have a registration before it counts */
  constructor(nodes: RedisNodes, replicas: number, clock: Clock) {
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.#keys = new PointerBatcher(nodes, clock);
  }

  async open(apiId: string): Promise<Session> {
    const redis = await this.#nodes.connection(apiKeys(apiId).head);
    let line = this.#lines.get(redis);
    if (!line) {
      line = new SharedConnection(redis);
      this.#lines.set(redis, line);
    }
    return new RedisSession(apiId, line, this.#nodes, this.#replicas);
  }

  lookUp(secretHash: string): Promise<Pointer | undefined> {
    return this.#keys.lookUp(secretHash);
  }

  async exchange(apiId: string, member: string, turns: readonly PoolTurn[]): Promise<PoolReply[]> {
    const { script, keys, args, read } = exchangeRun(apiId, member, turns);
    const { members } = apiKeys(apiId);
    // Only credits are worth waiting for: if a failover loses a window, the window soon ends anyway.
    if (this.#replicas === 0 || turns.every(({ window }) => window)) {
      return read(await this.#nodes.run(members, (redis) => script.run(redis, keys, args)));
    }
    // A connection of its own, because WAIT blocks it.
    const { reply, confirmed } = await this.#nodes.run(
      members,
      (redis) => script.runAndWait(redis, keys, args, this.#replicas, WAIT_MS),
      'exchange',
    );
    if (confirmed < this.#replicas) {
      throw unavailable(`${confirmed} of ${this.#replicas} required replicas confirmed the exchange`);
    }
    return read(reply);
  }
}

/** A connection, and its listeners by channel. */
class SharedConnection {
  readonly redis: Redis;
  readonly listeners = new Map<string, (message: string) => void>();
  readonly endListeners = new Set<() => void>();
  open = true;

  constructor(redis: Redis) {
    this.redis = redis;
    redis.on('message', (channel: string, message: string) => this.listeners.get(channel)?.(message));
    redis.once('end', () => {
      this.open = false;
      for (const listener of [...this.endListeners]) listener();
    });
  }
}

class RedisSession implements Session {
  readonly findsKeys: boolean;
  readonly #apiId: string;
  readonly #line: SharedConnection;
  readonly #nodes: RedisNodes;
  readonly #replicas: number;
  #listeners: readonly (readonly [channel: string, listener: (message: string) => void])[] = [];
  #endListener: (() => void) | undefined;

  constructor(apiId: string, line: SharedConnection, nodes: RedisNodes, replicas: number) {
    this.#apiId = apiId;
    this.#line = line;
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.findsKeys = !nodes.isCluster;
  }

  async subscribe(onMessage: (message: string) => void, onRecall: (pool: string) => void): Promise<void> {
    const { channel, recalls } = apiKeys(this.#apiId);
    this.#listeners = [
      [channel, onMessage],
      [recalls, onRecall],
    ];
    for (const [each, listener] of this.#listeners) this.#line.listeners.set(each, listener);
    // A Redis user with an older ACL may not subscribe to recalls, but still receives changes.
    this.#line.redis.subscribe(recalls).catch(() => undefined);
    await this.#within(this.#line.redis.subscribe(channel));
  }

  async register(member: string, nonce: string): Promise<RegisterReply> {
    const run = registerRun(this.#apiId, member, nonce);
    const { script, keys, args, read } = run;
    return read(
      this.#replicas === 0
        ? await this.#within(script.run(this.#line.redis, keys, args))
        : await this.#registerAndWait(run),
    );
  }

  /**
   * Registers on a connection of its own, to the same server as the session's, because WAIT blocks the
   * connection.
   */
  async #registerAndWait({ script, keys, args }: Run<unknown>): Promise<unknown> {
    const { reply, confirmed } = await this.#nodes.run(
      keys[0] ?? '',
      (redis) => script.runAndWait(redis, keys, args, this.#replicas, WAIT_MS),
      'register',
    );
    if (confirmed < this.#replicas) {
      throw unavailable(`${confirmed} of ${this.#replicas} required replicas confirmed the registration`);
    }
    return reply;
  }

  async sync(request: SyncRequest): Promise<SyncReply> {
    const { script, keys, args, read } = syncRun(this.#apiId, request);
    return read(await this.#within(script.run(this.#line.redis, keys, args)));
  }

  async leave(member: string): Promise<void> {
    await this.#within(this.#line.redis.zrem(apiKeys(this.#apiId).members, member));
  }

  onEnd(listener: () => void): void {
    this.#endListener = listener;
    if (this.#line.open) this.#line.endListeners.add(listener);
    else listener();
  }

  end(mode: 'quietly' | 'cut'): void {
    if (this.#endListener) this.#line.endListeners.delete(this.#endListener);
    for (const [channel, listener] of this.#listeners) {
      if (this.#line.listeners.get(channel) !== listener) continue;
      this.#line.listeners.delete(channel);
      if (this.#line.open && mode === 'quietly') {
        this.#line.redis.unsubscribe(channel).catch(() => undefined); // the connection may just have ended
      }
    }
    const listener = this.#endListener;
    this.#endListener = undefined;
    if (mode === 'cut') cut(this.#line.redis);
    listener?.();
  }

  #within<T>(work: Promise<T>): Promise<T> {
    return this.#nodes.within(this.#line.redis, work);
  }
}

export function exchangeRun(apiId: string, member: string, turns: readonly PoolTurn[]): Run<PoolReply[]> {
  const { members, held, recalls } = apiKeys(apiId);
  const names = turns.map(({ pool, window }) => (window ? windowKey : poolKey)(apiId, pool));
  const keys = [members, held, ...names];
  const turnArgs = turns.flatMap(({ pool, turn, spent = '-', kept, needs, slice, window }) => [
    ...[turn, spent, kept, needs.map(({ cost, times }) => `${cost}x${times}`).join(' '), slice],
    ...[window?.limit ?? '-', window?.durationMs ?? '-', window?.number ?? '-'],
    window?.isBrought ? keys.push(broughtIndex(apiId, pool)) : '-',
  ]);
  return { script: exchangeScript, keys, args: [member, recalls, RECALL_MS, ...turnArgs], read: repliesOf };
}

export function registerRun(apiId: string, member: string, nonce: string): Run<RegisterReply> {
  const { head, members } = apiKeys(apiId);
  const read = (reply: unknown) => registerReplyOf(apiId, reply);
  return { script: registerScript, keys: [head, members], args: [member, nonce], read };
}

export function syncRun(apiId: string, request: SyncRequest, batch: typeof BATCH = BATCH): Run<SyncReply> {
  const { head, log, members, creations } = apiKeys(apiId);
  const { keyId, secretHash } = request;
  const [keys, prefixes] =
    secretHash !== undefined
      ? [[secretPointer(secretHash)], [formatPointer(apiId, ''), recordKey(apiId, ''), metaKey(apiId, '')]]
      : [keyId === undefined ? [] : [recordKey(apiId, keyId), metaKey(apiId, keyId)], []];
  const { member, position, hash, creations: seen, nonce } = request;
  const { batchEntriesMax, batchBytesMax } = batch;
  return {
    script: syncScript,
    keys: [head, log, members, creations, ...keys],
    args: [member, position, hash, seen, batchEntriesMax, batchBytesMax, nonce, ...prefixes],
    read: syncReplyOf,
  };
}

function repliesOf(reply: unknown): PoolReply[] {
  return (reply as [string, PoolReply['status'], ...string[]][]).map(([turn, status, ...numbers]) => {
    const [granted = 0, spent = 0, reserve = 0, total = 0, refillMs = -1, leastNeed = 0, number, leftMs] =
      numbers.map(Number);
    const window = number === undefined || leftMs === undefined ? {} : { window: { number, leftMs } };
    return { turn: Number(turn), status, granted, spent, reserve, total, refillMs, leastNeed, ...window };
  });
}

function registerReplyOf(apiId: string, reply: unknown): RegisterReply {
  const [nonce, sequence, hash, lease, deleted, creations, identities] = reply as string[];
  if (sequence === 'TOO_OLD') {
    throw unavailable(
      `this verifier is too old: it speaks protocol ${PROTOCOL}, and api ${apiId} has keys that need ${hash}; upgrade it`,
    );
  }
  return {
    nonce: nonce ?? '',
    sequence: Number(sequence),
    hash: hash ?? '',
    leaseMs: Number(lease),
    apiDeleted: deleted === '1',
    creations: creations ?? '',
    identities: Number(identities),
  };
}

function syncReplyOf(reply: unknown): SyncReply {
  if ((reply as string[])[1] === 'ELSEWHERE') {
    const [nonce, status, pointer] = reply as [string, 'ELSEWHERE', string | null];
    return { ...NO_CHANGES, nonce, status, ...pointerOf(pointer) };
  }
  const [nonce, status, sequence, hash, lease, deleted, creations, fields = [], record = [], pointer] =
    reply as [
      string,
      SyncReply['status'],
      string?,
      string?,
      string?,
      string?,
      string?,
      string[]?,
      string[]?,
      string?,
    ];
  const entries: Change[] = [];
  for (let i = 0; i < fields.length; i += 4) {
    const [at, entryHash, keyId, payload] = fields.slice(i, i + 4) as [string, string, string, string];
    entries.push({ sequence: Number(at), hash: entryHash, keyId, payload });
  }
  return {
    nonce,
    status,
    sequence: Number(sequence ?? 0),
    hash: hash ?? '',
    leaseMs: Number(lease ?? 0),
    apiDeleted: deleted === '1',
    creations: creations ?? '',
    entries,
    record,
    ...pointerOf(pointer),
  };
}

const NO_CHANGES = {
  sequence: 0,
  hash: '',
  leaseMs: 0,
  apiDeleted: false,
  creations: '',
  entries: [],
  record: [],
};

const pointerOf = (value: string | null | undefined) => (value ? { pointer: parsePointer(value) } : {});
