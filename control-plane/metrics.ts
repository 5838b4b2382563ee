import { Counter, Gauge, Histogram } from 'prom-client';
import { CLOCK_HELP, metricMakers, processMetrics } from '#shared/process/process-metrics.ts';
import type { HistoryWatch } from '#shared/protocol/history/history-watch.ts';
import type { WriteResult } from '#shared/protocol/log/durable-writer.ts';
import type { DurabilityCheck } from '#shared/protocol/writer/durability.ts';
import type { Fence, FenceEvents } from '#shared/protocol/writer/fence.ts';
import type { WriterEvents } from '#shared/protocol/writer/writer.ts';
import type { RedisFacts } from '#shared/redis/server-facts.ts';
import type { BootstrapWatch } from './core/callers/bootstrap-keys.ts';
import type { Connections } from './core/serve/connections.ts';
import type { Audit } from './subjects/audit/audit.ts';
import type { CertificateWatch } from './subjects/fleet/certificate-watch.ts';
import type { WebhookEvents, WebhookSender } from './subjects/webhooks/webhook-sender.ts';

/** The parts of the control plane that metrics observe. */
interface MeasuredParts {
  readonly fence: Pick<Fence, 'pending' | 'oldestMs'>;
  readonly historyWatch: Pick<HistoryWatch, 'refused'>;
  readonly durability: Pick<DurabilityCheck, 'answering' | 'durable' | 'servers' | 'clockOffMs'>;
  readonly audit: Pick<Audit, 'waiting'>;
  readonly bootstrapWatch: Pick<BootstrapWatch, 'differing'>;
  readonly certificateWatch: Pick<CertificateWatch, 'ends'>;
  readonly connections: Pick<Connections, 'strangers' | 'admitted'>;
  readonly webhookSender: Pick<WebhookSender, 'isSender' | 'open' | 'failing' | 'gone'>;
}

