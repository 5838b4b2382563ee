import { existsSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import slotOf from 'cluster-key-slot';
import { Redis, type RedisOptions } from 'ioredis';
import { atMost, backoffMs, type Clock } from './clock.ts';
import { type ConfigOf, choice, integer, secret, text } from './config.ts';
import { Deadlines } from './deadlines.ts';
import { ApiError, unavailable } from './errors.ts';
import type { Logger } from './log.ts';
import { readCopies } from './read-buffer.ts';

/** Both processes reach Redis by these settings. */
export const redisSettings = {
  REDIS_URL: secret(
    'redis://127.0.0.1:6379',
    'redis://, rediss:// or unix:// URLs, comma-separated',
    'Redis 7 or newer. With REDIS_MODE `sentinel` or `cluster`: several sentinels or seed nodes',
    parseUrls,
  ),
  REDIS_MODE: choice(['single', 'sentinel', 'cluster'], 'single', 'What REDIS_URL leads to'),
  REDIS_SENTINEL_NAME: text('mymaster', "The primary's name at the sentinels"),
  REDIS_USERNAME: text('', 'ACL user, where the URL names none'),
  REDIS_PASSWORD: secret('', 'text', 'Password, where the URL has none; better from REDIS_PASSWORD_FILE'),
  REDIS_SENTINEL_PASSWORD: secret('', 'text', 'Password of the sentinels'),
  REDIS_TLS_CA_FILE: text(
    '',
    "PEM file of the certificate authority for `rediss://`, where it is not one of the system's",
  ),
  REDIS_REPLICAS: integer(
    0,
    8,
    'replicas',
    0,
    'Replicas that must hold a write before it is acknowledged (WAIT). All of them, or a failover can lose acknowledged writes',
  ),
  REDIS_CONNECT_TIMEOUT_MS: integer(50, 60_000, 'ms', 1000, 'The longest that opening a connection may take'),
  REDIS_COMMAND_TIMEOUT_MS: integer(
    50,
    60_000,
    'ms',
    2000,
    'The longest that a command may take before its connection is given up; above the 1000 ms that WAIT may take',
  ),
};

/** The values of `redisSettings`. */
export type RedisConfig = ConfigOf<typeof redisSettings>;

/** What is wrong with these settings together. */
export function redisFaults(config: RedisConfig): string[] {
  const faults: string[] = [];
  if (config.REDIS_URL.length > 1 && config.REDIS_MODE === 'single') {
    faults.push('REDIS_URL: several addresses need REDIS_MODE sentinel or cluster');
  }
  if (config.REDIS_TLS_CA_FILE && !existsSync(config.REDIS_TLS_CA_FILE)) {
    faults.push('REDIS_TLS_CA_FILE: there is no such file');
  }
  return faults;
}

const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 2000;

type Options = Omit<RedisOptions, 'replyMapping'>;

interface Node {
  readonly host: string;
  readonly port: number;
}

interface Connection {
  readonly opening: Promise<Redis>;
  ready?: Redis;
}

/**
 * Connections to the primaries of one Redis: a single server, a Sentinel group, or a Cluster. Each connection
 * is one session: when it ends it is gone, with every command in flight on it, and the next call opens another.
 * Nothing is queued while disconnected and nothing is ever sent twice.
 */
export class RedisNodes {
  readonly #config: RedisConfig;
  readonly #options: Options;
  readonly #seeds: readonly Node[];
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #deadlines: Deadlines<Redis>;
  readonly #connections = new Map<string, Connection>();
  readonly #failures = new Map<string, { attempts: number; retryAtMs: number; cause: unknown }>();
  #slots: readonly { from: number; to: number; node: Node }[] = [];
  #closed = false;

  constructor(config: RedisConfig, clock: Clock, log: Logger) {
    this.#config = config;
    this.#options = connectionOptions(config);
    this.#seeds = config.REDIS_URL.map(nodeOf);
    this.#clock = clock;
    this.#log = log;
    this.#deadlines = new Deadlines(clock, config.REDIS_COMMAND_TIMEOUT_MS, cut);
  }

  get isCluster(): boolean {
    return this.#config.REDIS_MODE === 'cluster';
  }

  /**
   * The ready connection to the primary that owns `key`; at once where there is one. `lane` separates connections to the same server,
   * for commands that block their connection. Rejects with SERVICE_UNAVAILABLE: at once while backing off
   * after a failure (50 ms doubling to 2 s), else after REDIS_CONNECT_TIMEOUT_MS at the latest.
   */
  connection(key: string, lane = 'main'): Redis | Promise<Redis> {
    if (this.#closed) return Promise.reject(unavailable('shutting down'));
    if (!this.isCluster) return this.#open(undefined, lane);
    return this.#ownerOf(key).then((node) => this.#open(node, lane));
  }

  /** Forgets which node owns what; to be called when a node answered MOVED or ASK. */
  forgetOwners(): void {
    this.#slots = [];
  }

  /** Closes every connection; commands in flight are rejected. */
  async close(): Promise<void> {
    this.#closed = true;
    const open = await Promise.allSettled([...this.#connections.values()].map(({ opening }) => opening));
    for (const result of open) if (result.status === 'fulfilled') cut(result.value);
  }

  #open(node: Node | undefined, lane: string): Redis | Promise<Redis> {
    const id = node ? `${node.host}:${node.port}/${lane}` : lane;
    const existing = this.#connections.get(id);
    if (existing) return existing.ready ?? existing.opening;
    const failure = this.#failures.get(id);
    if (failure && this.#clock.monotonicMs() < failure.retryAtMs) {
      return Promise.reject(unavailable('Redis is out of reach', failure.cause));
    }
    const opening = this.#connect(node, id, () => {
      if (this.#connections.get(id) === connection) this.#connections.delete(id);
    });
    const connection: Connection = { opening };
    this.#connections.set(id, connection);
    opening.then(
      (redis) => {
        connection.ready = redis;
      },
      () => undefined, // those who wait are told
    );
    return opening;
  }

  async #connect(node: Node | undefined, id: string, forget: () => void): Promise<Redis> {
    const redis = new Redis({ ...this.#options, ...node });
    let lastError: unknown;
    redis.on('error', (error: Error) => {
      lastError = error;
    });
    redis.on('end', () => {
      forget();
      // Where the server ended it, ioredis keeps its connections to the Sentinels.
      redis.disconnect();
      if (lastError) this.#log.debug({ connection: id, reason: String(lastError) }, 'Redis connection ended');
    });
    try {
      const limitMs = this.#config.REDIS_CONNECT_TIMEOUT_MS;
      await atMost(this.#clock, limitMs, redis.connect(), () =>
        unavailable(`not connected within ${limitMs} ms`),
      );
      this.#failures.delete(id);
      const { stream } = internals(redis);
      if (stream) readCopies(stream);
      return redis;
    } catch (error) {
      cut(redis);
      forget();
      const attempts = (this.#failures.get(id)?.attempts ?? 0) + 1;
      const waitMs = backoffMs(attempts - 1, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, Math.random);
      const cause = lastError ?? error;
      this.#failures.set(id, { attempts, retryAtMs: this.#clock.monotonicMs() + waitMs, cause });
      if (node) this.forgetOwners();
      throw unavailable('Redis is out of reach', cause);
    }
  }

  async #ownerOf(key: string): Promise<Node> {
    const slot = slotOf(key);
    const find = () => this.#slots.find(({ from, to }) => from <= slot && slot <= to)?.node;
    const known = find();
    if (known) return known;
    await this.#loadSlots();
    const owner = find();
    if (!owner) throw unavailable('no node of the Redis Cluster owns this slot');
    return owner;
  }

  async #loadSlots(): Promise<void> {
    let cause: unknown;
    for (const seed of this.#seeds) {
      try {
        const redis = await this.#open(seed, 'main');
        const reply = await this.within(redis, redis.cluster('SLOTS'));
        this.#slots = reply.flatMap(([from, to, primary]) =>
          primary ? [{ from, to, node: { host: primary[0] || seed.host, port: primary[1] } }] : [],
        );
        return;
      } catch (error) {
        cause = error;
      }
    }
    throw unavailable('no node of the Redis Cluster is in reach', cause);
  }

  /**
   * `work` on that connection, its failures translated by `asOutage`. After REDIS_COMMAND_TIMEOUT_MS the connection is cut,
   * which fails all work on it: a late reply must find nobody.
   */
  within<T>(redis: Redis, work: Promise<T>): Promise<T> {
    const deadline = this.#deadlines.begin(redis);
    return work.then(
      (value) => {
        this.#deadlines.end(deadline);
        return value;
      },
      (error) => {
        this.#deadlines.end(deadline);
        if (!deadline.passed) throw this.asOutage(redis, error);
        throw unavailable(`Redis did not answer within ${this.#config.REDIS_COMMAND_TIMEOUT_MS} ms`);
      },
    );
  }

  /**
   * What a failed command means. A connection that was lost and a refusal that says the node cannot serve now
   * (deposed, loading, out of memory, not permitted …) are outages; a deposed or wrong node's connection is cut,
   * so that the next call looks for the right one. Anything else is a bug and passes through.
   */
  asOutage(redis: Redis, error: unknown): unknown {
    if (error instanceof ApiError) return error;
    if (!isReplyError(error)) return unavailable('the connection to Redis was lost', error);
    const kind = /^[A-Z]+/.exec(error.message)?.[0] ?? '';
    if (kind === 'MOVED' || kind === 'ASK' || kind === 'CLUSTERDOWN') this.forgetOwners();
    else if (kind === 'READONLY' || kind === 'NOREPLICAS') cut(redis);
    else if (!REFUSALS.has(kind)) return error;
    return unavailable(`Redis refused: ${kind}`, error);
  }
}

const REFUSALS = new Set(
  'LOADING MISCONF OOM NOPERM NOAUTH WRONGPASS TRYAGAIN MASTERDOWN BUSY UNKILLABLE'.split(' '),
);

/** Whether Redis itself answered with an error, so that it is known not to have done what was asked. */
function isReplyError(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

/** Ends a connection now, also when the other side no longer answers. */
export function cut(redis: Redis): void {
  redis.disconnect();
  internals(redis).stream?.destroy();
}

/** What the types of ioredis leave out. */
const internals = (redis: Redis) => redis as unknown as { stream?: Socket };

function parseUrls(text: string): readonly URL[] {
  return text.split(',').map((part) => {
    const url = URL.canParse(part.trim()) ? new URL(part.trim()) : undefined;
    if (!url || !['redis:', 'rediss:', 'unix:'].includes(url.protocol)) throw new Error('is not allowed');
    return url;
  });
}

function nodeOf(url: URL): Node {
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || 6379) };
}

