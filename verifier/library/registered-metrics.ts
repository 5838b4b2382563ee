import type { Registry } from 'prom-client';
import type { MetricsRegistry } from './key-verifier.ts';

/** Verifiers that an application's registry shows, by their numbers, and the metrics for all of them. */
interface RegistryEntry {
  readonly verifiers: Map<number, Registry>;
  readonly metrics: readonly SharedMetric[];
}

type OwnMetric = ReturnType<Registry['getMetricsAsArray']>[number];

const entries = new WeakMap<MetricsRegistry, RegistryEntry>();

/**
 * Shows a verifier's own metrics in a registry of the application, with the label `verifier`: 1, or the next number that is
 * free. Throws what the registry throws, as where a metric of another has such a name. Returns what takes them out again.
 */
export function registerMetrics(own: Registry, registry: MetricsRegistry): () => void {
  const entry = entries.get(registry) ?? metricsLike(own);
  // Once more each time: the application may have cleared it.
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

/** A metric of all verifiers in a registry, in the form that prom-client asks of one, whichever version it is. */
class SharedMetric {
  /** Changed by a registry of OpenMetrics, which writes the end of a counter's name itself. */
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
    // What a verifier has counted is not forgotten because the application's counters are.
  }
}
