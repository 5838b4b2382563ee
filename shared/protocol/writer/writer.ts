import { backoffMs, type Clock, pause, Waker } from '../../process/clock.ts';
import { ApiError, unavailable } from '../../rules/errors.ts';
import type { BatchedChangeLog, LogEntry, Write } from '../log/change-log-port.ts';
import { writeError } from '../log/write-error.ts';
import { KEY_FIELDS, NEVER_LENT, sequenceOf } from '../records/key-record.ts';
import type { Fence, PendingEntry } from './fence.ts';

/** Progress of a change, as updateKey returns it. */
export interface Propagation {
  readonly state: 'complete' | 'pending';
  /** Present if outsiders were lent time, as by tokens: may any of them still go by the state before the change? */
  readonly tokens?: 'complete' | 'pending';
  /**
   * `acks`: every registered verifier has applied the change. `fence`: verifiers that have not can no longer
   * answer. Also present while only outsiders are pending.
   */
  readonly by?: 'acks' | 'fence';
  readonly sequence: number;
  /**
   * True if the write is on the disk of its server and on all its replicas, as an inspection of the server after the
   * write found.
   */
  readonly durable: boolean;
  /** Number of followers registered for the API, as of the last check. */
  readonly verifiers: number;
  readonly waitedMs: number;
  /** Only while pending: the latest time of completion if Redis stays reachable, Unix milliseconds. */
  readonly completeBy?: number;
  /** Sequence of a later change, if the record now differs from what this change asked. */
  readonly overtakenBy?: number;
}

/**
 * Tells whether no verifier answers from the earlier state any more; outsiders may still. For answers that have
 * no room for a propagation, and callers that would change the same again and again.
 */
export const isAtVerifiers = ({ state, by }: Pick<Propagation, 'state' | 'by'>): boolean =>
  state === 'complete' || by !== undefined;

/** The state of an earlier change, with the first 100 followers that have not acknowledged it. */
export interface ChangeStatus extends Propagation {
  readonly laggards?: readonly string[];
}

/** Outcome for one of many changes. */
export type ChangeOutcome =
  | { readonly keyId: string; readonly sequence: number }
  | { readonly keyId: string; readonly failure: ApiError };

/** A change as requested, and its entry in the log. */
interface WrittenChange {
  readonly write: Write;
  readonly entry: LogEntry;
}

/** A written change, and the entry whose completion completes it: of changes written together, that of the last. */
interface Change extends WrittenChange {
  readonly watched: PendingEntry;
}

/** The changes of a call by key, each as it was last written, or the error for which it was not made. */
type Latest = Map<string, Change | ApiError>;

/** A change is complete at the verifiers. */
interface Completed {
  readonly by: 'acks' | 'fence';
  /**
   * The end of all that outsiders were lent before the change, on the monotonic clock, milliseconds. Acknowledgements do not end
   * it, but nothing is lent for longer than the lease, and a lease from after a change proves that its verifier has the change;
   * outsiders accept it for some time more.
   */
  readonly lentUntilMs: number;
}

/** Resolves when a change is complete at the verifiers. */
type Completion = Promise<Completed>;

/** Callbacks that report the outcome of each part of many changes as soon as it is known. */
export interface BatchEvents {
  onWritten?(changes: readonly WrittenChange[]): void;
  /** The write failed, so any of its changes may be in the log. */
  onUnknown?(writes: readonly Write[]): void;
  /** The last part is written. */
  onEnd?(): void;
}

/** Events of changes, for logs and metrics. */
export interface WriterEvents {
  /** A disable or delete that a failover lost was written again, or could not be. */
  rewritten(apiId: string, keyId: string, outcome: 'written' | 'conflict' | 'given up'): void;
}

/** The pace of a batch, so that other callers need not wait for it. */
interface BatchLimits {
  /** Maximum number of changes written together. */
  readonly partMax: number;
  /** Minimum time between the starts of two parts of an API, milliseconds: leaves time for other work. */
  readonly periodMs: number;
  /** Maximum wait after a part for followers to catch up, milliseconds: lets other changes in between. */
  readonly giveWayMs: number;
  /**
   * Number of changes by which a live follower may be behind before the batch waits for it, so that the log
   * still reaches back to it. The wait ends after `fenceWaitMs`, or when a fence kills the follower.
   */
  readonly lagMax: number;
}

