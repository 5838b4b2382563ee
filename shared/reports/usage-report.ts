import { asset } from '../assets.ts';
import { type Clock, pause } from '../process/clock.ts';
import type { Logger } from '../process/log.ts';
import type { Entry, UnreportedVerdicts } from '../protocol/follower/key-cache.ts';
import { RETENTION, USAGE_COLUMNS } from '../protocol/records/usage.ts';
import type { VerifierStatus } from '../protocol/records/verifier-status.ts';
import { command } from '../redis/command.ts';
import type { RedisNodes } from '../redis/redis.ts';
import { apiUsageKey, tagUsageKey, usageKey, usageMarkKey } from '../redis/redis-keys.ts';
import { send } from '../redis/script.ts';
import { perVerdict, VERDICT_CODES, type VerdictCode, type VerdictCounts } from '../rules/verdict-codes.ts';
import { TagCounts } from './tag-counts.ts';
import { eachPeriod, type WatchedApis } from './watched-apis.ts';

export const addUsage = command(
  asset('shared/reports/add-usage.lua'),
  ['mark', 'tagged', '...usages'],
  ['minutes', 'hours', 'days', 'letters', 'number', 'seconds', 'mostTags', '...counts'],
  Number,
);

/**
 * Maximum number of keys and of tags in one call, so that a call blocks neither Redis nor this process for a
 * millisecond.
 */
const BATCH_KEYS_MAX = 25;
const BATCH_TAGS_MAX = 50;

/** Ratio of the pause after each call to the call's duration. Requests are answered during the pause. */
const REST_RATIO = 9;

/**
 * Time for which a call with an unknown outcome is sent again, and the longer time for which Redis remembers
 * the call's number.
 */
export const AGAIN_MS = 3_600_000;
const MARK_S = 7200;

/** The content of one call: keys and tags of one API. */
interface Batch {
  readonly apiId: string;
  readonly keys: readonly (readonly [entry: Entry, counts: VerdictCounts])[];
  readonly tags: readonly (readonly [tag: string, counts: VerdictCounts])[];
}

/** A call whose outcome in Redis is unknown. */
interface UnconfirmedCall {
  readonly batch: Batch;
  readonly number: number;
  readonly sinceMs: number;
}

/** Period and limits of the counts. */
interface UsageOptions {
  readonly nodes: RedisNodes;
  readonly clock: Clock;
  readonly log: Logger;
  /** Unique name of this process. */
  readonly reporter: string;
  /** Time between two reports, in milliseconds. */
  readonly periodMs: number;
  /** Absent = only once in a period. */
  readonly watched?: WatchedApis | undefined;
  /** Maximum number of keys between two reports; verdicts on further keys are dropped. */
  readonly keysMax: number;
  /** Maximum number of distinct tags of an API per day. */
  readonly tagsMax: number;
  /** Maximum number of tags between two reports; verdicts with further tags are counted as `other`. */
  readonly tagsHeldMax: number;
}

/**
 * Counts verdicts by key and by tag, and periodically adds the counts to those in Redis. No request waits for
 * it. Each call has a number: a call without an answer is sent again unchanged, and Redis adds it only once.
 */
export class Usage {
  readonly #options: UsageOptions;
  readonly #stop = new AbortController();
  readonly #tags: TagCounts;
  readonly #unconfirmed = new Map<string, UnconfirmedCall>();
  #running: Promise<void> | undefined;
  /** Entries with counts. */
  #pending: Entry[] = [];
  /** Number of keys in the current report that are not sent yet; they have counts too. */
  #inReport = 0;
  #calls = 0;
  /** Verdicts that no key's usage contains. */
  dropped = 0;
  /** When verdicts were last dropped, Unix milliseconds; undefined = never. */
  #lostMs: number | undefined;
  /** All verdicts before this time are reported, Unix milliseconds. */
  #untilMs: number;
  /** True until counts of the current report stay behind. */
  #isWhole = true;

