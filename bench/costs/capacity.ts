// Says what to buy for a number of keys, verifiers and requests, calculated from costs.json and storage.json.
import { numberArgument, scriptArguments } from '../../deploy/dev/arguments.ts';
import { lastCosts } from './measured-costs.ts';
import { lastStorage, measureStorage } from './storage.ts';

const USAGE = `npm run capacity -- --keys N --verifiers N --rps N [--changes N] [--meta BYTES] [--used N]
  --keys       keys that exist
  --verifiers  verifier processes, which all follow the API
  --rps        requests per second, of all verifiers together
  --changes    changes of keys per second; 1 by default
  --meta       length of the \`meta\` of a key, bytes; 0 by default
  --used       keys in the memory of one verifier; all by default, but at most 100,000
npm run capacity -- --measure: measures again what keys take on disk and verifiers of the network`;

/** Bytes of an idle verifier, and of a key in its memory (bench/requests/memory.ts). */
const VERIFIER_BYTES = 90 * 2 ** 20;
const VERIFIER_BYTES_PER_KEY = 369;
/** Share of a machine's memory up to which Redis may grow; the rest is for rewriting its file. */
const MEMORY_SHARE = 0.6;
/** Share of one core up to which a process should be busy. */
const BUSY_MAX = 0.5;
/** A verifier reports its state every 10 s, its usage and its refusals every 60 s. */
const REPORTS_PER_SECOND = 1 / 10 + 2 / 60;

/** What the calculator is asked. */
export interface Load {
  readonly keys: number;
  readonly verifiers: number;
  readonly rps: number;
  readonly changes: number;
  readonly meta: number;
  readonly used: number;
}

/** Returns the lines of the answer. */
export function capacity({ keys, verifiers, rps, changes, meta, used }: Load): string[] {
  const { costs } = lastCosts();
  const { storage } = lastStorage();
  const data = keys * (costs.bytesPerKey + 2 * meta) + verifiers * costs.bytesPerVerifier;
  const file = keys * (storage.fileBytesPerKey + meta);
  const busyUs = verifiers * (costs.idleSyncUs + changes * (costs.publishUs + costs.ackUs));
  const busy = (busyUs + changes * costs.updateUs) / 1e6;
  const network = verifiers * (storage.idleSyncBytes + changes * storage.changeBytes);
  const writes = changes * (1 + verifiers) + verifiers * REPORTS_PER_SECOND;
  const cores = ((rps / verifiers) * costs.verifyUs) / 1e6;
  const row = (what: string, value: string) => `  ${what.padEnd(34)}${value}`;
  return [
    'Each Redis server',
    row('memory of the data', gibibytes(data)),
    row('… while it rewrites its file', gibibytes(1.5 * data)),
    row('maxmemory at least (80 % full)', gibibytes(data / 0.8)),
    row('memory of the machine', gibibytes(data / 0.8 / MEMORY_SHARE)),
    row('files, at most, while it rewrites', gibibytes(3 * file)),
    row('disk, of which 40 % are then free', gibibytes(5 * file)),
    row('synced writes per second, at most', Math.ceil(writes).toLocaleString('en')),
    row('network', `${((8 * network) / 1e6).toFixed(2)} Mbit/s`),
    row('busy, of one core', percent(busy) + (busy > BUSY_MAX ? ': too much, see the limits' : '')),
    row('time to load after a restart', `${Math.ceil((keys * storage.loadUsPerKey) / 1e6)} s`),
    'Each control plane',
    row('request; limit', '100m CPU, 160Mi; 256Mi'),
    'Each verifier',
    row('CPU of verifications', percent(cores)),
    row(
      'request',
      `${Math.max(50, Math.ceil(cores * 2000))}m CPU, ${mebibytes(VERIFIER_BYTES + used * VERIFIER_BYTES_PER_KEY)}`,
    ),
    row('limit (none for CPU)', mebibytes(1.5 * (VERIFIER_BYTES + used * VERIFIER_BYTES_PER_KEY))),
    row('CACHE_KEYS_MAX', String(Math.max(100_000, used))),
  ];
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const mebibytes = (bytes: number) => `${Math.ceil(bytes / 2 ** 20 / 16) * 16}Mi`;
const gibibytes = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

async function main(): Promise<void> {
  const text = { type: 'string' } as const;
  const { values } = scriptArguments(USAGE, {
    options: {
      ...{ keys: text, verifiers: text, rps: text, changes: text, meta: text, used: text },
      measure: { type: 'boolean' },
    },
  });
  if (values.measure) return measureStorage();
  const read = (
    option: 'keys' | 'verifiers' | 'rps' | 'changes' | 'meta' | 'used',
    min: number,
    byDefault = '',
  ) => numberArgument(option, values[option] ?? byDefault, min, USAGE);
  const keys = read('keys', 1);
  const load = { keys, verifiers: read('verifiers', 1), rps: read('rps', 0) };
  const more = { changes: read('changes', 0, '1'), meta: read('meta', 0, '0') };
  console.log(
    capacity({ ...load, ...more, used: read('used', 0, String(Math.min(keys, 100_000))) }).join('\n'),
  );
}

if (import.meta.main) await main();
