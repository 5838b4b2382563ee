import { Counter, Histogram, Registry } from 'prom-client';
import { ApiError } from '#shared/contract/errors.ts';
import { codesWhere, perVerdict, type VerdictCounts } from '#shared/contract/verdict-codes.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { metricMakers } from '#shared/process/process-metrics.ts';
import type { DropReason, FollowerEvents } from '../core/follower.ts';
import type { Verdict, VerdictSource } from '../core/verdict.ts';
import { LookupGivenUp } from '../core/verifier.ts';

const DROP_REASONS: readonly DropReason[] = ['noreg', 'trimmed', 'diverged', 'hole', 'nonce', 'damaged'];
/** The codes of verdicts that refuse a known key, as a readable list. */
const REFUSAL_CODES = codesWhere(({ status, usage }) => status !== 200 && usage !== undefined).join(', ');
const UNDECIDED_REASONS = ['crowded', 'shed', 'slow', 'redis'] as const;

/**
 * The metrics of events: verdicts, look-ups and what followers report. On the hot path verdicts are plain
 * numbers; a scrape turns them into series. Metrics that are only read at a scrape are in state-metrics.ts.
 */
export class Metrics {
  readonly registry = new Registry();
  readonly #verdicts: Record<'memory' | 'redis', VerdictCounts> = {
    memory: perVerdict(() => 0),
    redis: perVerdict(() => 0),
  };
  readonly #make = metricMakers(this.registry);
  readonly #lookups = new Histogram({
    name: 'keyfence_lookup_seconds',
    help: 'How long requests waited for a look-up: the reading of a key that was not in memory. Requests with outcome="undecided" ended in 503. Of these, requests that waited for about LOOKUP_WAIT_MS gave up waiting for Redis.',
    labelNames: ['outcome'],
    buckets: [0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1],
    registers: [this.registry],
  });
  readonly #undecided = this.#make
    .counter('keyfence_undecided_total', 'reason', UNDECIDED_REASONS)
    .help(
      'Verifications that ended in 503, by reason. Callers must refuse these requests. crowded: there were more than 10,000 requests at the same time. shed: 64 look-ups ran and 1,000 waited. slow: Redis did not answer within LOOKUP_WAIT_MS. redis: the verifier could not reach Redis, or was not in sync with the API. To get the share of undecided verifications, divide this metric by the sum of this metric and keyfence_verdicts_total.',
    );
  readonly #drops = this.#make
    .counter('keyfence_drops_total', 'reason', DROP_REASONS)
    .help(
      'How often this verifier forgot the keys of an API and started over, by reason. noreg: the verifier acknowledged too late, so a control plane removed it; or Redis was emptied. trimmed: the verifier missed more changes or creations than Redis keeps. diverged: Redis lost history (failover, restore). hole, nonce, damaged: the verifier got a reply that a correct Redis never sends; check the network and other writers to this Redis.',
    );
  readonly #disconnects = this.#make
    .counter('keyfence_sync_failures_total')
    .help(
      'Sessions with Redis that ended or could not start. Each attempt counts once for each API that the verifier follows. The verifier continues to answer from memory until its lease is over.',
    );
  readonly #gaps = this.#make
    .counter('keyfence_gaps_total')
    .help(
      'Messages that did not directly follow the last applied change. The verifier then got the missing changes through SYNC. A few after a reconnect are normal; a steady rate means that messages are lost.',
    );
  readonly #applied = this.#make
    .counter('keyfence_changes_applied_total', 'source', ['message', 'sync'])
    .help(
      'Applied changes, by the way in which they arrived: source="message" through pub/sub, which is the fast way, and source="sync" through SYNC. A large share of "sync" means that pub/sub loses messages.',
    );

  constructor() {
    // A series must exist before its first event, or a rate misses that event.
    for (const outcome of ['decided', 'undecided']) this.#lookups.zero({ outcome });
    const verdicts = this.#verdicts;
    new Counter({
      name: 'keyfence_verdicts_total',
      help: `Verdicts by code and by source (memory, or a look-up in Redis). VALID: the key was accepted. NOT_FOUND: the key was unknown or mistyped. ${REFUSAL_CODES}: the key was known, and was refused. To get the hit rate, divide the verdicts from memory by all verdicts. keyfence_undecided_total counts verifications without a verdict.`,
      labelNames: ['code', 'source'],
      registers: [this.registry],
      collect() {
        this.reset();
        for (const source of ['memory', 'redis'] as const) {
          for (const [code, count] of Object.entries(verdicts[source])) this.inc({ code, source }, count);
        }
      },
    });
  }

  /** The verdicts since the start, by source and by code. */
  get verdictTotals() {
    const { memory, redis } = this.#verdicts;
    const sum = (counts: VerdictCounts) => Object.values(counts).reduce((a, b) => a + b);
    return {
      verdicts: { memory: sum(memory), redis: sum(redis) },
      codes: perVerdict((_, code) => memory[code] + redis[code]),
    };
  }

  /** Counts a request that was refused because there were too many. */
  readonly crowded = (): void => this.#undecided.inc({ reason: 'crowded' });

  /** Counts a verdict that needed no question to the verifier. */
  countVerdict(verdict: Verdict): Verdict {
    this.#verdicts.memory[verdict.code]++;
    return verdict;
  }

  /**
   * Returns a verdict source that counts verdicts and look-up times. It does not count rechecks, because
   * their requests were already counted.
   */
  count(verifier: VerdictSource, clock: Clock): VerdictSource {
    const { memory, redis } = this.#verdicts;
    const undecided = this.#undecided;
    const decidedWait = this.#lookups.labels({ outcome: 'decided' });
    const undecidedWait = this.#lookups.labels({ outcome: 'undecided' });
    return {
      decide(question) {
        const verdict = verifier.decide(question);
        if (verdict !== undefined && !question.isRecheck) memory[verdict.code]++;
        return verdict;
      },
      lookUp(question) {
        if (question.isRecheck) return verifier.lookUp(question);
        const startedAtMs = clock.monotonicMs();
        const seconds = () => (clock.monotonicMs() - startedAtMs) / 1000;
        return verifier.lookUp(question).then(
          (verdict) => {
            redis[verdict.code]++;
            decidedWait.observe(seconds());
            return verdict;
          },
          (error) => {
            // The question itself was wrong, and would be refused again.
            if (error instanceof ApiError && error.code === 'BAD_REQUEST') throw error;
            undecided.inc({ reason: error instanceof LookupGivenUp ? error.reason : 'redis' });
            undecidedWait.observe(seconds());
            throw error;
          },
        );
      },
    };
  }

  /** Counts events before it passes them on. */
  followerEvents(events: FollowerEvents): FollowerEvents {
    return {
      live: (position, leaseMs) => events.live(position, leaseMs),
      dropped: (reason, position) => {
        this.#drops.inc({ reason });
        events.dropped(reason, position);
      },
      disconnected: (reason, position) => {
        this.#disconnects.inc();
        events.disconnected(reason, position);
      },
      resumed: (position) => events.resumed(position),
      gap: (position, sequence) => {
        this.#gaps.inc();
        events.gap(position, sequence);
      },
      applied: (change, source) => {
        this.#applied.inc({ source });
        events.applied(change, source);
      },
    };
  }
}
