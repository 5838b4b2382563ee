import type { Redis } from 'ioredis';
import { asset } from '../../assets.ts';
import type { Clock } from '../../process/clock.ts';
import { command, oneOf } from '../../redis/command.ts';
import { cut, type RedisNodes } from '../../redis/redis.ts';
import {
  apiKeys,
  formatPointer,
  metaKey,
  parsePointer,
  recordKey,
  secretPointer,
} from '../../redis/redis-keys.ts';
import { type Run, WAIT_MS } from '../../redis/script.ts';
import { unavailable } from '../../rules/errors.ts';
import type { Change } from '../log/change.ts';
import { LUA_FIELDS } from '../records/key-record.ts';
import { PROTOCOL } from '../records/protocol.ts';
import { PointerBatcher } from './pointers.ts';
import type { Directory, Nearby, Pointer, RegisterReply, Session, SyncReply, SyncRequest } from './source.ts';

const registerMember = command(
  asset('shared/protocol/follower/register.lua'),
  ['head', 'members'],
  ['member', 'nonce'],
  oneOf('status', {
    OK: ['nonce', 'sequence#', 'hash', 'leaseMs#', 'apiDeleted#', 'creations', 'identities#'],
    TOO_OLD: ['nonce', 'needs'],
    REFUSED: ['nonce'],
  }),
);
const SYNCED = [
  ...['nonce', 'sequence#', 'hash', 'leaseMs#', 'apiDeleted#', 'creations', 'entries[]', 'record[]'],
  ...['lendsAt', 'audiences', 'untimed', 'pointer'],
] as const;
const sync = command(
  asset('shared/protocol/follower/sync.lua'),
  ['head', 'log', 'members', 'creations', 'place?', 'long?'],
  ['member', 'position', 'hash', 'mark', 'most', 'bytes', 'nonce', 'own?', 'records?', 'metas?'],
  oneOf('status', {
    OK: SYNCED,
    ...{
      NOREG: ['nonce'],
      DIVERGED: ['nonce'],
      TRIMMED: ['nonce'],
      REFUSED: ['nonce'],
      ELSEWHERE: ['nonce', 'pointer'],
    },
  }),
  LUA_FIELDS,
);
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
  readonly nearby: Nearby | undefined;

  /** @param replicas number of replicas that must have a registration before it counts */
  constructor(nodes: RedisNodes, replicas: number, clock: Clock, nearby?: Nearby) {
    this.nearby = nearby;
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.#keys = new PointerBatcher(nodes, clock);
  }

  get silentMs(): number {
    return this.#nodes.silentMs;
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

  lookUp(...secretHashes: readonly string[]): Promise<Pointer | undefined> {
    return this.#keys.lookUp(...secretHashes);
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

export function registerRun(apiId: string, member: string, nonce: string): Run<RegisterReply> {
  const { head, members } = apiKeys(apiId);
  const { read, ...run } = registerMember({ head, members, member, nonce });
  return {
    ...run,
    read: (reply) => {
      const answer = read(reply);
      if (answer.status === 'REFUSED') {
        throw unavailable(
          `the history of api ${apiId} in Redis is older than it was: see \`keyfence doctor\``,
        );
      }
      if (answer.status === 'TOO_OLD') {
        throw unavailable(
          `this verifier is too old: it speaks protocol ${PROTOCOL}, and api ${apiId} has keys that need ${answer.needs}; upgrade it`,
        );
      }
      const { status: _, apiDeleted, ...registered } = answer;
      return { ...registered, apiDeleted: apiDeleted === 1 };
    },
  };
}

export function syncRun(apiId: string, request: SyncRequest, batch: typeof BATCH = BATCH): Run<SyncReply> {
  const { head, log, members, creations } = apiKeys(apiId);
  const { keyId, secretHash, creations: mark, member, position, hash, nonce } = request;
  const place = keyId === undefined ? {} : { place: recordKey(apiId, keyId), long: metaKey(apiId, keyId) };
  const { read, ...run } = sync({
    ...{ head, log, members, creations, member, position, hash, mark, nonce },
    ...{ most: batch.batchEntriesMax, bytes: batch.batchBytesMax },
    ...(secretHash === undefined
      ? place
      : {
          ...{ place: secretPointer(secretHash), own: formatPointer(apiId, '') },
          ...{ records: recordKey(apiId, ''), metas: metaKey(apiId, '') },
        }),
  });
  return {
    ...run,
    read: (reply) => {
      const answer = read(reply);
      if (answer.status === 'ELSEWHERE') {
        const { pointer, ...rest } = answer;
        return { ...NO_CHANGES, ...rest, ...pointerOf(pointer) };
      }
      if (answer.status !== 'OK') return { ...NO_CHANGES, ...answer };
      const { apiDeleted, entries, pointer, lendsAt, audiences, untimed, ...rest } = answer;
      return {
        ...{ ...rest, apiDeleted: apiDeleted === 1, entries: changesIn(entries) },
        ...(lendsAt ? { lendsAtMs: Number(lendsAt) } : {}),
        ...(untimed ? { hasUntimed: true } : {}),
        ...(audiences ? { audiences: JSON.parse(audiences) as readonly string[] } : {}),
        ...pointerOf(pointer),
      };
    },
  };
}

function changesIn(fields: readonly string[]): Change[] {
  const changes: Change[] = [];
  for (let i = 0; i < fields.length; i += 4) {
    const [at, hash = '', keyId = '', payload = ''] = fields.slice(i, i + 4);
    changes.push({ sequence: Number(at), hash, keyId, payload });
  }
  return changes;
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

const pointerOf = (value: string) => (value ? { pointer: parsePointer(value) } : {});
