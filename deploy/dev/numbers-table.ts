import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Section } from '../../bench/harness.ts';

const RESULTS = join(import.meta.dirname, '../../bench/results.json');

/** Servers whose CPU time of a request is shown: each label, and the beginning of its row. */
const SERVERS: readonly (readonly [label: string, row: string])[] = [
  ['**Keyfence**', 'Keyfence verifier'],
  ["Rust's hyper", "Rust's hyper"],
  ["HAProxy's map", 'HAProxy'],
  ["Envoy's filter", 'Envoy'],
  ['Go', "Go's net/http"],
  ['`node:http`', 'minimal node:http'],
  ['Fastify with a Redis GET', 'Fastify'],
];

/** Four of the numbers in bench/results.md: each question, and the rows whose values answer it. */
const HEADLINES: readonly (readonly [question: string, row: string])[] = [
  ['Latency at 5,000 requests a second, p50 / p99', 'Keyfence verifier, verifyKey from memory: p50 / p99'],
  ['Time until a disable is complete, p50 / p99', 'updateKey → complete by acks, 1 verifier: p50 / p99'],
  [
    'Looking a key up in Redis, p50 (relative to one GET)',
    'a look-up (find the API, then SYNC with the record), p50',
  ],
  ['Memory of an idle sidecar (run from source)', 'RSS idle, run from the image (run from source)'],
];

/** Returns the README's table of numbers. */
export function numbersTable(): string {
  const sections = JSON.parse(readFileSync(RESULTS, 'utf8')) as Section[];
  const results = sections.flatMap(({ rows }) => rows);
  const rows = HEADLINES.map(([question, row]) => {
    const result = results.find(({ name }) => name === row);
    if (result === undefined) throw new Error(`bench/results.json has no row "${row}"`);
    const { value, target = '', met: isMet } = result;
    return `| ${question} | ${value} | ${target}${target === '' || isMet ? '' : ', **not met**'} |`;
  });
  return ['| | measured | target |', '|---|---|---|', cpuRow(sections), ...rows].join('\n');
}

/** Returns the row with the CPU time of a request of each measured server, including its check of a key. */
function cpuRow(sections: readonly Section[]): string {
  const peers = sections.find(({ title }) => title === 'Other projects in comparison');
  const times = SERVERS.flatMap(([label, row]) => {
    const found = peers?.rows.find(({ name, value }) => name.startsWith(row) && value.includes('µs of CPU'));
    const [, time] = /([\d.]+) µs of CPU/.exec(found?.value ?? '') ?? [];
    return time === undefined ? [] : [`${label} ${time}`];
  });
  if (times.length === 0)
    throw new Error('bench/results.json has no CPU times of "Other projects in comparison"');
  return `| CPU time of a verification, µs | ${times.join('; ')} | |`;
}