/** The control plane's metrics. No label has unbounded values. */
export class Metrics {
  readonly registry = processMetrics();
  readonly #make = metricMakers(this.registry);
  readonly requests = new Histogram({
    name: 'keyfence_control_plane_request_duration_seconds',
    help: 'Duration of requests, including the wait until a change is complete. If updateKey is slow and keyfence_propagation_seconds says "fence", a verifier did not answer.',
    labelNames: ['operation', 'status'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    registers: [this.registry],
  });
  readonly #propagation = new Histogram({
    name: 'keyfence_propagation_seconds',
    help: 'Time from the write of a change until it was complete, by `outcome`. "acks": every verifier confirmed it, normally within milliseconds. "fence": some did not, and their leases had to end, after about LEASE_MS; a steady rate means that verifiers crash or are cut off. "lost": a failover of Redis lost the change.',
    labelNames: ['outcome'],
    buckets: [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60],
    registers: [this.registry],
  });
  readonly audit = new Counter({
    name: 'keyfence_audit_events_total',
    help: 'Events of the audit log, of calls that did something ("done") or were refused ("refused"). "late": Redis accepted it only after a wait in memory. "lost": it is only in the log of the process, because Redis was away until the process stopped, or more than 10,000 events waited.',
    labelNames: ['kind', 'result'],
    registers: [this.registry],
  });
  readonly rates = this.#make
    .counter('keyfence_rate_limited_total', 'limit', ['calls', 'waiting', 'failures', 'once', 'unchecked'])
    .help(
      'Calls that got 429. "calls": the root key was over its limit; "waiting": too many calls of the root key waited; "failures": no valid root key, from an address over its limit; "once": too many calls with an Idempotency-Key in a day. "unchecked" counts calls that were allowed because Redis could not count them.',
    );
  readonly connectionsClosed = this.#make
    .counter('keyfence_connections_closed_total', 'bound', ['address', 'strangers', 'all'])
    .help(
      'Connections that were closed to admit another. "address": one address reached CONNECTIONS_PER_ADDRESS_MAX; "strangers": connections without a valid root key reached half of CONNECTIONS_MAX; "all": all reached CONNECTIONS_MAX. A steady rate means a flood, or a proxy that TRUSTED_PROXIES lacks.',
    );
  readonly shed = this.#make
    .counter('keyfence_shed_total')
    .help(
      'Calls refused with 503 because the event loop lagged. Add a control plane, or find the caller that sends so many calls.',
    );
  readonly selfRevoked = this.#make
    .counter('keyfence_keys_self_revoked_total')
    .help('Keys that their holders revoked at /oauth2/revoke (selfRevocation).');
  readonly repeated = this.#make
    .counter('keyfence_calls_repeated_total')
    .help('Calls with the Idempotency-Key of an earlier one, which got its answer and changed nothing.');
  readonly leakReports = this.#make
    .counter('keyfence_leak_reports_total', 'result', ['handled', 'repeated', 'unsigned', 'unknown_key'])
    .help(
      'Reports to /v1/leaks.report. "handled"; "repeated": handled before, so nothing was done; "unsigned": without a valid signature; "unknown_key": signed by a key that LEAKS_PUBLIC_KEYS_FILE lacks, so the file may be out of date.',
    );
  readonly leaks = this.#make
    .counter('keyfence_leaked_secrets_total', 'kind', ['key', 'root_key', 'unknown'])
    .help('Secrets in handled reports, of a key or a root key, which the log names; "unknown": of neither.');
  readonly #webhookAttempts = this.#make
    .counter('keyfence_webhook_attempts_total', 'result', ['delivered', 'failed', 'dead'])
    .help(
      'Attempts to deliver events to webhook endpoints. "delivered": answered with 200 to 299; "failed": will be tried again; "dead": given up after three days.',
    );
  readonly #webhookDropped = this.#make
    .counter('keyfence_webhook_events_dropped_total')
    .help(
      'Events that an endpoint will never get, because its queue was full (WEBHOOK_QUEUE_MAX), or the audit log was trimmed too early (AUDIT_EVENTS_MAX).',
    );
  readonly #unusedDisabled = this.#make
    .counter('keyfence_unused_keys_disabled_total')
    .help('Keys that this control plane disabled because nobody used them (disableUnusedAfterMs).');
  readonly onUnusedDisabled = (keys: number): void => this.#unusedDisabled.inc(keys);
  readonly webhookEvents: WebhookEvents = {
    onAttempt: (result) => this.#webhookAttempts.inc({ result }),
    onDropped: (events) => this.#webhookDropped.inc(events),
  };
  readonly #killed = this.#make
    .counter('keyfence_laggards_killed_total')
    .help(
      'Followers that were cut off because they did not confirm a change in time. Each registers again once it reaches Redis.',
    );
  readonly #reaped = this.#make
    .counter('keyfence_laggards_removed_total')
    .help(
      'Followers that were cut off and then removed. Until a follower is removed, which may take as long as its lease again, every change of its API completes by fence.',
    );
  readonly #rewritten = this.#make
    .counter('keyfence_lost_stops_total', 'outcome', ['written', 'conflict', 'given up'])
    .help(
      'Disables and deletions that a failover of Redis lost. "written": written again. "conflict": not, because of a later write. "given up": not, because Redis did not accept it. Above 0: check REDIS_REPLICAS.',
    );
  readonly historiesLost = this.#make
    .counter('keyfence_histories_lost_total')
    .help(
      'How often Redis lost changes of an API that were not known to be durable, or an API that was not deleted.',
    );
  readonly #writes = this.#make
    .counter('keyfence_writes_total', 'result', ['replicated', 'short', 'failed'])
    .help(
      'Runs of scripts that write to Redis. "replicated": REDIS_REPLICAS replicas have the write. "short": a replica is missing or slow, so changes stay pending and verifiers cannot register. "failed": the call got 503.',
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
  watch({
    fence,
    durability,
    historyWatch,
    audit,
    bootstrapWatch,
    certificateWatch,
    connections,
    webhookSender,
  }: MeasuredParts): void {
    const { gauge } = this.#make;
    gauge('keyfence_connections_strangers', () => connections.strangers).help(
      'Connections to the API that have not carried a call with a valid root key. At most half of CONNECTIONS_MAX.',
    );
    gauge('keyfence_connections_admitted', () => connections.admitted).help(
      'Connections to the API whose latest call had a valid root key, and connections of TRUSTED_PROXIES.',
    );
    gauge('keyfence_fences_pending', () => fence.pending).help(
      'Changes that are not complete. Stays above 0 while Redis is out of reach, and for about LEASE_MS if a verifier is.',
    );
    gauge('keyfence_fence_oldest_seconds', () => fence.oldestMs / 1000).help(
      'Age of the oldest change that is not complete; 0 = none. Much more than LEASE_MS: Redis cannot be reached, or a replica is missing.',
    );
    gauge('keyfence_audit_events_waiting', () => audit.waiting).help(
      'Audit events of changes that wait in memory because Redis did not accept them. Those beyond 10,000, and those that wait when the process is killed, are only in its log.',
    );
    gauge('keyfence_webhook_sender', () => (webhookSender.isSender ? 1 : 0)).help(
      '1 in the control plane that sends webhooks; 0 in the others. If it dies, another takes over within 10 s.',
    );
    gauge('keyfence_webhook_events_open', () => webhookSender.open).help(
      'Events that wait until their change is complete, before they are queued; in the sender.',
    );
    gauge('keyfence_webhook_endpoints_failing', () => webhookSender.failing).help(
      'Webhook endpoints that failed so often in a row that one event at a time is tried; in the sender.',
    );
    gauge('keyfence_webhook_endpoints_gone', () => webhookSender.gone).help(
      'Webhook endpoints that answered 410 Gone and were disabled. Each loses its events until somebody enables or deletes it.',
    );
    gauge('keyfence_bootstrap_root_keys_differing', () => bootstrapWatch.differing).help(
      'Above 0 if other control planes had other bootstrap root keys (ROOT_KEY) within the last 90 s; checked every 30 s. Outside a rotation: some control plane may accept a root key that you have withdrawn.',
    );
    gauge('keyfence_redis_reachable', () => (durability.answering ? 1 : 0)).help(
      '1 if Redis answered the last check (every 5 s; in a Cluster, every primary did); 0 otherwise.',
    );
    gauge('keyfence_histories_refused', () => historyWatch.refused).help(
      'APIs, and the shared log, of which Redis lacks changes that were durable, as after a restore. Verifiers answer 503 for them until somebody accepts it: `keyfence doctor`. All control planes report the same number.',
    );
    gauge('keyfence_durable', () => (durability.durable ? 1 : 0)).help(
      '1 if acknowledged writes survive a crash or power cut of any primary, and a failover; checked every 5 s. 0: a disabled key can come back; the log names the setting to correct. For `durable` of an answer, the control plane checks again.',
    );
    const evicted = () => durability.servers.reduce((sum, server) => sum + server.evicted, 0);
    gauge('keyfence_redis_evicted_keys', evicted).help(
      'Redis keys that Redis evicted since it started, because its memory was full. Above 0: API keys, or data that disables need, are lost; set `maxmemory-policy noeviction`. All control planes report the same number.',
    );
    new Gauge({
      name: 'keyfence_redis_memory_bytes',
      help: 'Memory of Redis, as of the last check (every 5 s); of several primaries, the fullest. "used": what counts towards the limit. "max": `maxmemory`; 0 = no limit. When it is full, no key can be created; disables still work.',
      labelNames: ['kind'],
      registers: [this.registry],
      collect() {
        const share = (server: RedisFacts) => server.memoryUsed / server.memoryMax;
        const [fullest] = durability.servers.toSorted((a, b) => share(b) - share(a));
        this.set({ kind: 'used' }, fullest?.memoryUsed ?? 0);
        this.set({ kind: 'max' }, fullest?.memoryMax ?? 0);
      },
    });
    const canWrite = () => (durability.servers.every(({ unwritten }) => unwritten.length === 0) ? 1 : 0);
    gauge('keyfence_redis_disk_ok', canWrite).help(
      '0 if a primary could not write or rewrite its files the last time it tried, usually because its disk is full. Redis does not tell how full the disk is.',
    );
    gauge('keyfence_clock_offset_seconds', () => durability.clockOffMs / 1000).help(CLOCK_HELP);
    gauge('keyfence_certificate_end_timestamp_seconds', () =>
      certificateWatch.ends.size === 0 ? 0 : Math.min(...certificateWatch.ends.values()) / 1000,
    ).help(
      'Unix time at which the first certificate of Redis or a Sentinel ends, or of an authority that signed it; checked every hour. 0 without TLS. Replicas are not seen.',
    );
  }

  /** Counts the result of a writing script. */
  readonly wrote = (result: WriteResult): void => this.#writes.inc({ result });

  readonly fenceEvents = (log: {
    info: (fields: object, message: string) => void;
    warn: (fields: object, message: string) => void;
  }): FenceEvents => ({
    ended: (outcome, apiId, sequence, tookMs) => {
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

  readonly writerEvents = (log: { warn: (fields: object, message: string) => void }): WriterEvents => ({
    rewritten: (apiId, keyId, outcome) => {
      this.#rewritten.inc({ outcome });
      log.warn({ apiId, keyId, outcome }, 'a stop lost in a failover was written again');
    },
  });
}
