import type { MetricObjectWithValues, MetricValue } from 'prom-client';
import type { Addresses } from '../listeners.ts';

/** The metrics of a process, as prom-client writes them to JSON. */
export type MetricValues = readonly MetricObjectWithValues<MetricValue<string>>[];

/** A message of the main process to a worker. */
export type ToWorker = { readonly type: 'stop' } | { readonly type: 'metrics'; readonly request: number };

/** A message of a worker to the main process. */
export type FromWorker =
  | { readonly type: 'listening'; readonly addresses: Addresses }
  | { readonly type: 'ready' }
  | { readonly type: 'metrics'; readonly request: number; readonly values: MetricValues };
