import type { Redis } from 'ioredis';
import { type Clock, pause } from '../../process/clock.ts';
import type { Logger } from '../../process/log.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import { apiKeys } from '../../redis/redis-keys.ts';
import {
  clockOffMs,
  crashFaults,
  evictionFaults,
  failoverFaults,
  type RedisFacts,
  readFacts,
} from '../../redis/server-facts.ts';

export const INSPECTIONS_MS = 5000;
const RETRY_MS = 500;

/** The last inspection of one server. */
interface Inspection {
  readonly facts: RedisFacts;
  readonly faults: readonly string[];
}

/**
 * Checks whether acknowledged writes survive a crash or power cut of their server, and a failover: the server
 * has them on its disk, writes wait for all its replicas, and it evicts nothing. Only `durable` in responses depends on it: after its
 * write, each call inspects the server that made the write. An inspection of all servers every 5 s serves the
 * metrics and the log.
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
  /** Run ids of servers that were seen without an append-only file and not yet with a complete one. */
  readonly #off = new WeakMap<Redis, string>();
  #report: string | undefined;
  #servers: readonly RedisFacts[] = [];
  #clockOffMs = 0;
  /** True once Redis has answered. */
  reached = false;
  /** True if Redis answered the last inspection. */
  answering = false;
  /** True if the last inspection found all servers durable. */
  durable = false;

  constructor(nodes: RedisNodes, replicas: number, clock: Clock, log: Logger) {
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.#clock = clock;
    this.#log = log;
  }

  /** The servers that answered the last inspection. */
  get servers(): readonly RedisFacts[] {
    return this.#servers;
  }

  /** Time by which this process's clock was ahead of that of the Redis that it last inspected, milliseconds. */
  get clockOffMs(): number {
    return this.#clockOffMs;
  }

  /** Inspects until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#inspectAll();
        this.answering = true;
        await pause(this.#clock, INSPECTIONS_MS, this.#stop.signal);
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
   * Tells whether the settings of the server that has the API make its acknowledged writes durable. Uses an
   * inspection that begins now or later, never an earlier result. Never rejects; false if the inspection
   * fails.
   */
  readonly keeps = async (apiId: string): Promise<boolean> => {
    try {
      const { faults } = await this.#inspectAfterNow(await this.#nodes.connection(apiKeys(apiId).head));
      return faults.length === 0;
    } catch (error) {
      this.#log.debug({ err: error }, 'not known to be durable');
      return false;
    }
  };

  /**
   * Inspects a server once at a time, however many callers wait; a call during an inspection gets the next
   * one.
   */
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

  /** Forgets an inspection that ended, and follows the next one, if any. */
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
    const [startedAt, startedAtMs] = [this.#clock.wallMs(), this.#clock.monotonicMs()];
    const facts = await readFacts(this.#nodes, redis);
    this.#clockOffMs =
      clockOffMs(startedAt, this.#clock.monotonicMs() - startedAtMs, facts.timeMs) ?? this.#clockOffMs;
    const wasOff = this.#wasOff(redis, facts);
    return {
      facts,
      faults: [
        ...crashFaults(facts, wasOff),
        ...failoverFaults(facts, this.#replicas),
        ...evictionFaults(facts),
      ],
    };
  }

  /**
   * True if the append-only file is off, or was seen off in this run and is not complete yet. A restart reads
   * what is on the disk.
   */
  #wasOff(redis: Redis, { settings, runId, rewriting }: RedisFacts): boolean {
    const appendOnly = settings.get('appendonly');
    if (appendOnly === 'no') this.#off.set(redis, runId);
    else if (this.#off.get(redis) !== runId || !rewriting) this.#off.delete(redis);
    return this.#off.has(redis);
  }

  /** Rejects if a server did not answer; the answers of the others are still used. */
  async #inspectAll(): Promise<void> {
    const servers = await this.#nodes.primaries();
    const results = await Promise.allSettled(servers.map((redis) => this.#inspectAfterNow(redis)));
    const inspections = results.flatMap((result, i) =>
      result.status === 'fulfilled' ? [{ server: nameOf(servers[i]), ...result.value }] : [],
    );
    this.reached ||= inspections.length > 0;
    if (inspections.length > 0) this.#servers = inspections.map(({ facts }) => facts);
    this.#say(inspections);
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) throw failure.reason;
    this.durable = inspections.every(({ faults }) => faults.length === 0);
  }

  /** Logs the findings at the start and whenever they change. */
  #say(inspections: readonly (Inspection & { server: string })[]): void {
    const wrong = inspections.filter(({ faults }) => faults.length > 0);
    const report = JSON.stringify(wrong.map(({ server, faults }) => [server, faults]));
    if (report === this.#report) return;
    this.#report = report;
    for (const { server, faults } of wrong)
      this.#log.error({ durable: false, server }, `not durable: ${faults.join('; ')}`);
    if (wrong.length === 0)
      this.#log.info(
        this.#good(inspections.map(({ facts }) => facts)),
        'Redis is durable: acknowledged writes survive a crash, a power cut and a failover',
      );
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
