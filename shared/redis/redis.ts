import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import slotOf from 'cluster-key-slot';
import { Redis } from 'ioredis';
import { atMost, backoffMs, type Clock, pause } from '../process/clock.ts';
import { Deadlines } from '../process/deadlines.ts';
import type { Logger } from '../process/log.ts';
import { readCopies } from '../process/read-buffer.ts';
import { ApiError, unavailable } from '../rules/errors.ts';
import { type CertificateEnds, noteCertificate } from './certificate-ends.ts';
import {
  type ClusterView,
  isOfSame,
  isSameNode,
  newestOwners,
  type SlotRange,
  viewOf,
} from './cluster-view.ts';
import { isReplyError, refuseUnusable, selectDatabase, Unfit } from './fitness.ts';
import { ReachLog } from './redis-fault.ts';
import { FreshOptions, isSameProof, type Node, type Options, type RedisConfig } from './redis-settings.ts';

const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 2000;
/** Time that other members of a Cluster have for their accounts of it after the first that counts. */
const OTHER_VIEWS_MS = 200;
/** The host of a node that should be known by its name, but has none. */
const NAMELESS = '?';
const NAMELESS_ADVICE = 'does not tell its host name: set cluster-announce-hostname there';

/** Requirements of a process, checked before it uses Redis. */
interface Demands {
  /** The commands that it will run, with arguments: the user must have the rights for all. */
  readonly commands: readonly string[];
  /** Called with the reason if Redis is unfit, unless it was fit before. */
  readonly onUnfit?: ((reason: string) => void) | undefined;
  /** Name of the replica from which the process only reads; undefined = it needs the primary. */
  readonly replica?: string;
}

/** Measures of Redis, as this process last took them. */
export interface RedisMeasures {
  /** Time by which this process's clock is ahead of that of Redis, milliseconds. */
  readonly clockOffMs: number;
  /** Duration of the command that Redis answered last, milliseconds. */
  readonly lastTripMs: number;
}

interface Connection {
  readonly opening: Promise<Redis>;
  ready?: Redis;
}

/**
 * Connections to the primaries of one Redis: a single server, a Sentinel group, or a Cluster. Each connection
 * is one session: when it ends, every command in flight fails, and the next call opens a new connection.
 * Commands are neither queued while disconnected nor ever sent twice.
 */
