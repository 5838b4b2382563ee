import type { Registry } from 'prom-client';
import { type Clock, holdProcess, systemClock } from '#shared/process/clock.ts';
import type { FollowerEvents } from '#shared/protocol/follower/follower.ts';
import { redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { isEnabled, NOT_FOUND, type Verdict, type VerdictSource } from '../core/verdict.ts';
import { fieldValues, NO_META, showsKey, type VerdictValues } from '../core/verdict-body.ts';
import {
  createEngine,
  type Engine,
  engineFaults,
  engineLimits,
  engineSettings,
  followerLog,
} from '../engine.ts';
import { Metrics, watchState } from '../metrics/metrics.ts';
import { EventListeners, LocalWatches, readWatchOptions, readyWithin } from './events.ts';
import { endRequests } from './guards/request-holds.ts';
import { holdThrough } from './held-key.ts';
import {
  type Costs,
  type HeldKey,
  type HoldOptions,
  type KeyVerdict,
  type KnownKey,
  type LocalKeyVerifier,
  type MetricsRegistry,
  type QuestionOptions,
  type Release,
  VerifierError,
  type VerifierEvents,
  type VerifierOptions,
  type WatchOptions,
} from './key-verifier.ts';
import {
  apiIdFault,
  camelCase,
  checkedRelease,
  configFrom,
  engineLog,
  type KeylessQuestion,
  logFault,
  mayBeKey,
  optionsObject,
  questionOf,
  readQuestionOptions,
  wrongOptions,
} from './options.ts';

// The entry `keyfence/verifier` of the package.

export type {
  AskedRateLimit,
  Costs,
  HeldKey,
  HoldOptions,
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
  Release,
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
  readonly apiIds?: readonly string[];
  readonly #engine: Engine;
  readonly #metrics = new Metrics();
  /** The engine's verifier, with metrics around it. */
  readonly #verifier: VerdictSource;
  readonly #unregister: (() => void)[] = [];
  readonly #registries = new WeakSet<MetricsRegistry>();
  readonly #listeners = new EventListeners();
  readonly #closing = new AbortController();
  readonly #watches: LocalWatches;
  readonly #clock: Clock;
  readonly #stopWaitMs: number;
  #closed: Promise<void> | undefined;
  /** True = the engine has stopped, and no hold can be released. */
  #isStopped = false;
  #isClosed = false;

  constructor(options: VerifierOptions, clock: Clock) {
    const { config, apiIds } = readOptions(options);
    if (apiIds.length > 0) this.apiIds = apiIds;
    const log = engineLog(options.log);
    this.#clock = clock;
    this.#stopWaitMs = config.STOP_WAIT_MS;
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

  hold(key: string, options?: HoldOptions): Promise<HeldKey> {
    return holdThrough(this, key, options);
  }

  async release(hold: string, cost?: number | Costs): Promise<Release> {
    const { costs } = checkedRelease(hold, cost);
    if (this.#isStopped) throw closedError();
    try {
      return (await this.#engine.verifier.meter.holds.release(hold, costs)) as Release;
    } catch (error) {
      const { code, message } = error as ApiError;
      if (code === 'BAD_REQUEST') throw new TypeError(message);
      throw new VerifierError(code === 'HOLD_UNKNOWN' ? code : 'SERVICE_UNAVAILABLE', message);
    }
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

  #conclude(verdict: Verdict, question: KeylessQuestion): KeyVerdict {
    if (!question.isRecheck) this.#engine.refusals?.note(verdict, question, { requestId: '' });
    return keyVerdict(verdict);
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#closing.abort();
    for (const unregister of this.#unregister) unregister();
    const hold = holdProcess();
    const { holds } = this.#engine.verifier.meter;
    try {
      await holds.end(this.#stopWaitMs);
      await endRequests(this, this.#clock, 0);
      await holds.released();
      this.#isStopped = true;
      this.#watches.close();
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
  const { redis, apiIds, foreignDigests, log, ...rest } = optionsObject(options, 'options');
  const faults: (string | undefined)[] = [logFault(log)];
  if (apiIds !== undefined && !Array.isArray(apiIds)) faults.push('apiIds: must be an array of API ids');
  if (foreignDigests !== undefined && !Array.isArray(foreignDigests))
    faults.push('foreignDigests: must be an array of digests');
  const ids: readonly unknown[] = Array.isArray(apiIds) ? apiIds : [];
  faults.push(...ids.map((apiId, i) => apiIdFault(apiId, `apiIds[${i}]`)));
  const connection = typeof redis === 'string' ? { url: redis } : optionsObject(redis, 'redis');
  if (!connection['url']) faults.push('redis.url: required');
  const present = faults.filter((fault) => fault !== undefined);
  if (present.length > 0) throw wrongOptions(present);
  const config = {
    ...engineLimits,
    ...redisLimits,
    ...configFrom(engineSettings, {
      ...rest,
      ...(Array.isArray(foreignDigests) && foreignDigests.length > 0
        ? { foreignDigests: foreignDigests.join() }
        : {}),
    }),
    ...configFrom(redisSettings, connection, { prefix: 'REDIS_', place: 'redis.' }),
  };
  const together = [...redisFaults(config), ...engineFaults(config)].map((fault) =>
    fault
      .replace(/\bREDIS_([A-Z_]+)/g, (_, name: string) => `redis.${camelCase(name)}`)
      .replace(/\bFOREIGN_[A-Z]+/g, camelCase),
  );
  if (together.length > 0) throw wrongOptions(together);
  return { config, apiIds: [...new Set(ids)] as string[] };
}

/** The verifiers in one registry of the application, by number, and their common metrics. */
interface RegistryEntry {
  readonly verifiers: Map<number, Registry>;
  readonly metrics: readonly SharedMetric[];
}

type OwnMetric = ReturnType<Registry['getMetricsAsArray']>[number];

const entries = new WeakMap<MetricsRegistry, RegistryEntry>();

/**
 * Adds a verifier's metrics to a registry of the application. The label `verifier` is the lowest free number.
 * Throws the registry's own errors, for example if another metric has the same name. Returns a function that
 * removes the verifier's metrics.
 */
function registerMetrics(own: Registry, registry: MetricsRegistry): () => void {
  const entry = entries.get(registry) ?? metricsLike(own);
  // Registers them again each time, because the application may have cleared the registry.
  for (const metric of entry.metrics) registry.registerMetric(metric);
  entries.set(registry, entry);
  const { verifiers } = entry;
  let number = 1;
  while (verifiers.has(number)) number++;
  verifiers.set(number, own);
  return () => void verifiers.delete(number);
}

function metricsLike(own: Registry): RegistryEntry {
  const verifiers = new Map<number, Registry>();
  const metrics = own.getMetricsAsArray().map((metric) => new SharedMetric(metric, verifiers));
  return { verifiers, metrics };
}

/**
 * One metric with the values of all verifiers in a registry, in the form that every version of prom-client
 * accepts.
 */
class SharedMetric {
  /** Writable, because an OpenMetrics registry changes the suffix of a counter's name. */
  name: string;
  readonly help: string;
  readonly type: OwnMetric['type'];
  readonly aggregator: string;
  readonly #name: string;
  readonly #verifiers: ReadonlyMap<number, Registry>;

  constructor(original: OwnMetric, verifiers: ReadonlyMap<number, Registry>) {
    this.name = original.name;
    this.#name = original.name;
    this.help = original.help;
    this.type = original.type;
    this.aggregator = original.aggregator;
    this.#verifiers = verifiers;
  }

  async get() {
    const { name, help, type, aggregator } = this;
    const each = [...this.#verifiers].map(async ([number, own]) => {
      const { values = [] } = (await own.getSingleMetric(this.#name)?.get()) ?? {};
      return values.map((value) => ({ ...value, labels: { verifier: String(number), ...value.labels } }));
    });
    return { name, help, type, aggregator, values: (await Promise.all(each)).flat() };
  }

  reset(): void {
    // Does nothing: resetting the application's counters must not reset the verifiers'.
  }
}

/**
 * Returns a verdict for applications: a new object with the fields of a verifyKey response. Its `meta` is
 * frozen.
 */
function keyVerdict(verdict: Verdict): KeyVerdict {
  const { code, effectivePermissions, spending } = verdict;
  const valid = code === 'VALID';
  if (!showsKey(verdict)) return { valid, code } as KeyVerdict;
  const { keyId, expires, details, epoch } = verdict.entry;
  // A fast path for most keys: V8 creates nothing faster than an object literal.
  if (details === undefined && expires === 0 && spending === undefined) {
    const enabled = isEnabled(verdict.entry, effectivePermissions);
    return { valid, code, keyId, apiId: epoch.apiId, enabled, meta: NO_META } as KeyVerdict;
  }
  const values: VerdictValues & KnownKey = fieldValues(verdict);
  return { valid, code, ...values } as KeyVerdict;
}
