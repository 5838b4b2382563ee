import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';

/** Gauges that prom-client names like counters, which promtool refuses; the same numbers by type remain. */
const RENAMES = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];
/** The least delay that is told from none; reported delays include it. */
const EVENT_LOOP_PRECISION_MS = 10;

/** A registry to which the metrics of this process and of Node.js are added: CPU, memory, garbage collection, event loop. */
export function processMetrics(register = new Registry()): Registry {
  collectDefaultMetrics({ register, eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS });
  for (const name of RENAMES) register.removeSingleMetric(name);
  return register;
}

/** Completes a metric with the text that says how to read it. */
interface MetricWithoutHelp<Metric> {
  help(text: string): Metric;
}

/** Makes the metrics of a registry. What has known `values` of its label shows them before the first event, or a rate misses that one. */
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
    /** A counter that something else counts; it is read at a scrape. */
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
    /** A present state, read at a scrape; `aggregator` joins those of several processes. */
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