export class RedisNodes {
  readonly #config: RedisConfig;
  readonly #options: FreshOptions;
  readonly #seeds: readonly Node[];
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #reach: ReachLog;
  readonly #deadlines: Deadlines<Redis>;
  readonly #connections = new Map<string, Connection>();
  readonly #failures = new Map<string, { attempts: number; retryAtMs: number; cause: unknown }>();
  readonly #demands: Demands;
  #slots: readonly SlotRange[] = [];
  /** Addresses of the members of the Cluster, as it last told them. */
  #members: { readonly primaries: readonly Node[]; readonly replicas: readonly Node[] } = {
    ...{ primaries: [], replicas: [] },
  };
  /** The ids of the Cluster's nodes: an address that belongs to another Cluster has none of them. */
  #clusterIds: ReadonlySet<string> = new Set();
  /** The node that another has named as the owner of a slot. */
  #movedTo: Node | undefined;
  #loading: Promise<void> | undefined;
  #areSeedsGone = false;
  /** True once a server was found fit. Rights that are taken away later make calls fail one by one. */
  #wasFit = false;
  #closed = false;
  #answeredAtMs = Number.NEGATIVE_INFINITY;
  /** When the certificates of Redis and the Sentinels end. */
  readonly certificates: CertificateEnds = new Map();
  /** Duration of the command that Redis answered last, milliseconds. */
  lastTripMs = 0;

  constructor(config: RedisConfig, clock: Clock, log: Logger, demands: Demands = { commands: [] }) {
    this.#config = config;
    this.#demands = demands;
    this.#options = new FreshOptions(config, clock, (socket, host) =>
      noteCertificate(this.certificates, `Sentinel ${host}`, socket),
    );
    this.#options.read(); // a fault ends the start
    this.#seeds = config.REDIS_URL.map(({ host, port }) => ({ host, port }));
    this.#clock = clock;
    this.#log = log;
    this.#reach = new ReachLog(clock, log, demands.replica && `The replica ${demands.replica}`);
    this.#deadlines = new Deadlines(clock, config.REDIS_COMMAND_TIMEOUT_MS, cut);
  }

  /** The reason why Redis was out of reach at the last attempt to connect; undefined = it was in reach. */
  get trouble(): string | undefined {
    return this.#reach.trouble;
  }

  /** Time since Redis last answered a command, milliseconds. */
  get silentMs(): number {
    return this.#clock.monotonicMs() - this.#answeredAtMs;
  }

  get isCluster(): boolean {
    return this.#config.REDIS_MODE === 'cluster';
  }

  /**
   * Returns a ready connection to the primary that has `key`, synchronously if it exists. `lane` separates
   * connections to the same server, for commands that block their connection. Rejects with
   * SERVICE_UNAVAILABLE: immediately during the backoff after a failure (50 ms, doubling to 2 s), otherwise
   * after REDIS_CONNECT_TIMEOUT_MS at the latest, and the 5 s of REDIS_PASSWORD_COMMAND.
   */
  connection(key: string, lane = 'main'): Redis | Promise<Redis> {
    if (this.#closed) return Promise.reject(unavailable('shutting down'));
    if (!this.isCluster) return this.#open(undefined, lane);
    return this.#nodeOf(key).then((node) => this.#open(node, lane));
  }

  /**
   * Returns ready connections to all primaries: those of the Cluster at this moment, or else the only one.
   * Rejects as `connection` does.
   */
  async primaries(): Promise<Redis[]> {
    if (!this.isCluster) return [await this.connection('')];
    await this.#loadSlots();
    const nodes = new Map(this.#slots.map(({ node }) => [`${node.host}:${node.port}`, node]));
    return Promise.all([...nodes.values()].map((node) => this.#open(node, 'main')));
  }

  /** Forgets which node has which key. Call it after a node answered MOVED or ASK. */
  forgetOwners(): void {
    this.#slots = [];
  }

  /** Closes every connection; commands in flight are rejected. */
  async close(): Promise<void> {
    this.#closed = true;
    const open = await Promise.allSettled([...this.#connections.values()].map(({ opening }) => opening));
    for (const result of open) if (result.status === 'fulfilled') cut(result.value);
  }

  /** @param isAsked true = a member is only asked for its account of the Cluster: others may give it */
  #open(node: Node | undefined, lane: string, isAsked = false): Redis | Promise<Redis> {
    const id = node ? `${node.host}:${node.port}/${lane}` : lane;
    const existing = this.#connections.get(id);
    if (existing) return existing.ready ?? existing.opening;
    const failure = this.#failures.get(id);
    if (failure && this.#clock.monotonicMs() < failure.retryAtMs) {
      return Promise.reject(unavailable('Redis is out of reach', failure.cause));
    }
    const forget = () => {
      if (this.#connections.get(id) === connection) this.#connections.delete(id);
    };
    const opening = this.#connect({ node, id, isAsked }, forget);
    const connection: Connection = { opening };
    this.#connections.set(id, connection);
    opening.then(
      (redis) => {
        connection.ready = redis;
      },
      () => undefined, // the callers that wait get the error
    );
    return opening;
  }

  /** @param refused the options with which Redis has just refused a connection */
  async #connect(
    to: { readonly node: Node | undefined; readonly id: string; readonly isAsked: boolean },
    forget: () => void,
    refused?: Options,
  ): Promise<Redis> {
    const { node, id, isAsked } = to;
    let options: Options;
    try {
      options = await this.#options.forConnection(refused);
    } catch (error) {
      forget();
      throw this.#failed(id, error, isAsked);
    }
    const redis = new Redis({ ...options, ...node, readOnly: this.#demands.replica !== undefined });
    let lastError: unknown;
    redis.on('error', (error: Error) => {
      lastError = error;
    });
    redis.on('end', () => {
      forget();
      // If the server ended the connection, ioredis would otherwise keep its connections to the Sentinels
      // open.
      redis.disconnect();
      if (lastError) this.#log.debug({ connection: id, reason: String(lastError) }, 'Redis connection ended');
    });
    try {
      const limitMs = this.#config.REDIS_CONNECT_TIMEOUT_MS;
      await atMost(
        this.#clock,
        limitMs,
        node?.host === NAMELESS
          ? Promise.reject(new Error(`a node of the Redis Cluster (port ${node.port}) ${NAMELESS_ADVICE}`))
          : redis.connect().then(() => this.#prepare(redis)),
        () =>
          unavailable(
            `not connected within ${limitMs} ms: check host, port and redis:// or rediss:// in REDIS_URL, and the network in between`,
          ),
      );
      this.#wasFit = true;
      this.#failures.delete(id);
      this.#reach.reached();
      const stream = socketOf(redis);
      if (stream) {
        noteCertificate(this.certificates, `Redis ${stream.remoteAddress}:${stream.remotePort}`, stream);
        readCopies(stream);
        writeTogether(stream);
      }
      return redis;
    } catch (error) {
      cut(redis);
      const cause = lastError ?? error;
      if (refused === undefined && !this.#closed && (await this.#isRotated(cause, options))) {
        this.#log.warn('Redis refused a password that has changed meanwhile; trying the new one');
        return this.#connect(to, forget, options);
      }
      forget();
      if (cause instanceof Unfit && !this.#wasFit && !this.#closed) this.#demands.onUnfit?.(cause.message);
      if (node && this.#slots.some((range) => isSameNode(range.node, node))) this.forgetOwners();
      throw this.#failed(id, cause, isAsked);
    }
  }

  /** Tells whether Redis refused a password, and there is another one by now. */
  async #isRotated(cause: unknown, options: Options): Promise<boolean> {
    if (!REFUSES_PASSWORD.test(String(cause))) return false;
    const present = await this.#options.forConnection(options).catch(() => options);
    return !isSameProof(present, options);
  }

  /** Notes a failed attempt to connect, and returns its error. */
  #failed(id: string, cause: unknown, isAsked: boolean): ApiError {
    const attempts = (this.#failures.get(id)?.attempts ?? 0) + 1;
    const waitMs = backoffMs(attempts - 1, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, Math.random);
    if (!this.#closed && !isAsked) this.#reach.failed(cause);
    this.#failures.set(id, { attempts, retryAtMs: this.#clock.monotonicMs() + waitMs, cause });
    return unavailable('Redis is out of reach', cause);
  }

  /** Rejects unless the server can be used. */
  async #prepare(redis: Redis): Promise<void> {
    await selectDatabase(redis, this.#config.REDIS_URL[0]?.database ?? 0);
    await refuseUnusable(redis, this.#wasFit ? [] : this.#demands.commands);
  }

  async #nodeOf(key: string): Promise<Node> {
    const slot = slotOf(key);
    const lookUp = () => this.#slots.find(({ from, to }) => from <= slot && slot <= to)?.node;
    const present = lookUp();
    if (present) return present;
    await this.#loadSlots();
    const node = lookUp();
    if (!node) throw unavailable('no node of the Redis Cluster owns this slot');
    return node;
  }

  #loadSlots(): Promise<void> {
    this.#loading ??= this.#askForSlots().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  /**
   * Goes by the newest account that members give of the Cluster which was followed so far: any of them may have been removed,
   * be cut off or be slow. Replicas are asked only if no other answers.
   */
  async #askForSlots(): Promise<void> {
    const moved = this.#movedTo ? [this.#movedTo] : [];
    this.#movedTo = undefined;
    const { primaries, replicas } = this.#members;
    const answers = await this.#viewsFrom([...moved, ...primaries, ...this.#seeds]);
    const { cause, isOther } = answers;
    this.#noteSeeds(answers.useless);
    const views = answers.views.length > 0 ? answers.views : (await this.#viewsFrom(replicas)).views;
    const [first] = views;
    if (!first) {
      const reason = isOther
        ? new Error('REDIS_URL leads to another Redis Cluster than before: restart to follow that')
        : cause;
      if (!this.#closed) this.#reach.failed(reason);
      throw unavailable('no node of the Redis Cluster is in reach', cause);
    }
    // At the start, addresses of several Clusters may be listed: the first that answers counts.
    const same = views.filter((view) => isOfSame(view, first.ids));
    this.#clusterIds = new Set(same.flatMap(({ ids }) => [...ids]));
    this.#members = {
      primaries: same.flatMap((view) => view.ranges.map(({ node }) => node)),
      replicas: same.flatMap((view) => view.replicas),
    };
    this.#slots = newestOwners(same);
  }

  /** Resolves with the accounts that count when all have answered, or OTHER_VIEWS_MS after the first. */
  async #viewsFrom(nodes: readonly Node[]) {
    const views: ClusterView[] = [];
    const some = Promise.withResolvers<void>();
    /** Nodes without an account that counts. */
    const useless: Node[] = [];
    let cause: unknown;
    let isOther = false;
    const distinct = nodes.filter((node, i) => nodes.findIndex((other) => isSameNode(node, other)) === i);
    const answers = distinct.map(async (node) => {
      try {
        const view = await this.#viewFrom(node);
        const isSame = isOfSame(view, this.#clusterIds);
        if (!isSame) isOther = true;
        if (!isSame || view.ranges.length === 0) return useless.push(node);
        views.push(view);
        return some.resolve();
      } catch (error) {
        cause = error;
        return useless.push(node);
      }
    });
    const late = some.promise.then(() => pause(this.#clock, OTHER_VIEWS_MS));
    await Promise.race([Promise.all(answers), late]);
    return { views, cause, isOther, useless };
  }

  /** Tells once that no address of REDIS_URL leads to the Cluster: this process knows its members, but the next would not. */
  #noteSeeds(useless: readonly Node[]): void {
    const areGone = this.#seeds.every((seed) => useless.some((node) => isSameNode(node, seed)));
    if (areGone && !this.#areSeedsGone && this.#clusterIds.size > 0)
      this.#log.warn('none of REDIS_URL is a member any more that answers: name present members there');
    this.#areSeedsGone = areGone;
  }

  async #viewFrom(node: Node): Promise<ClusterView> {
    const redis = await this.#open(node, 'main', true);
    const [slots, nodes] = await Promise.all([
      this.within(redis, redis.cluster('SLOTS')),
      // Users whose rights an older release wrote may not ask; then no account is known to be newer.
      this.within(redis, redis.cluster('NODES')).then(String, () => undefined),
    ]);
    return viewOf(slots as Parameters<typeof viewOf>[0], nodes, node, (host) => this.#hostOf(host));
  }

  /** The host of a node of CLUSTER SLOTS. Certificates have host names, so over TLS a node's name comes before its address. */
  #hostOf([host, , , metadata = []]: readonly [string, number, string, unknown[]?]): string {
    const name = this.#config.REDIS_URL[0]?.hasTls ? metadata[metadata.indexOf('hostname') + 1] : '';
    return (metadata.includes('hostname') && typeof name === 'string' && name) || host;
  }

  /** Runs `work` on the connection to the primary that has `key`; see `connection` and `within`. */
  async run<T>(key: string, work: (redis: Redis) => Promise<T>, lane?: string): Promise<T> {
    const redis = await this.connection(key, lane);
    return this.within(redis, work(redis));
  }

  /**
   * Waits for `work` on a connection, and translates its errors with `asOutage`. After
   * REDIS_COMMAND_TIMEOUT_MS cuts the connection, which fails all work on it, so that no late reply is taken
   * for the reply to another command.
   */
  within<T>(redis: Redis, work: Promise<T>): Promise<T> {
    const deadline = this.#deadlines.begin(redis);
    return work.then(
      (value) => {
        this.#deadlines.end(deadline);
        this.#answeredAtMs = this.#clock.monotonicMs();
        this.lastTripMs = this.#config.REDIS_COMMAND_TIMEOUT_MS - (deadline.dueMs - this.#answeredAtMs);
        return value;
      },
      (error) => {
        this.#deadlines.end(deadline);
        if (!deadline.hasPassed) throw this.asOutage(redis, error);
        throw unavailable(`Redis did not answer within ${this.#config.REDIS_COMMAND_TIMEOUT_MS} ms`);
      },
    );
  }

  /**
   * Interprets the error of a failed command. A lost connection is an outage. So is a reply that the node
   * cannot serve now (deposed, loading, out of memory, not permitted …). The connection to a deposed or wrong
   * node is cut, so that the next call finds the right one. Returns any other error unchanged, because it is
   * a bug.
   */
  asOutage(redis: Redis, error: unknown): unknown {
    if (error instanceof ApiError) return error;
    if (!isReplyError(error)) return unavailable('the connection to Redis was lost', error);
    const kind = LACKS_RIGHTS.test(error.message) ? 'NOPERM' : (/^[A-Z]+/.exec(error.message)?.[0] ?? '');
    if (kind === 'MOVED' || kind === 'ASK' || kind === 'CLUSTERDOWN') {
      const [, host = '', port] = /^MOVED \d+ (\S+):(\d+)$/.exec(error.message) ?? [];
      if (host !== '' && host !== NAMELESS) this.#movedTo = { host, port: Number(port) };
      this.forgetOwners();
    } else if (kind === 'READONLY' || kind === 'NOREPLICAS') cut(redis);
    else if (!REFUSALS.has(kind)) return error;
    return unavailable(`Redis refused: ${kind}`, error);
  }
}

/** Answers to a password that is no longer, or not yet, that of the user. */
const REFUSES_PASSWORD = /\b(WRONGPASS|NOAUTH)\b/;

const REFUSALS = new Set(
  'LOADING MISCONF OOM NOPERM NOAUTH WRONGPASS TRYAGAIN MASTERDOWN BUSY UNKILLABLE'.split(' '),
);

/** Answers of Redis 7.0, and of later ones, if a script runs a command for which its user lacks rights. */
const LACKS_RIGHTS = /^ERR (The user executing the script|ACL failure in script)/;

/**
 * Ends a connection immediately, even if the other side no longer answers. Does so only once, because each
 * call would add a listener.
 */
export function cut(redis: Redis): void {
  const stream = socketOf(redis);
  if (stream?.destroyed) return;
  redis.disconnect();
  stream?.destroy();
}

/**
 * Returns the connection's socket; undefined before the first. In ioredis' types the socket is always
 * present.
 */
const socketOf = (redis: Redis): Socket | undefined => redis.stream;

/**
 * Makes a stream send all writes of one turn of the event loop together, at the end of the turn. A socket
 * would otherwise make a system call for each write (10 µs), and might wake its reader for each.
 */
export function writeTogether(stream: Writable): void {
  const write = stream.write.bind(stream);
  let waits = false;
  const go = () => {
    waits = false;
    stream.uncork();
  };
  const together = (...args: Parameters<typeof write>) => {
    if (!waits) {
      waits = true;
      stream.cork();
      setImmediate(go);
    }
    return write(...args);
  };
  stream.write = together as typeof stream.write;
}