interface WriterLimits {
  /** Maximum time for which a caller waits, milliseconds. */
  readonly fenceWaitMs: number;
  /** Maximum numbers of incomplete changes of one API, so that one API's changes cannot block another's. */
  readonly pending: {
    readonly changesMax: number;
    /** For disables and deletes, which are counted apart so that neither kind can block the other. */
    readonly stopsMax: number;
  };
  /** True if writes must be on replicas to count. */
  readonly replicated: boolean;
  readonly batch: BatchLimits;
}

type PresentRecord = (
  apiId: string,
  keyId: string,
  letters: readonly string[],
) => Promise<{ readonly version: string; readonly fields: Readonly<Record<string, string>> } | undefined>;

interface WriterOptions {
  readonly log: BatchedChangeLog;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly limits: WriterLimits;
  /** Tells whether writes to the API before this call are durable; never rejects. */
  readonly durable: (apiId: string) => boolean | Promise<boolean>;
  /** Returns the version of a record, and the fields of these letters as stored; undefined = it does not exist. */
  readonly present?: PresentRecord;
  readonly events: WriterEvents;
  /** Returns a random number from 0 to below 1, for the backoff. */
  readonly chance?: () => number;
}

/** Letters of fields that a record does not hold as a change has them. */
const APART: readonly string[] = [KEY_FIELDS.meta.letter];
const LAGGARDS_NAMED_MAX = 100;
const LAG_PERIOD_MS = 50;
/** Pauses between two looks at a change that another call wrote. */
const [STATUS_FIRST_MS, STATUS_MAX_MS] = [10, 500];
const REWRITE_FIRST_MS = 50;
const REWRITE_MAX_MS = 2000;
const REWRITE_ATTEMPTS_MAX = 50;

/**
 * Writes changes, waits until they are complete, and reports how far they are. Changes reach verifiers in no other way.
 */
