import { AggregatorRegistry, Registry } from 'prom-client';
import { type Clock, pause } from '#shared/lang/clock.ts';
import type { FromWorker, MetricValues, ToWorker } from './messages.ts';

const REPORT_MS_MAX = 2000;

/** A worker process that reports its metrics. */
export interface ReportingWorker {
  readonly id: number;
  send(message: ToWorker): void;
}

/**
 * The metrics of several workers as if they were those of one process. Counters go on when a worker ends: what it had
 * counted at its last report stays in the sum.
 */
export class WorkerMetrics {
  readonly contentType = new Registry().contentType;
  readonly #workers: () => readonly ReportingWorker[];
  readonly #clock: Clock;
  /** The latest report of each worker. */
  readonly #latest = new Map<number, MetricValues>();
  /** Counters of workers that have ended. */
  #ended: MetricValues = [];
  #request = 0;
  #waiting = new Map<number, () => void>();

  constructor(workers: () => readonly ReportingWorker[], clock: Clock) {
    this.#workers = workers;
    this.#clock = clock;
  }

  /** Asks every worker for its metrics, and returns the sums in Prometheus's text format. */
  async metrics(): Promise<string> {
    await Promise.all(this.#workers().map((worker) => this.#ask(worker)));
    return sumOf([this.#ended, ...this.#latest.values()]).metrics();
  }

  /** Takes the report of a worker. */
  take(workerId: number, { request, values }: Extract<FromWorker, { type: 'metrics' }>): void {
    this.#latest.set(workerId, values);
    this.#waiting.get(request)?.();
  }

  /** Keeps what a worker has counted, and forgets its state. */
  async end(workerId: number): Promise<void> {
    const last = this.#latest.get(workerId);
    this.#latest.delete(workerId);
    if (!last) return;
    const counters = last.filter(({ type }) => COUNTING.has(String(type)));
    this.#ended = await sumOf([this.#ended, counters]).getMetricsAsJSON();
  }

  /** Resolves when the worker has reported, or takes too long; then its earlier report counts. */
  async #ask(worker: ReportingWorker): Promise<void> {
    const request = this.#request++;
    const reported = new AbortController();
    this.#waiting.set(request, () => reported.abort());
    worker.send({ type: 'metrics', request });
    await pause(this.#clock, REPORT_MS_MAX, reported.signal);
    this.#waiting.delete(request);
  }
}

/** Types of metrics that only grow. */
const COUNTING = new Set(['counter', 'histogram']);

/** Joins metrics as each of them says: most are summed, ages have the highest, leases the lowest value. */
const sumOf = (values: readonly MetricValues[]): Registry =>
  AggregatorRegistry.aggregate(values.filter((each) => each.length > 0) as never);
