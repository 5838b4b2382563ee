import type { MetricObjectWithValues, MetricValue } from 'prom-client';
import type { Addresses } from '../listeners.ts';

/** The metrics of a process, as prom-client writes them to JSON. */
export type MetricValues = readonly MetricObjectWithValues<MetricValue<string>>[];

/** What the main process says to a worker. */
export type ToWorker = { readonly type: 'stop' } | { readonly type: 'metrics'; readonly request: number };

/** What a worker says to the main process. */
export type FromWorker =
  | { readonly type: 'listening'; readonly addresses: Addresses }
  | { readonly type: 'ready' }
  | { readonly type: 'metrics'; readonly request: number; readonly values: MetricValues };
