import type { Registry } from 'prom-client';
import type { MetricsRegistry } from './key-verifier.ts';

/** Verifiers that an application's registry shows, by their numbers, and the metrics for all of them. */
interface Shown {
  readonly verifiers: Map<number, Registry>;
  readonly metrics: readonly SharedMetric[];
}

type OwnMetric = ReturnType<Registry['getMetricsAsArray']>[number];

const shownIn = new WeakMap<MetricsRegistry, Shown>();

/**
 * Shows a verifier's own metrics in a registry of the application, with the label `verifier`: 1, or the next number that is
 * free. Throws what the registry throws, as where a metric of another has such a name. Returns what takes them out again.
 */
export function registerMetrics(own: Registry, registry: MetricsRegistry): () => void {
  const shown = shownIn.get(registry) ?? metricsLike(own);
  // Once more each time: the application may have cleared it.
  for (const metric of shown.metrics) registry.registerMetric(metric);
  shownIn.set(registry, shown);
  const { verifiers } = shown;
  let number = 1;
  while (verifiers.has(number)) number++;
  verifiers.set(number, own);
  return () => void verifiers.delete(number);
}

function metricsLike(own: Registry): Shown {
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

  constructor(like: OwnMetric, verifiers: ReadonlyMap<number, Registry>) {
    this.name = like.name;
    this.#name = like.name;
    this.help = like.help;
    this.type = like.type;
    this.aggregator = like.aggregator;
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