export class ChangeWriter {
  readonly #options: WriterOptions;
  /** Numbers of incomplete changes, by kind and API. */
  readonly #counts = new Map<string, number>();
  /** The end of each API's queue of parts; resolves to whether every follower has applied everything written before it. */
  readonly #lines = new Map<string, Promise<boolean>>();
  readonly #stop = new AbortController();
  /** The waits of delayed callers. */
  readonly #waiters = new Set<Waker>();

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /**
   * Writes a change and resolves when it is complete, or after `min(waitMs, FENCE_WAIT_MS)` with `pending`. It waits for outsiders
   * only if what they were lent ends within this time; otherwise it resolves with `pending` when verifiers are complete.
   * @param onWrite is called with the log entry as soon as it is written
   * @returns undefined if there is no such key or API. Rejects with SERVICE_UNAVAILABLE (not written, or
   * outcome unknown), CONFLICT (also if a failover lost the write and another write came after it) or
   * VERIFIERS_TOO_OLD.
   */
  async apply(
    write: Write,
    waitMs = Number.POSITIVE_INFINITY,
    onWrite?: (entry: LogEntry) => void,
  ): Promise<Propagation | undefined> {
    const endCount = this.#count(write);
    const startedAtMs = this.#options.clock.monotonicMs();
    const entry = await this.#write(write).catch((error: unknown) => {
      endCount();
      throw error;
    });
    if (!entry) {
      endCount();
      return undefined;
    }
    onWrite?.(entry);
    const change = { write, entry, watched: this.#watch({ write, entry }) };
    const latest: Latest = new Map([[write.keyId, change]]);
    const completion = this.#complete(change, latest);
    completion.then(endCount, endCount);
    const propagation = await this.#report(write.apiId, latest, completion, waitMs, startedAtMs);
    return propagation && { ...propagation, ...(await this.#overtaking(write, propagation, latest)) };
  }

  /**
   * Tells which later change made the record other than this write asked. A write of unknown outcome, or of another control
   * plane, may reach Redis after this one and be complete with it: then "complete" alone would read as "as asked".
   */
  async #overtaking(
    { apiId, keyId, fields }: Write,
    { sequence, by, tokens }: Propagation,
    latest: Latest,
  ): Promise<{ readonly overtakenBy?: number }> {
    const letters = Object.keys(fields).filter((letter) => !APART.includes(letter));
    if (letters.length === 0) return {};
    // The look that found the change complete saw the record, unless the answer waited for something else since.
    const isSeen = by === 'acks' && tokens === undefined;
    const [seen] = isSeen ? watchedOf(latest) : [];
    if (sequenceOf(seen?.version) === sequence) return {};
    const record = await this.#options.present?.(apiId, keyId, letters).catch(() => undefined);
    const laterSequence = sequenceOf(record?.version);
    const wishes: Readonly<Record<string, string | undefined>> = fields;
    const isOther = letters.some((letter) => (record?.fields[letter] ?? '') !== (wishes[letter] ?? ''));
    return record && isOther && laterSequence > sequence ? { overtakenBy: laterSequence } : {};
  }

  /**
   * Writes changes of one API, each to a different key, and resolves once all are complete, with the
   * propagation of the last change and the outcome of each.
   * @returns no `propagation` if nothing was changed. Rejects with SERVICE_UNAVAILABLE; then any of the
   * changes may have been written.
   */
  async applyAll(
    writes: readonly [Write, ...Write[]],
    waitMs = Number.POSITIVE_INFINITY,
    events: BatchEvents = {},
  ): Promise<{ readonly outcomes: readonly ChangeOutcome[]; readonly propagation?: Propagation }> {
    const [{ apiId }] = writes;
    const endCount = this.#count(writes[0], writes.length);
    const startedAtMs = this.#options.clock.monotonicMs();
    const latest: Latest = new Map();
    const completions: Completion[] = [];
    const { partMax } = this.#options.limits.batch;
    try {
      for (let at = 0; at < writes.length; at += partMax) {
        const part = writes.slice(at, at + partMax);
        const completion = await this.#inTurn(apiId, () => this.#writePart(part, latest, events));
        completions.push(...completion);
      }
      events.onEnd?.();
    } catch (error) {
      throw partialWriteError(error);
    } finally {
      void Promise.allSettled(completions).then(endCount);
    }
    const propagation = await this.#report(apiId, latest, together(completions), waitMs, startedAtMs);
    const outcomes = writes.map(({ keyId }) => {
      const change = latest.get(keyId);
      return change instanceof ApiError
        ? { keyId, failure: change }
        : { keyId, sequence: change?.entry.sequence ?? 0 };
    });
    return { outcomes, ...(propagation ? { propagation } : {}) };
  }

  /**
   * Returns a function that returns the rest of a call's waiting time, milliseconds, for calls that wait more
   * than once; undefined = no limit.
   */
  remainingTime(waitMs: number | undefined): () => number | undefined {
    const { clock } = this.#options;
    if (waitMs === undefined) return () => undefined;
    const endsAtMs = clock.monotonicMs() + waitMs;
    return () => Math.max(0, endsAtMs - clock.monotonicMs());
  }

  /**
   * Status of an earlier change, whichever control plane wrote it.
   * @param isLatest true if the key's record names this change as its latest, so that it certainly exists
   * @param hash of the change, if it is known; '' = the key's id identifies it
   * @returns undefined if the key does not exist; rejects with CONFLICT if a failover lost the change, or may
   * have
   */
  async status(
    apiId: string,
    keyId: string,
    sequence: number | undefined,
    isLatest = false,
    hash = '',
  ): Promise<ChangeStatus | undefined> {
    const { log, durable, limits, fence, clock } = this.#options;
    if (sequence === undefined) return undefined;
    if (sequence === 0)
      return { state: 'complete', sequence, durable: await durable(apiId), verifiers: 0, waitedMs: 0 };
    const change = { apiId, keyId, sequence, hash, replicated: false, names: LAGGARDS_NAMED_MAX };
    const logStatus = await log.check(change);
    if (logStatus.state === 'LOST')
      throw new ApiError('CONFLICT', `sequence: ${sequence} is not a change of this key`);
    if (logStatus.state === 'TRIMMED' && limits.replicated && !isLatest)
      throw new ApiError('CONFLICT', `sequence: the log no longer reaches back to ${sequence}`);
    const replicated = !limits.replicated || logStatus.replicatedSequence >= sequence;
    const { age = '' } = logStatus;
    const restMs = age === '' ? 0 : fence.durationMs(logStatus.leaseMs) - Number(age);
    const outside = restMs > 0 ? 'pending' : 'complete';
    const isApplied = logStatus.laggards === 0 && replicated;
    return {
      state: isApplied && restMs <= 0 ? 'complete' : 'pending',
      ...(isApplied && restMs > 0 ? { by: 'acks', completeBy: Math.ceil(clock.wallMs() + restMs) } : {}),
      ...(age === '' ? {} : { tokens: outside }),
      sequence,
      durable: replicated && (await durable(apiId)),
      verifiers: logStatus.followers,
      waitedMs: 0,
      laggards: logStatus.names,
    };
  }

  /** The status of a change once it is complete, or after FENCE_WAIT_MS as it is then. Takes and rejects as `status` does. */
  async whenComplete(...change: Parameters<ChangeWriter['status']>): Promise<ChangeStatus | undefined> {
    const { clock, limits } = this.#options;
    const endsAtMs = clock.monotonicMs() + limits.fenceWaitMs;
    for (let pauseMs = STATUS_FIRST_MS; ; pauseMs = Math.min(2 * pauseMs, STATUS_MAX_MS)) {
      const status = await this.status(...change);
      const isOver = clock.monotonicMs() >= endsAtMs || this.#stop.signal.aborted;
      if (status?.state !== 'pending' || isOver) return status;
      await pause(clock, pauseMs, this.#stop.signal);
    }
  }

  /**
   * Answers every waiting call with `pending`; the sweeps of other control planes continue with incomplete
   * changes.
   */
  stop(): void {
    this.#stop.abort();
    for (const waiter of this.#waiters) waiter.wake();
    this.#options.fence.stop();
  }

  /**
   * Counts changes as incomplete from now on. Throws SERVICE_UNAVAILABLE if their API has too many.
   * @param changes number of changes that begin together. More than the limit count as the limit: they are allowed
   * while no others are incomplete
   * @returns a function to call once, when the changes are complete or were not made
   */
  #count(write: Write, changes = 1): () => void {
    const { changesMax, stopsMax } = this.#options.limits.pending;
    const [kind, max] = isStop(write) ? ['disables and deletes', stopsMax] : ['changes', changesMax];
    const id = `${kind} of api ${write.apiId}`;
    const [count, weight] = [this.#counts.get(id) ?? 0, Math.min(changes, max)];
    if (count + weight > max) throw unavailable(`${max} ${id} are not complete yet; nothing was changed`);
    this.#counts.set(id, count + weight);
    return () => {
      const remainder = (this.#counts.get(id) ?? 0) - weight;
      if (remainder > 0) this.#counts.set(id, remainder);
      else this.#counts.delete(id);
    };
  }

  /** Writes a change; undefined if there is no such key or API. */
  async #write(write: Write): Promise<LogEntry | undefined> {
    const result = await this.#options.log.write(write);
    if (result.status === 'OK') return result;
    if (result.status === 'NOT_FOUND') return undefined;
    throw writeError(write, result);
  }

  /** @param changes number of changes that complete together: this one and those written just before it */
  #watch({ write, entry }: WrittenChange, changes = 1): PendingEntry {
    return this.#options.fence.track(write.apiId, write.keyId, entry, changes);
  }

  /**
   * Resolves when a change is complete. A disable or delete that a failover lost is written again, as another change;
   * rejects if another write came after it, and with CONFLICT if a failover lost any other change.
   */
  async #complete(first: Change, latest: Latest): Completion {
    for (let change = first; ; ) {
      const outcome = await change.watched.ended;
      if (outcome !== 'lost') return completed(outcome, [change], change.watched);
      const { write } = change;
      if (!isStop(write)) throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis');
      const entry = await this.#rewrite({ ...write, condition: change.entry.previousVersion });
      change = { write, entry, watched: this.#watch({ write, entry }) };
      latest.set(write.keyId, change);
    }
  }

  async #rewrite(write: Write): Promise<LogEntry> {
    const { log, clock, events, chance = Math.random } = this.#options;
    const { signal } = this.#stop;
    for (let attempt = 0; attempt < REWRITE_ATTEMPTS_MAX && !signal.aborted; attempt++) {
      try {
        const result = await log.write(write);
        events.rewritten(write.apiId, write.keyId, result.status === 'OK' ? 'written' : 'conflict');
        if (result.status === 'OK') return result;
        if (result.status === 'TOO_OLD') throw writeError(write, result);
        throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis and overtaken by another');
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') throw error;
        await pause(clock, backoffMs(attempt, REWRITE_FIRST_MS, REWRITE_MAX_MS, chance), signal);
      }
    }
    events.rewritten(write.apiId, write.keyId, 'given up');
    throw unavailable('the write was lost in a failover of Redis and could not be written again');
  }

  /** Writes a part of a batch, and returns its completion; none if no key was changed. */
  async #writePart(
    writes: readonly Write[],
    latest: Latest,
    events: BatchEvents,
  ): Promise<readonly Completion[]> {
    const outcomes = await this.#options.log.writeAll(writes).catch((error: unknown) => {
      events.onUnknown?.(writes);
      throw error;
    });
    const written: WrittenChange[] = [];
    for (const [i, write] of writes.entries()) {
      const result = outcomes[i];
      if (result?.status === 'OK') written.push({ write, entry: result });
      else latest.set(write.keyId, writeError(write, result ?? { status: 'NOT_FOUND' }));
    }
    events.onWritten?.(written);
    const last = written.at(-1);
    if (!last) return [];
    const watched = this.#watch(last, written.length);
    for (const change of written) latest.set(change.write.keyId, { ...change, watched });
    const completion = this.#completeTogether(written, watched, latest);
    completion.catch(() => undefined); // the caller may already have the response
    return [completion];
  }

  /**
   * Resolves when changes are complete that were written one after the other on one connection. A follower with the
   * last change has all, so only the last is watched. If a failover lost the last change, earlier ones may still exist,
   * so each is then followed on its own.
   */
  async #completeTogether(written: readonly WrittenChange[], last: PendingEntry, latest: Latest): Completion {
    const outcome = await last.ended;
    if (outcome !== 'lost') return completed(outcome, written, last);
    return together(
      written.map(async (each) => {
        const { keyId } = each.write;
        const change = { ...each, watched: this.#watch(each) };
        latest.set(keyId, change);
        try {
          return await this.#complete(change, latest);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          latest.set(keyId, error);
          return completed('acks', []);
        }
      }),
    );
  }

  /**
   * Writes a part of a batch in turn. The parts of one API share a queue, whichever call they belong to, so that a
   * single write waits for at most one part. The next turn begins when this part is written, its period is over, and
   * followers have caught up or the wait has timed out.
   */
  async #inTurn(
    apiId: string,
    writePart: () => Promise<readonly Completion[]>,
  ): Promise<readonly Completion[]> {
    const { clock, limits } = this.#options;
    const { periodMs, giveWayMs } = limits.batch;
    const before = this.#lines.get(apiId) ?? Promise.resolve(false);
    const turn = before.then(async (caughtUp) => {
      if (!caughtUp) await this.#room(apiId);
      return writePart();
    });
    const caughtUp = turn.then(async ([completion]) => {
      const ended = completion?.then(
        () => true,
        () => true,
      );
      return ended !== undefined && (await this.#hold(ended, giveWayMs)) === true;
    });
    const period = before.then(() => (periodMs > 0 ? pause(clock, periodMs, this.#stop.signal) : undefined));
    const over = Promise.all([caughtUp, period]).then(
      ([isCaughtUp]) => isCaughtUp,
      () => false,
    );
    this.#lines.set(apiId, over);
    void over.then(() => this.#lines.get(apiId) === over && this.#lines.delete(apiId));
    return turn;
  }

  /** Waits until one more part would not push any live follower's place out of the log. */
  async #room(apiId: string): Promise<void> {
    const { log, clock, limits } = this.#options;
    const startedAtMs = clock.monotonicMs();
    for (;;) {
      const lag = await log.lag(apiId);
      if (lag <= limits.batch.lagMax) return;
      if (this.#stop.signal.aborted) throw unavailable('shutting down');
      if (clock.monotonicMs() - startedAtMs >= limits.fenceWaitMs) {
        throw unavailable(`a verifier is behind by ${lag} changes of api ${apiId}`);
      }
      await pause(clock, LAG_PERIOD_MS, this.#stop.signal);
    }
  }

  /** Waits for the completion of changes of an API, and reports them as they are then; undefined if none was made. */
  async #report(
    apiId: string,
    latest: Latest,
    completion: Completion,
    waitMs: number,
    startedAtMs: number,
  ): Promise<Propagation | undefined> {
    const { clock, durable, limits } = this.#options;
    const first = watchedOf(latest);
    const durability = durable(apiId);
    const endsAtMs = clock.monotonicMs() + Math.min(waitMs, limits.fenceWaitMs);
    const verdicts = await this.#hold(completion, endsAtMs - clock.monotonicMs());
    const isComplete = verdicts !== undefined && (await this.#afterLent(verdicts, endsAtMs));
    const entries = [...watchedOf(latest)];
    // What was written again after a failover is on another server.
    const isDurable = await (entries.every((entry) => first.has(entry)) ? durability : durable(apiId));
    const [entry, ...others] = entries;
    if (!entry) return undefined;
    const last = others.reduce((a, b) => (b.sequence > a.sequence ? b : a), entry);
    const nowMs = clock.monotonicMs();
    const changes = [...latest.values()].filter((change): change is Change => !(change instanceof ApiError));
    const closesAtMs = Math.max(
      ...entries.map((each) => each.closesAtMs),
      ...changes.map((change) => lentUntilMs([change], change.watched)),
    );
    const by = verdicts?.by ?? outcomeOf(entries);
    return {
      state: isComplete ? 'complete' : 'pending',
      ...(changes.some(endsLent) ? { tokens: isComplete ? 'complete' : 'pending' } : {}),
      ...(by ? { by } : {}),
      sequence: last.sequence,
      durable: isDurable && entries.every(({ replicated }) => replicated),
      verifiers: last.followers,
      waitedMs: Math.round(nowMs - startedAtMs),
      ...(isComplete ? {} : { completeBy: Math.ceil(clock.wallMs() + Math.max(0, closesAtMs - nowMs)) }),
    };
  }

  /** Waits for what was lent before a change if it ends by `endsAtMs`; returns whether it has ended. */
  async #afterLent({ lentUntilMs }: Completed, endsAtMs: number): Promise<boolean> {
    const { clock } = this.#options;
    for (;;) {
      const restMs = lentUntilMs - clock.monotonicMs();
      if (restMs <= 0) return true;
      if (lentUntilMs > endsAtMs || this.#stop.signal.aborted) return false;
      await this.#hold(new Promise<never>(() => undefined), Math.ceil(restMs));
    }
  }

  /** Returns the result if it comes within `holdMs`; undefined if it does not, or if this process stops. */
  async #hold<T>(result: Promise<T>, holdMs: number): Promise<T | undefined> {
    result.catch(() => undefined); // it may reject later, when the caller has the response
    if (holdMs <= 0) return undefined;
    const waiter = new Waker();
    if (this.#stop.signal.aborted) waiter.wake();
    this.#waiters.add(waiter);
    const over = waiter.pause(this.#options.clock, holdMs).then(() => undefined);
    return Promise.race([result, over]).finally(() => {
      waiter.wake();
      this.#waiters.delete(waiter);
    });
  }
}

/** Tells whether losing the write would let a key through that the caller wants refused. */
function isStop({ operation, fields, successor }: Write): boolean {
  if (operation === 'update' || operation === 'create') return fields.e === '0' || successor !== undefined;
  return operation !== 'noop';
}

/** Tells whether outsiders may go by what is no longer so. */
function endsLent({ write, entry }: WrittenChange): boolean {
  const { operation, fields, successor } = write;
  if (entry.outlivesMs === undefined) return false;
  if (operation === 'noop') return write.endsLent === true;
  return (
    operation !== 'update' ||
    successor !== undefined ||
    Object.keys(fields).some((field) => !NEVER_LENT.has(field))
  );
}

/** Returns when what was lent before the changes has ended, on the monotonic clock, milliseconds; 0 = nothing was. */
const lentUntilMs = (changes: readonly WrittenChange[], { closesAtMs }: PendingEntry): number =>
  Math.max(0, ...changes.filter(endsLent).map(({ entry }) => closesAtMs + (entry.outlivesMs ?? 0)));

const completed = (
  by: 'acks' | 'fence',
  changes: readonly WrittenChange[],
  last?: PendingEntry,
): Completed => ({ by, lentUntilMs: last ? lentUntilMs(changes, last) : 0 });

/** Returns by what all entries are complete; undefined = some are not. */
function outcomeOf(entries: readonly PendingEntry[]): 'acks' | 'fence' | undefined {
  const outcomes = entries.map(({ outcome }) => outcome);
  if (outcomes.some((outcome) => outcome === undefined || outcome === 'lost')) return undefined;
  return outcomes.includes('fence') ? 'fence' : 'acks';
}

/** The entries whose completion completes the changes. */
const watchedOf = (latest: Latest): Set<PendingEntry> =>
  new Set([...latest.values()].flatMap((change) => (change instanceof ApiError ? [] : [change.watched])));

/** Resolves when all changes are complete at the verifiers. */
async function together(completions: readonly Completion[]): Completion {
  const all = await Promise.all(completions);
  return {
    by: all.some(({ by }) => by === 'fence') ? 'fence' : 'acks',
    lentUntilMs: Math.max(0, ...all.map((each) => each.lentUntilMs)),
  };
}

/** The error that the caller of a batch gets if it failed halfway. */
function partialWriteError(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') return error;
  return unavailable(`${error.message}; any of the keys may have been changed: send the call again`, error);
}
