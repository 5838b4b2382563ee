// The entry `keyfence/verifier` of the package.

import { ApiError } from '#shared/contract/errors.ts';
import { type Clock, holdProcess, systemClock } from '#shared/lang/clock.ts';
import { redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import type { FollowerEvents } from '../core/follower.ts';
import { NOT_FOUND, type Verdict, type VerdictSource } from '../core/verdict.ts';
import { createEngine, type Engine, engineLimits, engineSettings, followerLog } from '../engine.ts';
import { Metrics } from '../metrics/metrics.ts';
import { watchState } from '../metrics/state-metrics.ts';
import { engineLog, logFault } from './engine-log.ts';
import { EventListeners } from './event-listeners.ts';
import {
  type KeyVerdict,
  type LocalKeyVerifier,
  type MetricsRegistry,
  type QuestionOptions,
  VerifierError,
  type VerifierEvents,
  type VerifierOptions,
  type WatchOptions,
} from './key-verifier.ts';
import { apiIdFault, camelCase, configFrom, optionsObject, wrongOptions } from './options.ts';
import { type KeylessQuestion, mayBeKey, questionOf, readQuestionOptions } from './questions.ts';
import { readyWithin } from './readiness.ts';
import { registerMetrics } from './registered-metrics.ts';
import { keyVerdict } from './views.ts';
import { LocalWatches, readWatchOptions } from './watches.ts';

export type {
  AskedRateLimit,
  HostLogger,
  KeyVerdict,
  KeyVerifier,
  KnownKey,
  LimitState,
  LocalKeyVerifier,
  MetricsRegistry,
  PermissionQuery,
  QuestionOptions,
  RedisConnectionOptions,
  RefusedKey,
  UnknownKey,
  ValidKey,
  VerifierEvents,
  VerifierOptions,
  WatchOptions,
} from './key-verifier.ts';
export { VerifierError, WatchError } from './key-verifier.ts';

/**
 * Creates a verifier in this process, with the same core and the same promises as the verifier process. It is
 * a member of the fence, so changes wait for it; `close` removes it. Throws a TypeError that names every
 * wrong option.
 */
export function createVerifier(options: VerifierOptions): LocalKeyVerifier {
  return new LocalVerifier(options, systemClock);
}

class LocalVerifier implements LocalKeyVerifier {
  readonly #engine: Engine;
  readonly #metrics = new Metrics();
  /** The engine's verifier, with metrics around it. */
  readonly #verifier: VerdictSource;
  readonly #unregister: (() => void)[] = [];
  readonly #registries = new WeakSet<MetricsRegistry>();
  readonly #listeners = new EventListeners();
  readonly #closing = new AbortController();
  readonly #watches: LocalWatches;
  #closed: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: VerifierOptions, clock: Clock) {
    const { config, apiIds } = readOptions(options);
    const log = engineLog(options.log);
    this.#engine = createEngine({
      config,
      apiIds,
      clock,
      log,
      events: (apiId) => this.#withListeners(apiId, this.#metrics.followerEvents(followerLog(apiId, log))),
      verdicts: () => this.#metrics.verdictTotals,
    });
    this.#verifier = this.#metrics.count(this.#engine.verifier, clock);
    this.#watches = new LocalWatches(this.#engine.verifier, log, clock);
    watchState(this.#metrics.registry, this.#engine.verifier, apiIds, this.#engine);
    this.#engine.start();
  }

  ready(options?: { readonly timeoutMs?: number }): Promise<void> {
    return readyWithin(options, this.#closing.signal, () => this.#engine.missing());
  }

  decide(key: string, options?: QuestionOptions): KeyVerdict | undefined {
    const rest = readQuestionOptions(key, options);
    const verdict = this.#decide(key, rest);
    return verdict && this.#conclude(verdict, rest);
  }

  async verify(key: string, options?: QuestionOptions): Promise<KeyVerdict> {
    const rest = readQuestionOptions(key, options);
    const fromMemory = this.#decide(key, rest);
    if (fromMemory !== undefined) return this.#conclude(fromMemory, rest);
    if (this.#isClosed) throw closedError();
    let verdict: Verdict;
    try {
      verdict = await this.#verifier.lookUp(questionOf(key, rest));
    } catch (error) {
      if (this.#isClosed) throw closedError();
      const { message } = error as Error;
      throw error instanceof ApiError && error.code === 'BAD_REQUEST'
        ? new TypeError(message)
        : new VerifierError('SERVICE_UNAVAILABLE', message);
    }
    return this.#conclude(verdict, rest);
  }

  watch(key: string, options: WatchOptions): AbortSignal {
    return this.#watches.watch(key, readWatchOptions(key, options), options.signal);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  on<E extends keyof VerifierEvents>(event: E, listener: (event: VerifierEvents[E]) => void): () => void {
    return this.#listeners.on(event, listener);
  }

  metrics(): Promise<string> {
    return this.#metrics.registry.metrics();
  }

  registerMetrics(registry: MetricsRegistry): void {
    if (typeof Object(registry).registerMetric !== 'function')
      throw new TypeError('registry: must be a registry of prom-client');
    if (this.#isClosed || this.#registries.has(registry)) return;
    this.#unregister.push(registerMetrics(this.#metrics.registry, registry));
    this.#registries.add(registry);
  }

  #decide(key: string, rest: KeylessQuestion): Verdict | undefined {
    if (this.#isClosed) return undefined;
    return mayBeKey(key)
      ? this.#verifier.decide(questionOf(key, rest))
      : this.#metrics.countVerdict(NOT_FOUND);
  }

  #conclude(verdict: Verdict, { clientIp, isRecheck }: KeylessQuestion): KeyVerdict {
    if (verdict.code !== 'VALID' && !isRecheck)
      this.#engine.refusals?.note(verdict, { requestId: '', clientIp });
    return keyVerdict(verdict);
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#closing.abort();
    this.#watches.close();
    for (const unregister of this.#unregister) unregister();
    const hold = holdProcess();
    try {
      await this.#engine.stop();
      await this.#engine.close();
    } finally {
      hold.cancel();
    }
  }

  /** Adds the application's listeners, which are notified before the log is written. */
  #withListeners(apiId: string, events: FollowerEvents): FollowerEvents {
    return {
      ...events,
      live: (position, leaseMs) => {
        this.#listeners.emit('live', { apiId });
        events.live(position, leaseMs);
      },
      dropped: (reason, position) => {
        this.#listeners.emit('dropped', { apiId, reason });
        events.dropped(reason, position);
      },
    };
  }
}

const closedError = () => new VerifierError('CLOSED', 'the verifier was closed');

function readOptions(options: VerifierOptions) {
  const { redis, apiIds, log, ...rest } = optionsObject(options, 'options');
  const faults: (string | undefined)[] = [logFault(log)];
  if (apiIds !== undefined && !Array.isArray(apiIds)) faults.push('apiIds: must be an array of API ids');
  const ids: readonly unknown[] = Array.isArray(apiIds) ? apiIds : [];
  faults.push(...ids.map((apiId, i) => apiIdFault(apiId, `apiIds[${i}]`)));
  const connection = typeof redis === 'string' ? { url: redis } : optionsObject(redis, 'redis');
  if (!connection['url']) faults.push('redis.url: required');
  const present = faults.filter((fault) => fault !== undefined);
  if (present.length > 0) throw wrongOptions(present);
  const config = {
    ...engineLimits,
    ...redisLimits,
    ...configFrom(engineSettings, rest),
    ...configFrom(redisSettings, connection, { prefix: 'REDIS_', place: 'redis.' }),
  };
  const together = redisFaults(config).map((fault) =>
    fault.replace(/\bREDIS_([A-Z_]+)/g, (_, name: string) => `redis.${camelCase(name)}`),
  );
  if (together.length > 0) throw wrongOptions(together);
  return { config, apiIds: [...new Set(ids)] as string[] };
}
