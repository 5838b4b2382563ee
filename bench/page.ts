import type { Section } from './harness.ts';

/** A section of results, and the commit, day and machine of its measurement. */
export interface Measured extends Section {
  readonly name: string;
  readonly on: string;
}

/** Benchmarks that only maintainers compare, before and after a change: their numbers are in results.json alone. */
const FOR_MAINTAINERS = ['authz-hit', 'v2', 'key-count', 'metrics-cost', 'list-keys'];

/** Returns results.md. */
export function page(sections: readonly Measured[]): string {
  return `# Results

p50 is the median of the latencies, p99 their 99th percentile. "In turns" means that the variants ran one after the other in each
round. A ratio is the median of the ratios of single rounds. The servers run on core 0 and the load generator on the other core, unless
a section says otherwise. The sections were measured on different machines and at different commits, which
[results.json](results.json) names in full, so compare numbers within one section only.

![throughput, latency and costs](results.svg)

${sections
  .filter(({ name }) => !FOR_MAINTAINERS.includes(name))
  .map(markdown)
  .join('\n')}`;
}

export function markdown({ title, about, name, on, rows }: Measured): string {
  const hasTargets = rows.some(({ target }) => target !== undefined);
  const cells = hasTargets ? '|---|---|---|' : '|---|---|';
  const table = rows.map(({ name, value, target, met }) => {
    const wanted = target === undefined ? '' : `${target}: ${met ? 'met' : '**missed**'}`;
    return hasTargets ? `| ${name} | ${value} | ${wanted} |` : `| ${name} | ${value} |`;
  });
  const [commit = '', day = '', processor = ''] = on.split(', ');
  return [
    `## ${title}`,
    about,
    '',
    `\`npm run bench -- ${name}\`, ${commit.replace(' and uncommitted changes', ' and changes')}, ${day}, ${processor}`,
    '',
    `| | |${hasTargets ? ' target |' : ''}`,
    cells,
    ...table,
    '',
  ].join('\n');
}
