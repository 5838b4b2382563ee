import { Counter, Histogram } from 'prom-client';
import { metricMakers, processMetrics } from '#shared/process/process-metrics.ts';
import type { Fence, FenceEvents } from './core/fence.ts';
import type { TrackerEvents } from './core/tracked-change.ts';
import type { Connections } from './http/guards/connections.ts';
import type { Audit } from './redis/audit.ts';
import type { BootstrapWatch } from './redis/bootstrap-keys.ts';
import type { DurabilityCheck } from './redis/durability.ts';
import type { WriteResult } from './redis/durable-writer.ts';

/** The parts of the control plane that metrics observe. */
interface MeasuredParts {
  readonly fence: Pick<Fence, 'pending' | 'oldestMs'>;
  readonly durability: Pick<DurabilityCheck, 'answering' | 'durable' | 'evictedKeys'>;
  readonly audit: Pick<Audit, 'waiting'>;
  readonly bootstrapWatch: Pick<BootstrapWatch, 'differing'>;
  readonly connections: Pick<Connections, 'strangers' | 'admitted'>;
}

/** The control plane's metrics. No label has unbounded values. */
export class Metrics {
  readonly registry = processMetrics();
  readonly #make = metricMakers(this.registry);
  readonly requests = new Histogram({
    name: 'keyfence_control_plane_request_duration_seconds',
    help: 'Duration of requests, waits for the fence included. If updateKey is slow and keyfence_propagation_seconds has the outcome "fence", a verifier did not answer; the control plane itself is not slow.',
    labelNames: ['operation', 'status'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    registers: [this.registry],
  });
  readonly #propagation = new Histogram({
    name: 'keyfence_propagation_seconds',
    help: 'Time from the write of a change until it was complete. "acks": every verifier confirmed it; milliseconds are normal. "fence": some did not, so the control plane waited until their leases were over, about LEASE_MS; a steady rate means that verifiers crash or are cut off. "lost": a failover of Redis took it.',
    labelNames: ['outcome'],
    buckets: [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60],
    registers: [this.registry],
  });
  readonly audit = new Counter({
    name: 'keyfence_audit_events_total',
    help: 'Events of the audit log: calls that did something ("done"), and calls that were refused ("refused"). "late": waited in memory until Redis took it. "lost": only in the log of the process. An event "done" is lost only if Redis is away until the process stops, or if more than 10,000 events wait.',
    labelNames: ['kind', 'result'],
    registers: [this.registry],
  });
  readonly rates = this.#make
    .counter('keyfence_rate_limited_total', 'limit', ['calls', 'waiting', 'failures', 'unchecked'])
    .help(
      'Calls that got 429. "calls": the root key was over its limit; "waiting": too many calls of the root key wait; "failures": no valid root key, from an address over its limit. "unchecked": let through, because Redis did not count the call.',
    );
  readonly connectionsClosed = this.#make
    .counter('keyfence_connections_closed_total', 'bound', ['address', 'strangers', 'all'])
    .help(
      'Connections closed to let another in. "address": one address reached CONNECTIONS_PER_ADDRESS_MAX; "strangers": connections without a valid root key reached half of CONNECTIONS_MAX; "all": all together reached CONNECTIONS_MAX. A steady rate is a flood, or a proxy that TRUSTED_PROXIES lacks.',
    );
  readonly shed = this.#make
    .counter('keyfence_shed_total')
    .help(
      'Calls refused with 503 because the event loop lagged. Add a control plane, or find the caller that sends so many.',
    );
  readonly #killed = this.#make
    .counter('keyfence_laggards_killed_total')
    .help(
      'Followers of verifiers that a fence killed or removed because they did not acknowledge a change in time. They register again by themselves once they reach Redis.',
    );
  readonly #reaped = this.#make
    .counter('keyfence_laggards_removed_total')
    .help(
      'Followers counted in keyfence_laggards_killed_total that were removed from the members: with that fence, or one fence later if they may have got a lease meanwhile. Until then every change of their API completes by fence.',
    );
  readonly #rewritten = this.#make
    .counter('keyfence_lost_refusals_total', 'outcome', ['written', 'conflict', 'given up'])
    .help(
      'Disables and deletes that a failover of Redis took. "written": written again; "conflict", "given up": not written again, because of a later write or because Redis did not take it. Above zero means that Redis lost acknowledged data: check REDIS_REPLICAS.',
    );
  readonly #writes = this.#make
    .counter('keyfence_writes_total', 'result', ['replicated', 'short', 'failed'])
    .help(
      'Scripts that write to Redis. "replicated": REDIS_REPLICAS replicas hold the write; "short": written, but a replica is missing or slow, so changes stay pending and verifiers cannot register; "failed": not written, or outcome unknown; the call got 503.',
    );

  constructor() {
    // A series must exist before its first event, or a rate misses that event.
    for (const outcome of ['acks', 'fence', 'lost']) this.#propagation.zero({ outcome });
    for (const result of ['written', 'late', 'lost']) {
      this.audit.inc({ kind: 'done', result }, 0);
      if (result !== 'late') this.audit.inc({ kind: 'refused', result }, 0);
    }
  }

  /** Registers gauges whose values are read when they are scraped. */
  watch({ fence, durability, audit, bootstrapWatch, connections }: MeasuredParts): void {
    const { gauge } = this.#make;
    gauge('keyfence_connections_strangers', () => connections.strangers).help(
      'Connections to the API on which no call with a valid root key has come. At most half of CONNECTIONS_MAX.',
    );
    gauge('keyfence_connections_admitted', () => connections.admitted).help(
      'Connections to the API on which the last call came with a valid root key, and those of TRUSTED_PROXIES.',
    );
    gauge('keyfence_fences_pending', () => fence.pending).help(
      'Changes that are not complete. Stays above 0 while a verifier is out of reach (for about LEASE_MS), or while Redis is.',
    );
    gauge('keyfence_fence_oldest_seconds', () => fence.oldestMs / 1000).help(
      'Age of the oldest change that is not complete; 0 without any. Much more than LEASE_MS: Redis is out of reach, or a replica is missing.',
    );
    gauge('keyfence_audit_events_waiting', () => audit.waiting).help(
      'Audit events of changes that wait in memory because Redis did not take them. Events beyond 10,000 are only in the log of the process, and so are all that wait when the process is killed.',
    );
    gauge('keyfence_bootstrap_root_keys_differing', () => bootstrapWatch.differing).help(
      'Number of other sets of root keys that configurations of control planes of the same Redis had within the last 90 s; checked every 30 s. Above 0 when you rotate no root key: some control plane accepts a root key that you may have withdrawn.',
    );
    gauge('keyfence_redis_reachable', () => (durability.answering ? 1 : 0)).help(
      '1 if Redis answered the last check (every 5 s; in a Cluster, every primary did); 0 otherwise.',
    );
    gauge('keyfence_durable', () => (durability.durable ? 1 : 0)).help(
      '1 if every primary of Redis keeps what it acknowledges, by a check every 5 s: it has appendfsync always and no-appendfsync-on-rewrite no, or replicas; and it evicted nothing. 0: a crash or a full memory of Redis can lose a disable. For the `durable` of an answer the control plane checks anew.',
    );
    gauge('keyfence_redis_evicted_keys', () => durability.evictedKeys).help(
      'Keys that Redis evicted because its memory was full, since it started. Above 0: Redis lost acknowledged keys, or data on which disables depend; set maxmemory-policy noeviction. All control planes report the same Redis: take the maximum.',
    );
  }

  /** Counts the result of a writing script. */
  readonly wrote = (result: WriteResult): void => this.#writes.inc({ result });

  readonly fenceEvents = (log: {
    info: (fields: object, message: string) => void;
    warn: (fields: object, message: string) => void;
  }): FenceEvents => ({
    settled: (outcome, apiId, sequence, tookMs) => {
      this.#propagation.observe({ outcome }, tookMs / 1000);
      const fields = { apiId, sequence, outcome, tookMs: Math.round(tookMs) };
      if (outcome === 'acks') log.info(fields, 'change complete');
      else log.warn(fields, outcome === 'fence' ? 'change complete by fence' : 'change lost in a failover');
    },
    killed: (apiId, killed, sequence) => {
      this.#killed.inc(killed.length);
      const members = killed.slice(0, 10).map(({ name }) => name);
      log.warn({ apiId, members, count: killed.length, sequence }, 'verifiers gave no answer');
    },
    reaped: (apiId, reaped) => {
      this.#reaped.inc(reaped.length);
      log.info({ apiId, count: reaped.length }, 'silent verifiers removed');
    },
  });

  readonly propagationEvents = (log: { warn: (fields: object, message: string) => void }): TrackerEvents => ({
    rewritten: (apiId, keyId, outcome) => {
      this.#rewritten.inc({ outcome });
      log.warn({ apiId, keyId, outcome }, 'a refusal lost in a failover was written again');
    },
  });
}
