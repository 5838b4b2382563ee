import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';

/**
 * Gauges to which prom-client gave the names of counters, which promtool refuses. prom-client also offers
 * these numbers by type, under names that promtool accepts.
 */
const RENAMES = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];
/** The smallest measurable delay; reported delays include it. */
const EVENT_LOOP_PRECISION_MS = 10;

/** Help of a gauge that both kinds of process have. */
export const CLOCK_HELP =
  'How far the clock of this process is ahead of that of Redis. Far from 0: keys expire too early or too late. Leases do not depend on it.';

/**
 * Adds the metrics of this process and of Node.js to a registry: CPU, memory, garbage collection, event loop.
 */
export function processMetrics(register = new Registry()): Registry {
  collectDefaultMetrics({ register, eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS });
  for (const name of RENAMES) register.removeSingleMetric(name);
  return register;
}

/** A metric without its explanation. */
interface MetricWithoutHelp<Metric> {
  help(text: string): Metric;
}

/**
 * Returns functions that create the metrics of a registry. A label's known `values` are shown before their
 * first event; otherwise a rate would miss that event.
 */
export function metricMakers(registry: Registry) {
  const registers = [registry];
  return {
    counter: <Label extends string = never>(
      name: string,
      label?: Label,
      values: readonly string[] = [],
    ): MetricWithoutHelp<Counter<Label>> => ({
      help(help) {
        const counter = new Counter({
          name,
          help,
          registers,
          labelNames: label === undefined ? [] : [label],
        });
        for (const value of values) counter.labels(value).inc(0);
        return counter;
      },
    }),
    /** Creates a counter whose value is read at each scrape. */
    count: (name: string, read: () => number): MetricWithoutHelp<Counter> => ({
      help: (help) =>
        new Counter({
          name,
          help,
          registers,
          collect() {
            this.reset();
            this.inc(read());
          },
        }),
    }),
    /**
     * Creates a gauge of the current state, which is read at each scrape. `aggregator` combines the values of
     * several processes.
     */
    gauge: (
      name: string,
      read: () => number,
      aggregator: 'sum' | 'min' = 'sum',
    ): MetricWithoutHelp<Gauge> => ({
      help: (help) =>
        new Gauge({
          name,
          help,
          registers,
          aggregator,
          collect() {
            this.set(read());
          },
        }),
    }),
  };
}
