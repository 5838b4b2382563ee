import { collectDefaultMetrics, Registry } from 'prom-client';

/** Gauges that prom-client names like counters, which promtool refuses; the same numbers by type remain. */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];
/** The least delay that is told from none; reported delays include it. */
const EVENT_LOOP_PRECISION_MS = 10;

/** A registry with the metrics of this process and of Node.js: CPU, memory, garbage collection, event loop. */
export function processMetrics(): Registry {
  const register = new Registry();
  collectDefaultMetrics({ register, eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS });
  for (const name of MISNAMED) register.removeSingleMetric(name);
  return register;
}
