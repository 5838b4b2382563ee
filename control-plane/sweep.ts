import { randomUUID } from 'node:crypto';
import { type Clock, pause } from '#shared/clock.ts';
import { apiKeys, apiList, metaKey, ownerKey, recordKey } from '#shared/layout.ts';
import type { Logger } from '#shared/log.ts';
import type { RedisNodes } from '#shared/redis.ts';
import { Script } from '#shared/script.ts';
import type { Apis } from './apis.ts';
import type { ChangeLog, Killed } from './change-log.ts';
import { type Fence, fenceMs } from './fence.ts';
import type { Keys } from './keys.ts';
import type { DurableWriter } from './redis-change-log.ts';

const setLeaseScript = new Script(new URL('./lua/set-lease.lua', import.meta.url));
const sweepScript = new Script(new URL('./lua/sweep-api.lua', import.meta.url));
const forgetScript = new Script(new URL('./lua/forget-api.lua', import.meta.url));

/** Rest between two looks at a page of APIs, and the page's size: bounds what the sweep costs Redis. */
const TICK_MS = 1000;
const APIS_PER_TICK = 200;
/** A log idle for this long, with followers, gets a no-op, so that crashed ones are found before a disable waits for them. */
const IDLE_MS = 30_000;
/** Records of a deleted API removed by one script. */
const SWEEP_BATCH = 500;

/** What this control plane saw of an API, on its own monotonic clock. */
interface Seen {
  sequence: number;
  sinceMs: number;
  /** Followers found killed, by name and kill, and since when. */
  killed: Map<string, { killed: Killed; sinceMs: number }>;
  /** When this process first saw nothing left to sweep of the deleted API. */
  emptySinceMs?: number;
  /** Of this process's own change of the lease. */
  leaseToken?: string;
  /** A lowered lease that fences may follow once it was seen unchanged for one old fence. */
  lowering?: { token: string; sinceMs: number };
}

interface Head {
  readonly sequence: number;
  readonly grantedMs: number;
  readonly fencedMs: number;
  readonly token: string;
  readonly created: boolean;
  readonly deleted: boolean;
  readonly members: number;
  readonly killed: readonly Killed[];
}

/**
 * What happens to APIs without anybody asking: crashed followers are found by no-ops and removed, a changed
 * lease is brought in, deleted APIs are taken apart. Every control plane does it; nothing is locked, because
 * each step is either conditional or harmless to repeat, and every wait is on the waiting process's own clock.
 */
export class Sweep {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #log: ChangeLog;
  readonly #fence: Fence;
  readonly #apis: Apis;
  readonly #keys: Keys;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #leaseMs: number;
  readonly #deposedMs: number;
  readonly #startedMs: number;
  readonly #seen = new Map<string, Seen>();
  readonly #stop = new AbortController();

  constructor(options: {
    nodes: RedisNodes;
    writer: DurableWriter;
    log: ChangeLog;
    fence: Fence;
    apis: Apis;
    keys: Keys;
    clock: Clock;
    logger: Logger;
    leaseMs: number;
    deposedMs: number;
  }) {
    this.#nodes = options.nodes;
    this.#writer = options.writer;
    this.#log = options.log;
    this.#fence = options.fence;
    this.#apis = options.apis;
    this.#keys = options.keys;
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#leaseMs = options.leaseMs;
    this.#deposedMs = options.deposedMs;
    this.#startedMs = options.clock.wallMs();
  }

  /** Sweeps until `stop`; never rejects. */
  async run(): Promise<void> {
    let after = '';
    while (!this.#stop.signal.aborted) {
      try {
        const ids = await this.#apis.ids(after, APIS_PER_TICK);
        for (const apiId of ids) await this.#visit(apiId);
        after = ids.length < APIS_PER_TICK ? '' : (ids.at(-1) ?? '');
      } catch (error) {
        this.#logger.debug({ err: error }, 'the sweep is waiting for Redis');
      }
      await pause(this.#clock, TICK_MS, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  async #visit(apiId: string): Promise<void> {
    const head = await this.#read(apiId);
    if (!head.created) {
      this.#seen.delete(apiId);
      return;
    }
    const nowMs = this.#clock.monotonicMs();
    const seen = this.#seen.get(apiId) ?? {
      sequence: -1,
      sinceMs: nowMs,
      killed: new Map(),
    };
    this.#seen.set(apiId, seen);
    if (seen.sequence !== head.sequence) Object.assign(seen, { sequence: head.sequence, sinceMs: nowMs });
    await this.#reapKilled(apiId, head, seen, nowMs);
    if (head.deleted) return this.#takeApart(apiId, head, seen, nowMs);
    if (head.grantedMs !== this.#leaseMs || head.fencedMs !== this.#leaseMs)
      await this.#changeLease(apiId, head, seen);
    if (head.members > 0 && nowMs - seen.sinceMs >= IDLE_MS) await this.#ping(apiId, head.sequence);
  }

  /** A no-op, unless somebody else wrote first. Its fence kills who does not answer. */
  async #ping(apiId: string, sequence: number): Promise<void> {
    const write = { apiId, operation: 'noop', keyId: '', fields: {}, condition: String(sequence) } as const;
    const written = await this.#log.write(write);
    if (written.status === 'OK') this.#fence.track(apiId, '', written);
  }

  /** Removes followers that this process has seen killed for one fence of its own. */
  async #reapKilled(apiId: string, head: Head, seen: Seen, nowMs: number): Promise<void> {
    const fence = fenceMs(head.fencedMs, this.#deposedMs);
    seen.killed = new Map(
      head.killed.map((killed) => {
        const id = `${killed.name} ${killed.kill}`;
        return [id, seen.killed.get(id) ?? { killed, sinceMs: nowMs }];
      }),
    );
    const due = [...seen.killed.values()].filter(({ sinceMs }) => nowMs - sinceMs >= fence);
    if (due.length > 0)
      await this.#log.reap(
        apiId,
        due.map(({ killed }) => killed),
      );
  }

