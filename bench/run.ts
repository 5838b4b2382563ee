// `npm run bench`: every number of the README; `-- quick` the short run, `-- <name> …` some of them. `--write` renews results.md.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Benchmark, machine, type Section } from './harness.ts';
import { plot } from './plot.ts';

/** In the order of results.md. */
const names = [
  'verify-hit',
  'authz-hit',
  'fixed-rate',
  'flood',
  'misses',
  'key-count',
  'memory',
  'metrics-cost',
  'start-up',
  'propagation',
  'writes',
  'list-keys',
  'costs',
  'gateways',
  'proxy',
  'peers',
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { write: { type: 'boolean' } },
});
const quick = positionals.includes('quick');
const asked = positionals.filter((name) => name !== 'quick');
const unknown = asked.filter((name) => !names.includes(name));
if (unknown.length > 0) {
  console.error(`There is no benchmark ${unknown.join(', ')}. There are: quick, ${names.join(', ')}`);
  process.exit(2);
}

const sections: Section[] = [];
for (const name of asked.length > 0 ? asked : names) {
  const { default: benchmark } = (await import(`./${name}.ts`)) as { default: Benchmark };
  try {
    const section = await benchmark({ quick });
    sections.push(section);
    console.log(markdown(section));
  } catch (error) {
    // The others still have something to say.
    console.error(`${name}:`, error);
    process.exitCode = 1;
  }
}
if (values.write) {
  const file = join(import.meta.dirname, 'results.md');
  const head = [
    '# Results',
    '',
    ...machine().map((line) => `- ${line}`),
    `- \`npm run bench -- ${process.argv.slice(2).join(' ')}\`; other sections are of earlier runs`,
    '',
    '![throughput](results.svg)',
    '',
  ];
  // What was not measured now stays.
  const fresh = new Map(sections.map((section) => [section.title, markdown(section)]));
  const earlier = existsSync(file)
    ? readFileSync(file, 'utf8')
        .split(/^(?=## )/m)
        .slice(1)
    : [];
  const kept = earlier.map((text) => {
    const title = /^## (.*)$/m.exec(text)?.[1] ?? '';
    const renewed = fresh.get(title);
    fresh.delete(title);
    return renewed ?? text.trimEnd().concat('\n');
  });
  writeFileSync(file, `${head.join('\n')}\n${[...kept, ...fresh.values()].join('\n')}`);
  writeFileSync(join(import.meta.dirname, 'results.svg'), plot(sections));
}

function markdown({ title, about, rows }: Section): string {
  const table = rows.map(
    ({ name, value, target, met }) =>
      `| ${name} | ${value} | ${target ?? ''} | ${met === undefined ? '' : met ? 'met' : '**not met**'} |`,
  );
  return [
    `## ${title}`,
    about,
    '',
    '| number | measured | target | |',
    '|---|---|---|---|',
    ...table,
    '',
  ].join('\n');
}
