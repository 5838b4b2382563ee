import type { Redis } from 'ioredis';
import { type Clock, pause } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { crashFaults, evictionFaults, lookAt, type RedisFacts } from './server-facts.ts';

const PERIOD_MS = 5000;
const RETRY_MS = 500;

/** One server, as it was when we last looked at it. */
interface Look {
  readonly facts: RedisFacts;
  readonly faults: readonly string[];
}

/**
 * Checks whether Redis keeps what it acknowledges. Only `durable` in our answers depends on it: each answer looks at the
 * server of its write, after the write. A look at all servers every 5 s serves the metrics and the log.
 */
export class DurabilityCheck {
  readonly #nodes: RedisNodes;
  readonly #replicas: number;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #stop = new AbortController();
  readonly #looks = new WeakMap<Redis, { now: Promise<Look>; next: Promise<Look> | undefined }>();
  /** Servers seen without an append-only file, by their run; until they are seen with a complete one. */
  readonly #off = new WeakMap<Redis, string>();
  #said: string | undefined;
  #evictedKeys = 0;
  /** True from the first answer of Redis on. */
  reached = false;
  /** True if Redis answered the last look. */
  answering = false;
  /** True if all servers kept what they acknowledge, at the last look. */
  durable = false;

  constructor(nodes: RedisNodes, replicas: number, clock: Clock, log: Logger) {
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.#clock = clock;
    this.#log = log;
  }

  /** Keys that the servers threw away to make room, since they started; at the last look. */
  get evictedKeys(): number {
    return this.#evictedKeys;
  }

  /** Looks until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#lookAtAll();
        this.answering = true;
        await pause(this.#clock, PERIOD_MS, this.#stop.signal);
      } catch (error) {
        this.answering = false;
        this.durable = false;
        this.#log.debug({ err: error }, 'waiting for Redis');
        await pause(this.#clock, RETRY_MS, this.#stop.signal);
      }
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  /**
   * Tells whether the server that owns `key` keeps what it acknowledged before this call, as far as it is for its
   * settings: by a look that begins now or later. Never rejects: where nothing is known, it is false.
   */
  async keeps(key: string): Promise<boolean> {
    try {
      const { faults } = await this.#lookAfterNow(await this.#nodes.connection(key));
      return faults.length === 0;
    } catch (error) {
      this.#log.debug({ err: error }, 'not known to be durable');
      return false;
    }
  }

  /** One look at a server at a time, however many ask; who asks during one gets the next. */
  #lookAfterNow(redis: Redis): Promise<Look> {
    const looks = this.#looks.get(redis);
    if (looks === undefined) {
      const begun = { now: this.#look(redis), next: undefined };
      this.#looks.set(redis, begun);
      this.#follow(redis, begun.now);
      return begun.now;
    }
    looks.next ??= looks.now.then(
      () => this.#look(redis),
      () => this.#look(redis),
    );
    return looks.next;
  }

  /** Forgets a look that ended, and follows the one that begins in its place. */
  #follow(redis: Redis, look: Promise<Look>): void {
    const ended = () => {
      const next = this.#looks.get(redis)?.next;
      if (next === undefined) return void this.#looks.delete(redis);
      this.#looks.set(redis, { now: next, next: undefined });
      this.#follow(redis, next);
    };
    look.then(ended, ended);
  }

  async #look(redis: Redis): Promise<Look> {
    const facts = await lookAt(this.#nodes, redis);
    const wasOff = this.#wasOff(redis, facts);
    return {
      facts,
      faults: [...(this.#replicas > 0 ? [] : crashFaults(facts, wasOff)), ...evictionFaults(facts)],
    };
  }

  /** True if its append-only file is off, or was and is not complete yet, as far as looks saw. A restart reads what it has. */
  #wasOff(redis: Redis, { settings, runId, rewriting }: RedisFacts): boolean {
    const appendOnly = settings.get('appendonly');
    if (appendOnly === 'no') this.#off.set(redis, runId);
    else if (this.#off.get(redis) !== runId || !rewriting) this.#off.delete(redis);
    return this.#off.has(redis);
  }

  /** Rejects where a server did not answer; what the others said counts all the same. */
  async #lookAtAll(): Promise<void> {
    const servers = await this.#nodes.primaries();
    const looks = await Promise.allSettled(servers.map((redis) => this.#lookAfterNow(redis)));
    const seen = looks.flatMap((look, i) =>
      look.status === 'fulfilled' ? [{ server: nameOf(servers[i]), ...look.value }] : [],
    );
    this.reached ||= seen.length > 0;
    this.#evictedKeys = seen.reduce((sum, { facts }) => sum + facts.evicted, 0);
    this.#say(seen);
    const failed = looks.find((look) => look.status === 'rejected');
    if (failed) throw failed.reason;
    this.durable = seen.every(({ faults }) => faults.length === 0);
  }

  /** Says what was found at start, and whenever it is something else. */
  #say(seen: readonly (Look & { server: string })[]): void {
    const wrong = seen.filter(({ faults }) => faults.length > 0);
    const said = JSON.stringify(wrong.map(({ server, faults }) => [server, faults]));
    if (said === this.#said) return;
    this.#said = said;
    for (const { server, faults } of wrong)
      this.#log.error({ durable: false, server }, `not durable: ${faults.join('; ')}`);
    if (wrong.length === 0)
      this.#log.info(this.#good(seen.map(({ facts }) => facts)), 'Redis keeps what it acknowledges');
  }

  #good(facts: readonly RedisFacts[]): object {
    const [one] = facts;
    return {
      durable: true,
      servers: facts.length,
      replicas: this.#replicas,
      version: one?.version,
      appendfsync: one?.settings.get('appendfsync'),
      memoryMax: one?.memoryMax,
      memoryPolicy: one?.memoryPolicy,
    };
  }
}

function nameOf(redis: Redis | undefined): string {
  const { path, host, port } = redis?.options ?? {};
  return path ?? `${host}:${port}`;
}
