import type { Registry } from 'prom-client';
import type { MetricsRegistry } from './key-verifier.ts';

/** The verifiers in one registry of the application, by number, and their common metrics. */
interface RegistryEntry {
  readonly verifiers: Map<number, Registry>;
  readonly metrics: readonly SharedMetric[];
}

type OwnMetric = ReturnType<Registry['getMetricsAsArray']>[number];

const entries = new WeakMap<MetricsRegistry, RegistryEntry>();

/**
 * Adds a verifier's metrics to a registry of the application. The label `verifier` is the lowest free number.
 * Throws the registry's own errors, for example if another metric has the same name. Returns a function that
 * removes the verifier's metrics.
 */
export function registerMetrics(own: Registry, registry: MetricsRegistry): () => void {
  const entry = entries.get(registry) ?? metricsLike(own);
  // Registers them again each time, because the application may have cleared the registry.
  for (const metric of entry.metrics) registry.registerMetric(metric);
  entries.set(registry, entry);
  const { verifiers } = entry;
  let number = 1;
  while (verifiers.has(number)) number++;
  verifiers.set(number, own);
  return () => void verifiers.delete(number);
}

function metricsLike(own: Registry): RegistryEntry {
  const verifiers = new Map<number, Registry>();
  const metrics = own.getMetricsAsArray().map((metric) => new SharedMetric(metric, verifiers));
  return { verifiers, metrics };
}

/**
 * One metric with the values of all verifiers in a registry, in the form that every version of prom-client
 * accepts.
 */
class SharedMetric {
  /** Writable, because an OpenMetrics registry changes the suffix of a counter's name. */
  name: string;
  readonly help: string;
  readonly type: OwnMetric['type'];
  readonly aggregator: string;
  readonly #name: string;
  readonly #verifiers: ReadonlyMap<number, Registry>;

  constructor(original: OwnMetric, verifiers: ReadonlyMap<number, Registry>) {
    this.name = original.name;
    this.#name = original.name;
    this.help = original.help;
    this.type = original.type;
    this.aggregator = original.aggregator;
    this.#verifiers = verifiers;
  }

  async get() {
    const { name, help, type, aggregator } = this;
    const each = [...this.#verifiers].map(async ([number, own]) => {
      const { values = [] } = (await own.getSingleMetric(this.#name)?.get()) ?? {};
      return values.map((value) => ({ ...value, labels: { verifier: String(number), ...value.labels } }));
    });
    return { name, help, type, aggregator, values: (await Promise.all(each)).flat() };
  }

  reset(): void {
    // Does nothing: resetting the application's counters must not reset the verifiers'.
  }
}
