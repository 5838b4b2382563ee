import type { Redis } from 'ioredis';
import { type Clock, pause } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { crashFaults, evictionFaults, type RedisFacts, readFacts } from './server-facts.ts';

const PERIOD_MS = 5000;
const RETRY_MS = 500;

/** One server, as it was when we last looked at it. */
interface Inspection {
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
  readonly #inspections = new WeakMap<
    Redis,
    { running: Promise<Inspection>; next: Promise<Inspection> | undefined }
  >();
  /** Servers seen without an append-only file, by their run; until they are seen with a complete one. */
  readonly #off = new WeakMap<Redis, string>();
  #report: string | undefined;
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
        await this.#inspectAll();
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
      const { faults } = await this.#inspectAfterNow(await this.#nodes.connection(key));
      return faults.length === 0;
    } catch (error) {
      this.#log.debug({ err: error }, 'not known to be durable');
      return false;
    }
  }

  /** One look at a server at a time, however many ask; who asks during one gets the next. */
  #inspectAfterNow(redis: Redis): Promise<Inspection> {
    const inspections = this.#inspections.get(redis);
    if (inspections === undefined) {
      const first = { running: this.#inspect(redis), next: undefined };
      this.#inspections.set(redis, first);
      this.#follow(redis, first.running);
      return first.running;
    }
    inspections.next ??= inspections.running.then(
      () => this.#inspect(redis),
      () => this.#inspect(redis),
    );
    return inspections.next;
  }

  /** Forgets a look that ended, and follows the one that begins in its place. */
  #follow(redis: Redis, inspection: Promise<Inspection>): void {
    const end = () => {
      const next = this.#inspections.get(redis)?.next;
      if (next === undefined) return void this.#inspections.delete(redis);
      this.#inspections.set(redis, { running: next, next: undefined });
      this.#follow(redis, next);
    };
    inspection.then(end, end);
  }

  async #inspect(redis: Redis): Promise<Inspection> {
    const facts = await readFacts(this.#nodes, redis);
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
  async #inspectAll(): Promise<void> {
    const servers = await this.#nodes.primaries();
    const results = await Promise.allSettled(servers.map((redis) => this.#inspectAfterNow(redis)));
    const inspections = results.flatMap((result, i) =>
      result.status === 'fulfilled' ? [{ server: nameOf(servers[i]), ...result.value }] : [],
    );
    this.reached ||= inspections.length > 0;
    this.#evictedKeys = inspections.reduce((sum, { facts }) => sum + facts.evicted, 0);
    this.#say(inspections);
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) throw failure.reason;
    this.durable = inspections.every(({ faults }) => faults.length === 0);
  }

  /** Says what was found at start, and whenever it is something else. */
  #say(inspections: readonly (Inspection & { server: string })[]): void {
    const wrong = inspections.filter(({ faults }) => faults.length > 0);
    const report = JSON.stringify(wrong.map(({ server, faults }) => [server, faults]));
    if (report === this.#report) return;
    this.#report = report;
    for (const { server, faults } of wrong)
      this.#log.error({ durable: false, server }, `not durable: ${faults.join('; ')}`);
    if (wrong.length === 0)
      this.#log.info(this.#good(inspections.map(({ facts }) => facts)), 'Redis keeps what it acknowledges');
  }

  #good(facts: readonly RedisFacts[]): object {
    const [first] = facts;
    return {
      durable: true,
      servers: facts.length,
      replicas: this.#replicas,
      version: first?.version,
      appendfsync: first?.settings.get('appendfsync'),
      memoryMax: first?.memoryMax,
      memoryPolicy: first?.memoryPolicy,
    };
  }
}

function nameOf(redis: Redis | undefined): string {
  const { path, host, port } = redis?.options ?? {};
  return path ?? `${host}:${port}`;
}