  /**
   * Brings the configured lease in. The process that started last decides, by the start time (of its own clock)
   * that leads the token; so control planes with different leases, as in a roll-out, never take turns.
   */
  async #changeLease(apiId: string, head: Head, seen: Seen): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    if (head.grantedMs !== this.#leaseMs) {
      const decidedMs = Number.parseInt(head.token, 10) || 0;
      if (decidedMs >= this.#startedMs && head.token !== seen.leaseToken) return;
      seen.leaseToken = `${this.#startedMs}.${randomUUID()}`;
      const set = (step: string) => this.#setLease(apiId, step, seen.leaseToken ?? '');
      if (this.#leaseMs > head.fencedMs && !(await set('fence-first'))) return;
      if (!(await set('grant'))) return;
      this.#logger.info({ apiId, fromMs: head.grantedMs, toMs: this.#leaseMs }, 'lease changed');
      return;
    }
    if (head.fencedMs <= head.grantedMs) return;
    if (seen.lowering?.token !== head.token) seen.lowering = { token: head.token, sinceMs: nowMs };
    if (nowMs - seen.lowering.sinceMs < fenceMs(head.fencedMs, this.#deposedMs)) return;
    await this.#setLease(apiId, 'fence-last', head.token);
  }

  async #setLease(apiId: string, step: string, token: string): Promise<boolean> {
    const { reply, replicated } = await this.#writer.run(
      setLeaseScript,
      [apiKeys(apiId).head],
      [step, this.#leaseMs, token],
    );
    return (reply as string[])[0] === 'OK' && replicated;
  }

  /** One batch of a deleted API's records, pointers first; at the end, two fences later, the API itself. */
  async #takeApart(apiId: string, head: Head, seen: Seen, nowMs: number): Promise<void> {
    const { head: headKey, log, members, index } = apiKeys(apiId);
    const redis = await this.#nodes.connection(headKey);
    const keyIds = await this.#nodes.within(redis, redis.zrange(index, '0', String(SWEEP_BATCH - 1)));
    if (keyIds.length > 0) {
      await Promise.all(
        keyIds.map(async (keyId) => {
          const secretHash = await this.#keys.secretHashOf(apiId, keyId);
          if (secretHash) await this.#keys.forgetPointers(apiId, keyId, secretHash);
        }),
      );
      const prefixes = [recordKey(apiId, ''), metaKey(apiId, ''), ownerKey(apiId, '')];
      await this.#writer.run(sweepScript, [headKey, index], [...prefixes, ...keyIds]);
      return;
    }
    seen.emptySinceMs ??= nowMs;
    if (nowMs - seen.emptySinceMs < 2 * fenceMs(head.fencedMs, this.#deposedMs)) return;
    const { reply } = await this.#writer.run(forgetScript, [headKey, log, members, index], []);
    if (reply !== 1) return;
    this.#seen.delete(apiId);
    const list = await this.#nodes.connection(apiList);
    await this.#nodes.within(list, list.zrem(apiList, apiId));
    // Somebody may have created it anew in between.
    if ((await this.#read(apiId)).created) await this.#nodes.within(list, list.zadd(apiList, 0, apiId));
    this.#logger.info({ apiId }, 'a deleted API is gone');
  }

  async #read(apiId: string): Promise<Head> {
    const { head, members } = apiKeys(apiId);
    const redis = await this.#nodes.connection(head);
    const [fields, count, killed] = await this.#nodes.within(
      redis,
      Promise.all([
        redis.hmget(head, 's', 'L', 'Lf', 't', 'c', 'deleted'),
        redis.zcard(members),
        redis.zrangebyscore(members, '-inf', '(0', 'WITHSCORES'),
      ]),
    );
    const [sequence, granted, fenced, token, created, deleted] = fields;
    return {
      sequence: Number(sequence ?? 0),
      grantedMs: Number(granted ?? 0),
      fencedMs: Number(fenced ?? 0),
      token: token ?? '',
      created: Boolean(created),
      deleted: Boolean(deleted),
      members: count,
      killed: Array.from({ length: killed.length / 2 }, (_, i) => ({
        name: killed[2 * i] ?? '',
        kill: Number(killed[2 * i + 1]),
      })),
    };
  }
}