function connectionOptions(config: RedisConfig): Options {
  const urls = config.REDIS_URL;
  const [first] = urls as readonly [URL];
  const username = decodeURIComponent(first.username) || config.REDIS_USERNAME;
  const password = decodeURIComponent(first.password) || config.REDIS_PASSWORD;
  const ca = config.REDIS_TLS_CA_FILE;
  const tls = first.protocol === 'rediss:' ? (ca ? { ca: readFileSync(ca) } : {}) : undefined;
  return {
    ...(first.protocol === 'unix:' ? { path: decodeURIComponent(first.pathname) } : nodeOf(first)),
    ...(first.pathname.length > 1 && first.protocol !== 'unix:'
      ? { db: Number(first.pathname.slice(1)) }
      : {}),
    ...(username ? { username } : {}),
    ...(password ? { password } : {}),
    ...(tls ? { tls } : {}),
    ...(config.REDIS_MODE === 'sentinel'
      ? {
          sentinels: urls.map(nodeOf),
          name: config.REDIS_SENTINEL_NAME,
          sentinelRetryStrategy: () => null,
          sentinelCommandTimeout: config.REDIS_CONNECT_TIMEOUT_MS,
          failoverDetector: true,
          ...(config.REDIS_SENTINEL_PASSWORD ? { sentinelPassword: config.REDIS_SENTINEL_PASSWORD } : {}),
          ...(tls ? { enableTLSForSentinelMode: true, sentinelTLS: tls } : {}),
        }
      : {}),
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
    connectTimeout: config.REDIS_CONNECT_TIMEOUT_MS,
    keepAlive: 5000,
    disableClientInfo: true,
  };
}
