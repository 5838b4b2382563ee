import type { Section } from './harness.ts';

/** A section of results, and the commit, day and machine of its measurement. */
export interface Measured extends Section {
  readonly name: string;
  readonly on: string;
}

/** Benchmarks that only maintainers compare, before and after a change: their numbers are in results.json alone. */
const FOR_MAINTAINERS = ['authz-hit', 'v2', 'key-count', 'metrics-cost', 'list-keys'];

/** Benchmarks that people compare with other systems or with their own; the page has all their rows, and how they were measured. */
const WHOLE = ['propagation', 'fleet', 'revocation', 'peers'];

/** Returns results.md. */
export function page(sections: readonly Measured[]): string {
  return `# Results

p50 is the median of the latencies, p99 their 99th percentile. "In turns" means that the variants ran one after the other in each
round. A ratio is the median of the ratios of single rounds. Unless a section says otherwise, the servers run on core 0 and the load
generator on the other core. Machines and commits differ, so compare numbers of one benchmark only.

![throughput, latency and costs](results.svg)

${sections
  .filter(({ name }) => WHOLE.includes(name))
  .map(markdown)
  .join('\n')}
${targets(sections.filter(({ name }) => ![...WHOLE, ...FOR_MAINTAINERS].includes(name)))}`;
}

/** Returns the rows that have a target, without those that only explain them. */
function targets(sections: readonly Measured[]): string {
  const rows = sections.flatMap(({ name: benchmark, rows }) =>
    rows
      .filter(({ target }) => target !== undefined)
      .map((row) => `| ${benchmark} | ${row.name} | ${row.value} | ${wanted(row)} |`),
  );
  return [
    '## Targets',
    '`npm run bench -- <benchmark>` measures each, and prints how. [results.json](results.json) has all rows, machines and commits. A "floor" is the same gateway with an nginx that always gives the verifier\'s answer.',
    '',
    '| benchmark | | measured | target |',
    '|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}

export function markdown({ title, about, name, on, rows }: Measured): string {
  const hasTargets = rows.some(({ target }) => target !== undefined);
  const cells = hasTargets ? '|---|---|---|' : '|---|---|';
  const table = rows.map((row) =>
    hasTargets ? `| ${row.name} | ${row.value} | ${wanted(row)} |` : `| ${row.name} | ${row.value} |`,
  );
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

const wanted = ({ target, met }: Section['rows'][number]) =>
  target === undefined ? '' : `${target}: ${met ? 'met' : '**missed**'}`;
