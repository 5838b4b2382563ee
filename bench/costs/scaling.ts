// The tables of deploy/scaling.md and of the sizing in deploy/README.md, calculated from costs.json; `npm run
// docs` writes them.

import { lastCosts } from './measured-costs.ts';
import type { Costs } from './simulated-redis.ts';

/** Share of Redis' main thread that may be busy, so that a burst does not become a queue. */
const BUSY_MAX = 0.5;
/** Measured by bench/requests/memory.ts, and on an idle verifier. */
const VERIFIER_BYTES_PER_KEY = 369;
const VERIFIER_BYTES = 90 * 2 ** 20;

/** The tables, by the names of their places. */
export function scalingTables(): Readonly<Record<'costs' | 'one-api' | 'sizing', string>> {
  const { machine, costs, simulated } = lastCosts();
  const mostOfOneApi = Math.floor((BUSY_MAX * 1e6) / costs.idleSyncUs);
  return {
    costs: [
      table(['part', 'cost'], costRows(costs)),
      '',
      `Measured by \`npm run costs\` on ${machine.join('; ')}. At ${costs.idleSyncUs.toFixed(0)} µs each, the idle SYNCs of ${count(mostOfOneApi)} verifiers keep one core of Redis ${percent(BUSY_MAX)} busy.`,
    ].join('\n'),
    'one-api': table(
      ['verifiers of the API', 'changes per second', 'Redis busy', 'until all have acknowledged, p50', 'p99'],
      simulated.map((row) => [
        count(row.verifiers),
        String(row.changesPerSecond),
        percent(row.busy),
        milliseconds(row.p50Ms),
        milliseconds(row.p99Ms),
      ]),
    ),
    sizing: table(
      ['keys', 'Redis', 'a verifier with all keys in memory', 'CACHE_KEYS_MAX'],
      [100_000, 1_000_000, 10_000_000, 100_000_000].map((keys) => [
        count(keys),
        gibibytes(keys * costs.bytesPerKey),
        keys > CACHE_KEYS_MAX
          ? 'too many for one verifier; size it for the keys in use'
          : gibibytes(VERIFIER_BYTES + keys * VERIFIER_BYTES_PER_KEY),
        keys > CACHE_KEYS_MAX ? `up to ${count(CACHE_KEYS_MAX)}` : String(keys),
      ]),
    ),
  };
}

/** The maximum that the setting allows. */
const CACHE_KEYS_MAX = 16_000_000;
function costRows(costs: Costs): string[][] {
  const us = (part: string, value: number) => [
    part,
    `${value < 10 ? value.toFixed(1) : value.toFixed(0)} µs of Redis`,
  ];
  return [
    us('creating a key', costs.createUs),
    us('changing a key, without the two rows below', costs.updateUs),
    us('the message about a change, to each verifier of the API', costs.publishUs),
    us('the acknowledgement of a change, from each verifier of the API', costs.ackUs),
    us(
      'a SYNC without changes; a verifier sends one per second for each API that it follows',
      costs.idleSyncUs,
    ),
    us('the look-up of a key that a verifier does not have in memory', costs.lookupUs),
    [
      'storing a key',
      `${count(Math.round(costs.bytesPerKey))} bytes in Redis, and ${VERIFIER_BYTES_PER_KEY} bytes of RSS in each verifier that has the key in memory`,
    ],
    [
      'a verifier',
      `${count(Math.round(costs.bytesPerVerifier))} bytes in Redis, for the verifier's connection and its entry as a member`,
    ],
    [
      'verifyKey from memory, over HTTP',
      `${costs.verifyUs.toFixed(0)} µs of the verifier's CPU time, nothing of Redis`,
    ],
  ];
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

const count = (value: number) => value.toLocaleString('en');
const percent = (share: number) => `${Math.round(share * 100)} %`;
const milliseconds = (value: number) => `${value < 10 ? value.toFixed(1) : count(Math.round(value))} ms`;
const gibibytes = (bytes: number) => {
  const value = bytes / 2 ** 30;
  return value < 1
    ? `${Math.round(value * 1024)} MiB`
    : `${value < 10 ? value.toFixed(1) : count(Math.round(value))} GiB`;
};
