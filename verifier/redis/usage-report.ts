import { type Clock, pause } from '#shared/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { usageKey } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import { KEPT, USAGE_COLUMNS } from '#shared/usage.ts';
import { perVerdict, VERDICT_CODES, type VerdictCode, type VerdictCounts } from '#shared/verdict-codes.ts';
import { asset } from '../assets.ts';
import type { Entry, Unreported } from '../core/key-cache.ts';

const addScript = new Script(asset('redis/lua/add-usage.lua'));

/** Keys in one call, so that it holds neither Redis nor this process up for a millisecond. */
const BATCH_KEYS_MAX = 25;

/** Ratio of a report's rest after each call to the time that the call took: meanwhile requests are answered. */
const REST = 9;

type Counted = readonly [entry: Entry, counts: VerdictCounts];

/** Period and limit of the counts. */
interface UsageOptions {
  readonly nodes: RedisNodes;
  readonly clock: Clock;
  readonly log: Logger;
  /** Time between two reports, milliseconds. */
  readonly periodMs: number;
  /** Most keys between two reports; verdicts on others are dropped. */
  readonly keysMax: number;
}

/** Counts verdicts by key and adds them to what Redis keeps, now and then. Nothing waits for it. */
export class Usage {
  readonly #options: UsageOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  /** Entries that have counts. */
  #pending: Entry[] = [];
  /** Keys of the report under way whose turn is still to come; they have counts too. */
  #inReport = 0;
  /** Verdicts that are in no key's usage. */
  dropped = 0;

  constructor(options: UsageOptions) {
    this.#options = options;
  }

  /** Counts a verdict. On the hot path: one increment. */
  count(entry: Entry, code: VerdictCode): void {
    const { usage } = entry;
    if (code === 'VALID' && typeof usage === 'number' && usage > 0) entry.usage = usage + 1;
    else this.#add(entry, code === 'VALID' ? 1 : { ...NONE, [code]: 1 });
  }

  /** Keys whose counts are still to be reported. */
  get keys(): number {
    return this.#pending.length + this.#inReport;
  }

  /** Reports until `stop`. */
  run(): void {
    this.#running = this.#report();
  }

  /** Reports once more what was counted, where Redis can be reached. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #report(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(this.#options.clock, this.#options.periodMs, this.#stop.signal);
      await this.#flush();
    }
    // Report the counts that came while the last report was under way.
    await this.#flush();
  }

  async #flush(): Promise<void> {
    const entries = this.#pending;
    this.#pending = [];
    this.#inReport = entries.length;
    for (const batch of batchesOf(entries)) {
      this.#inReport -= batch.length;
      const keys = batch.map(([{ epoch, keyId }]) => usageKey(epoch.apiId, keyId));
      const counts = batch.flatMap(([, counted]) => USAGE_COLUMNS.map(({ code }) => counted[code]));
      let sent = false;
      try {
        const redis = await this.#options.nodes.connection(keys[0] ?? '');
        sent = true;
        const startedAtMs = this.#options.clock.monotonicMs();
        await this.#options.nodes.within(
          redis,
          addScript.run(redis, keys, [KEPT.hour, KEPT.day, LETTERS, ...counts]),
        );
        await pause(
          this.#options.clock,
          REST * (this.#options.clock.monotonicMs() - startedAtMs),
          this.#stop.signal,
        );
      } catch (error) {
        this.#options.log.debug({ err: error, keys: keys.length, sent }, 'usage was not reported');
        // Counts that were sent may have been added: sending them again could count them twice.
        for (const [entry, lost] of batch) {
          if (sent) this.dropped += sum(lost);
          else this.#add(entry, lost);
        }
      }
    }
  }

  /** Adds to what is to be reported, unless that is too much. */
  #add(entry: Entry, more: Unreported): void {
    const { usage } = entry;
    if (usage === 0) {
      if (this.keys >= this.#options.keysMax) {
        this.dropped += sum(countsOf(more));
        return;
      }
      this.#pending.push(entry);
    }
    if (typeof usage === 'number' && typeof more === 'number') entry.usage = usage + more;
    else entry.usage = added(countsOf(usage), countsOf(more));
  }
}

const NONE: Readonly<VerdictCounts> = perVerdict(() => 0);
const LETTERS = USAGE_COLUMNS.map(({ letter }) => letter).join('');

const countsOf = (usage: Unreported) => (typeof usage === 'number' ? { ...NONE, VALID: usage } : usage);

function added(a: VerdictCounts, b: VerdictCounts): VerdictCounts {
  const total = { ...a };
  for (const code of VERDICT_CODES) total[code] += b[code];
  return total;
}

const sum = (counts: VerdictCounts) => VERDICT_CODES.reduce((total, code) => total + counts[code], 0);

/**
 * Takes the counts off their entries. By API, because one call can only be about keys that one node of a Redis Cluster
 * has.
 */
function* batchesOf(entries: readonly Entry[]): Generator<Counted[]> {
  const batches = new Map<string, Counted[]>();
  for (const entry of entries) {
    const { apiId } = entry.epoch;
    const batch = batches.get(apiId) ?? [];
    if (batch.push([entry, countsOf(entry.usage)]) === 1) batches.set(apiId, batch);
    entry.usage = 0;
    if (batch.length < BATCH_KEYS_MAX) continue;
    batches.delete(apiId);
    yield batch;
  }
  yield* batches.values();
}
