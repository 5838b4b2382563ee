import { hostname } from 'node:os';
import { type Clock, pause } from '#shared/clock.ts';
import { generateId } from '#shared/key-format.ts';
import type { Logger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { verifierIds, verifierStatus } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import { APIS_SHOWN_MAX, type FollowedApi, VERSION, type VerifierStatus } from '#shared/verifier-status.ts';
import { asset } from '../assets.ts';
import type { Follower } from '../core/follower.ts';
import type { Verifier } from '../core/verifier.ts';

const reportScript = new Script(asset('redis/lua/report-status.lua'));

/** A report outlives this many periods, so that one lost write does not take a verifier off the list. */
const PERIODS_KEPT = 3;

/** Reports this verifier to the fleet's list. Nothing waits for it and nothing decides on it. */
export class StatusReport {
  readonly #nodes: RedisNodes;
  readonly #verifier: Verifier;
  readonly #verdicts: () => VerifierStatus['verdicts'];
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #periodMs: number;
  readonly #startedAt: number;
  readonly #settings: VerifierStatus['settings'] & {};
  /** Id of this process, as the list of verifiers names it. */
  readonly id: string;
  readonly #stop = new AbortController();

  constructor(options: {
    nodes: RedisNodes;
    verifier: Verifier;
    verdicts: () => VerifierStatus['verdicts'];
    clock: Clock;
    log: Logger;
    periodMs: number;
    settings: NonNullable<VerifierStatus['settings']>;
  }) {
    this.#nodes = options.nodes;
    this.#verifier = options.verifier;
    this.#verdicts = options.verdicts;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#periodMs = options.periodMs;
    this.#settings = options.settings;
    this.#startedAt = options.clock.wallMs();
    this.id = generateId('verifier', this.#startedAt);
  }

  /** Reports until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#attempt('report', () => this.#report());
      await pause(this.#clock, this.#periodMs, this.#stop.signal);
    }
  }

  /** Takes this verifier off the list, where Redis can be reached. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#attempt('leave the list', async () => {
      await this.#nodes.run(verifierIds, (redis) => redis.del(verifierStatus(this.id)));
      await this.#nodes.run(verifierIds, (redis) => redis.zrem(verifierIds, this.id));
    });
  }

  async #report(): Promise<void> {
    const keys = [verifierIds, verifierStatus(this.id)];
    const args = [this.id, JSON.stringify(this.#status()), PERIODS_KEPT * this.#periodMs, verifierStatus('')];
    await this.#nodes.run(verifierIds, (redis) => reportScript.run(redis, keys, args));
  }

  #status(): VerifierStatus {
    const { followers, cache } = this.#verifier;
    const apis = followers.map(standing).sort(worstFirst).slice(0, APIS_SHOWN_MAX);
    return {
      id: this.id,
      host: hostname(),
      version: VERSION,
      startedAt: this.#startedAt,
      reportedAt: this.#clock.wallMs(),
      verdicts: this.#verdicts(),
      keysInMemory: cache.size,
      settings: this.#settings,
      apis,
      apisNotShown: followers.length - apis.length,
    };
  }

  async #attempt(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#log.debug({ err: error }, `the verifier could not ${what}`);
    }
  }
}

function standing(follower: Follower): FollowedApi {
  const { apiId, member, position, lag, leaseRemainingMs } = follower;
  const state = follower.canAnswer ? 'live' : follower.live ? 'fenced' : 'joining';
  return { apiId, member, state, position, lag, leaseRemainingMs: Math.round(leaseRemainingMs) };
}

const worstFirst = (a: FollowedApi, b: FollowedApi) =>
  Number(a.state === 'live') - Number(b.state === 'live') ||
  b.lag - a.lag ||
  a.leaseRemainingMs - b.leaseRemainingMs;
