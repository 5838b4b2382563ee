import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Section } from '../../bench/harness.ts';
import type { Measured } from '../../bench/page.ts';

const RESULTS = join(import.meta.dirname, '../../bench/results.json');

/** Servers whose CPU time of a request is shown: each label, and the beginning of its row. */
const WITH_A_VERDICT = {
  '**Keyfence**': 'Keyfence verifier',
  "HAProxy's map": 'HAProxy',
  'nginx with a Lua cache': 'nginx + Lua',
  "Envoy's filter": 'Envoy',
  'Fastify with a Redis GET': 'Fastify',
};
const WITHOUT = { "Rust's hyper": "Rust's hyper", Go: "Go's net/http", '`node:http`': 'minimal node:http' };

/** The other numbers: each question, and the row of bench/results.md whose value answers it. */
const HEADLINES = {
  'Latency at 5,000 requests a second, p50 / p99': 'Keyfence verifier, verifyKey from memory: p50 / p99',
  'A disable is complete, 1 verifier, p50 / p99': 'updateKey → complete by acks, 1 verifier: p50 / p99',
  '… 100 verifiers': 'updateKey → complete by acks, 100 verifiers (in one process): p50 / p99',
  'A look-up in Redis, p50 (relative to one GET)': 'a look-up (find the API, then SYNC with the record), p50',
  'Memory of a sidecar, idle (run from source)': 'RSS idle, run from the image (run from source)',
  '… after full load with 10,000 keys': 'RSS after full load, run from the image (run from source)',
};

/** Returns all measured numbers. */
export const results = () => JSON.parse(readFileSync(RESULTS, 'utf8')) as Measured[];

/** Returns the README's table of numbers. */
export function numbersTable(): string {
  const sections = results();
  const measured = sections.flatMap(({ rows }) => rows);
  const rows = Object.entries(HEADLINES).map(([question, row]) => {
    const result = measured.find(({ name }) => name === row);
    if (result === undefined) throw new Error(`bench/results.json has no row "${row}"`);
    const { value, target = '', met: isMet } = result;
    const [number = ''] = value.split(', Redis');
    return `| ${question} | ${number} | ${target}${target === '' || isMet ? '' : ', **missed**'} |`;
  });
  return [
    '| | measured | target |',
    '|---|---|---|',
    `| CPU time of a request with a verdict, µs | ${cpuTimes(sections, WITH_A_VERDICT)} | |`,
    `| … of servers that check nothing | ${cpuTimes(sections, WITHOUT)} | |`,
    ...rows,
  ].join('\n');
}

/** Returns the CPU time of a request of each server. */
function cpuTimes(sections: readonly Section[], servers: Readonly<Record<string, string>>): string {
  const peers = sections.find(({ title }) => title === 'Other projects in comparison');
  const times = Object.entries(servers).map(([label, row]) => {
    const found = peers?.rows.find(({ name, value }) => name.startsWith(row) && value.includes('µs of CPU'));
    const [, time] = /([\d.]+) µs of CPU/.exec(found?.value ?? '') ?? [];
    if (time === undefined) throw new Error(`bench/results.json has no CPU time of ${row}`);
    return `${label} ${time}`;
  });
  return times.join('; ');
}
