// `npm run bench`: measures every number of the README.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { scriptArguments, wrongArguments } from '../deploy/dev/arguments.ts';
import { type Benchmark, machine } from './harness.ts';
import { type Measured, markdown, page } from './page.ts';
import { plot } from './plot.ts';

/** The folder of each benchmark, in the order of results.md. */
const folders: Readonly<Record<string, string>> = {
  'verify-hit': 'requests',
  'authz-hit': 'requests',
  v2: 'requests',
  tokens: 'requests',
  clients: 'requests',
  'fixed-rate': 'requests',
  flood: 'requests',
  misses: 'requests',
  regions: 'requests',
  'key-count': 'requests',
  memory: 'requests',
  'metrics-cost': 'requests',
  'start-up': 'requests',
  'shared-port': 'costs',
  tests: 'costs',
  propagation: 'changes',
  fleet: 'changes',
  writes: 'changes',
  import: 'changes',
  many: 'changes',
  webhooks: 'changes',
  'list-keys': 'changes',
  limits: 'requests',
  roles: 'requests',
  costs: 'costs',
  gateways: 'compared',
  proxy: 'compared',
  middleware: 'compared',
  peers: 'compared',
  revocation: 'compared',
};
const names = Object.keys(folders);

const USAGE = `npm run bench -- [quick] [NAME]… [--write]

Measures on this machine and prints a section of results for each; all of them take about an hour.

  quick     shorter runs, in minutes
  NAME      only these: ${names.join(', ')}
  --write   renews bench/results.json, results.md and results.svg`;

const { values, positionals } = scriptArguments(USAGE, {
  allowPositionals: true,
  options: { write: { type: 'boolean' } },
});
const quick = positionals.includes('quick');
const asked = positionals.filter((name) => name !== 'quick');
const unknown = asked.filter((name) => !names.includes(name));
if (unknown.length > 0) wrongArguments(`There is no benchmark ${unknown.join(', ')}.`, USAGE);

const fresh: Measured[] = [];
const on = machine();
for (const name of asked.length > 0 ? asked : names) {
  const { default: benchmark } = (await import(`./${folders[name]}/${name}.ts`)) as { default: Benchmark };
  try {
    const section = { name, on, ...(await benchmark({ quick })) };
    fresh.push(section);
    console.log(markdown(section));
  } catch (error) {
    // Go on with the other benchmarks.
    console.error(`${name}:`, error);
    process.exitCode = 1;
  }
}
if (values.write) {
  const file = (name: string) => join(import.meta.dirname, name);
  const earlier = existsSync(file('results.json'))
    ? (JSON.parse(readFileSync(file('results.json'), 'utf8')) as Measured[])
    : [];
  // Keep earlier results of benchmarks that did not run now.
  const all = names.flatMap((name) => [...fresh, ...earlier].find((section) => section.name === name) ?? []);
  writeFileSync(file('results.json'), `${JSON.stringify(all, null, 2)}\n`);
  writeFileSync(file('results.md'), page(all));
  writeFileSync(file('results.svg'), plot(all));
}