  constructor(options: UsageOptions) {
    this.#options = options;
    this.#tags = new TagCounts(options.tagsHeldMax);
    this.#untilMs = options.clock.wallMs();
  }

  /** Counts a verdict. On the hot path this is one increment. */
  count(entry: Entry, code: VerdictCode, tags?: readonly string[]): void {
    const { usage } = entry;
    if (code === 'VALID' && typeof usage === 'number' && usage > 0) entry.usage = usage + 1;
    else this.#add(entry, code === 'VALID' ? 1 : { ...NO_COUNTS, [code]: 1 });
    if (tags !== undefined) this.#tags.count(entry.epoch.apiId, tags, code);
  }

  /** The extent of the reported counts, for the fleet's list. */
  get extent(): NonNullable<VerifierStatus['usage']> {
    return { untilMs: this.#untilMs, ...(this.#lostMs === undefined ? {} : { lostMs: this.#lostMs }) };
  }

  /** Number of keys with unreported counts. */
  get keys(): number {
    let unconfirmedKeys = 0;
    for (const { batch } of this.#unconfirmed.values()) unconfirmedKeys += batch.keys.length;
    return this.#pending.length + this.#inReport + unconfirmedKeys;
  }

  /** Number of tags with unreported counts. */
  get tags(): number {
    return this.#tags.size;
  }

  /** Reports until `stop`. */
  run(): void {
    this.#running = this.#report();
  }

  /** Reports the remaining counts, if Redis can be reached, and stops. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #report(): Promise<void> {
    const { clock, periodMs, watched } = this.#options;
    await eachPeriod({ clock, periodMs, watched, stop: this.#stop.signal }, (only) => this.#flush(only));
    // Reports the counts that were added during the last report.
    await this.#flush();
    if (this.#unconfirmed.size > 0) await this.#flush();
    for (const { batch } of [...this.#unconfirmed.values()]) this.#drop(batch);
  }

  /** @param only the APIs that are reported; undefined = all */
  async #flush(only?: ReadonlySet<string>): Promise<void> {
    const startedMs = this.#options.clock.wallMs();
    this.#isWhole = true;
    for (const { batch, number, sinceMs } of [...this.#unconfirmed.values()])
      await this.#send(batch, number, sinceMs);
    const isNow = ({ epoch }: Entry) => only === undefined || only.has(epoch.apiId);
    const entries = this.#pending.filter(isNow);
    this.#pending = only ? this.#pending.filter((entry) => !isNow(entry)) : [];
    this.#inReport = entries.length;
    for (const batch of batchesOf(entries)) {
      this.#inReport -= batch.keys.length;
      await this.#send(batch);
    }
    if (only) return;
    for (const [apiId, tags] of this.#tags.take(BATCH_TAGS_MAX)) await this.#send({ apiId, keys: [], tags });
    if (this.#isWhole && this.#unconfirmed.size === 0) this.#untilMs = startedMs;
  }

  /** @param number the number under which this batch was sent before; undefined = it was never sent */
  async #send(batch: Batch, number?: number, sinceMs = this.#options.clock.monotonicMs()): Promise<void> {
    const { nodes, clock, log, reporter, tagsMax } = this.#options;
    const { apiId, keys, tags } = batch;
    // Redis recognizes a repeated call because its number equals that of the last call, so no later call may
    // overtake it.
    if (number === undefined && this.#unconfirmed.has(apiId)) return this.#restore(batch);
    const mark = usageMarkKey(apiId, reporter);
    const counts = [total(keys), ...keys.map(([, keyCounts]) => keyCounts)].flatMap(columnsOf);
    const tagged = tags.flatMap(([tag, tagCounts]) => [tag, ...columnsOf(tagCounts)]);
    const call = number ?? ++this.#calls;
    let isSent = number !== undefined;
    try {
      const redis = await nodes.connection(mark);
      isSent = true;
      const startedAtMs = clock.monotonicMs();
      await nodes.within(
        redis,
        send(
          redis,
          addUsage({
            ...{ mark, tagged: tagUsageKey(apiId, '') },
            usages: [apiUsageKey(apiId), ...keys.map(([{ keyId }]) => usageKey(apiId, keyId))],
            ...{ minutes: RETENTION.minute, hours: RETENTION.hour, days: RETENTION.day, letters: LETTERS },
            ...{ number: call, seconds: MARK_S, mostTags: tagsMax, counts: [...counts, ...tagged] },
          }),
        ),
      );
      this.#unconfirmed.delete(apiId);
      await pause(clock, REST_RATIO * (clock.monotonicMs() - startedAtMs), this.#stop.signal);
    } catch (error) {
      log.debug({ err: error, keys: keys.length, tags: tags.length, sent: isSent }, 'usage was not reported');
      if (!isSent) this.#restore(batch);
      else if (clock.monotonicMs() - sinceMs < AGAIN_MS)
        this.#unconfirmed.set(apiId, { batch, number: call, sinceMs });
      else this.#drop(batch);
    }
  }

  /** Gives up a call whose outcome in Redis stays unknown. */
  #drop({ apiId, keys, tags }: Batch): void {
    this.#unconfirmed.delete(apiId);
    this.#lose(sum(total(keys)) + sum(total(tags)));
  }

  #lose(verdicts: number): void {
    this.dropped += verdicts;
    this.#lostMs = this.#options.clock.wallMs();
  }

  #restore({ apiId, keys, tags }: Batch): void {
    this.#isWhole = false;
    for (const [entry, counts] of keys) this.#add(entry, counts);
    for (const [tag, counts] of tags) this.#tags.restore(apiId, tag, counts);
  }

  /** Adds to the unreported counts, or drops the verdicts if there are too many keys. */
  #add(entry: Entry, more: UnreportedVerdicts): void {
    const { usage } = entry;
    if (usage === 0) {
      if (this.keys >= this.#options.keysMax) {
        this.#lose(sum(countsOf(more)));
        return;
      }
      this.#pending.push(entry);
    }
    if (typeof usage === 'number' && typeof more === 'number') entry.usage = usage + more;
    else entry.usage = addCounts(countsOf(usage), countsOf(more));
  }
}

const NO_COUNTS: Readonly<VerdictCounts> = perVerdict(() => 0);
const LETTERS = USAGE_COLUMNS.map(({ letter }) => letter).join('');

const countsOf = (usage: UnreportedVerdicts) =>
  typeof usage === 'number' ? { ...NO_COUNTS, VALID: usage } : usage;
const columnsOf = (counts: VerdictCounts) => USAGE_COLUMNS.map(({ code }) => counts[code]);
const total = (rows: readonly (readonly [unknown, VerdictCounts])[]) =>
  rows.reduce<VerdictCounts>((all, [, counts]) => addCounts(all, counts), NO_COUNTS);

function addCounts(a: VerdictCounts, b: VerdictCounts): VerdictCounts {
  const total = { ...a };
  for (const code of VERDICT_CODES) total[code] += b[code];
  return total;
}

const sum = (counts: VerdictCounts) => VERDICT_CODES.reduce((total, code) => total + counts[code], 0);

/**
 * Takes the counts off their entries, grouped by API, because one call can only touch keys on a single node
 * of a Redis Cluster.
 */
function* batchesOf(entries: readonly Entry[]): Generator<Batch> {
  const batches = new Map<string, (readonly [Entry, VerdictCounts])[]>();
  for (const entry of entries) {
    const { apiId } = entry.epoch;
    const keys = batches.get(apiId) ?? [];
    if (keys.push([entry, countsOf(entry.usage)]) === 1) batches.set(apiId, keys);
    entry.usage = 0;
    if (keys.length < BATCH_KEYS_MAX) continue;
    batches.delete(apiId);
    yield { apiId, keys, tags: [] };
  }
  for (const [apiId, keys] of batches) yield { apiId, keys, tags: [] };
}
