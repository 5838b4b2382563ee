// `npm run metering`: counts what metered requests ask of Redis, for the table in verifier/metering/metering.md. It counts calls
// and CPU time, no time by the clock, so that it may run on a busy machine.
import { Redis } from 'ioredis';
import { scriptArguments } from '../../deploy/dev/arguments.ts';
import { systemClock } from '../../shared/process/clock.ts';
import { inDirectory } from '../harness.ts';
import {
  type Backend,
  type BenchVerifier,
  inParallel,
  startBackend,
  startVerifier,
  warm,
} from '../servers.ts';

/** What one of 40 pods gets of 50 million requests a day. */
const PER_SECOND = 14.5;
const PODS = 40;
const SECONDS = 20;
const ROLE = 'plan';
const CUSTOMERS = 50;

/** A load: its keys, and what they are metered by. */
interface Load {
  readonly name: string;
  readonly apiId: string;
  readonly keys: number;
  readonly fields: (i: number) => object;
}

const limit = { name: 'requests', limit: 1_000_000, duration: 60_000, autoApply: true };
const plan = (apiId: string, keys: number): Load => ({
  name: 'a plan',
  apiId,
  keys,
  fields: () => ({ roles: [ROLE] }),
});
const LOADS: readonly Load[] = [
  { name: 'no plan', apiId: 'free', keys: 1000, fields: () => ({}) },
  plan('many', 1000),
  {
    name: 'a plan, and credits of 50 customers',
    apiId: 'customers',
    keys: 1000,
    fields: (i) => ({ roles: [ROLE], externalId: `customer-${i % CUSTOMERS}` }),
  },
  plan('some', 20),
  plan('few', 5),
  plan('one', 1),
];

async function measure(backend: Backend, verifier: BenchVerifier, redis: Redis, load: Load) {
  const keys = await inParallel(load.keys, async (i) => {
    const { key = '' } = await backend.call('keys.createKey', { apiId: load.apiId, ...load.fields(i) });
    return key;
  });
  await warm(verifier, keys);
  await pauseMs(3000); // until slices of the warm-up are back
  const before = await read(verifier, redis);
  const startMs = systemClock.monotonicMs();
  const requests = PER_SECOND * SECONDS;
  const answers: Promise<unknown>[] = [];
  let refused = 0;
  for (let i = 0; i < requests; i++) {
    await pauseMs(Math.max(0, startMs + (i * 1000) / PER_SECOND - systemClock.monotonicMs()));
    // In an order without a pattern that a key would see.
    const key = keys[(i * 7919) % keys.length] ?? '';
    answers.push(verifier.verify(key).then(({ code }) => void (code === 'VALID' || refused++)));
  }
  await Promise.all(answers);
  const after = await read(verifier, redis);
  if (refused > 0) throw new Error(`${refused} requests were refused`);
  return {
    exchanges: (after.exchanges - before.exchanges) / requests,
    share: ((after.cpuSeconds - before.cpuSeconds) / SECONDS) * PODS,
  };
}

/** Reads the exchanges of the verifier, and the CPU time of the main thread of Redis. */
async function read(verifier: BenchVerifier, redis: Redis) {
  const text = await (await fetch(`${verifier.adminAddress}/metrics`)).text();
  const cpu = [...(await redis.info('cpu')).matchAll(/^used_cpu_(?:user|sys)_main_thread:(\S+)/gm)];
  return {
    exchanges: Number(/^keyfence_credit_exchanges_total (\S+)/m.exec(text)?.[1]),
    cpuSeconds: cpu.reduce((sum, [, seconds]) => sum + Number(seconds), 0),
  };
}

const pauseMs = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

scriptArguments('npm run metering: counts what metered requests ask of Redis; takes 3 minutes', {});
await inDirectory(async (directory) => {
  const backend = await startBackend(directory, 0);
  const redis = new Redis({ path: backend.redisPath });
  await backend.call('permissions.createRole', { name: ROLE, ratelimits: [limit] });
  await inParallel(CUSTOMERS, (i) =>
    backend.call('identities.createIdentity', {
      externalId: `customer-${i}`,
      credits: { remaining: 1_000_000 },
    }),
  );
  console.log(`${PER_SECOND} requests/s at one of ${PODS} verifiers, for ${SECONDS} s\n`);
  console.log(`| keys | metered by | exchanges a request | Redis busy, for ${PODS} verifiers |`);
  console.log('|---|---|---|---|');
  try {
    for (const load of LOADS) {
      const verifier = await startVerifier({ env: { ...backend.env, API_IDS: load.apiId } });
      try {
        const { exchanges, share } = await measure(backend, verifier, redis, load);
        const row = [load.keys, load.name, exchanges.toFixed(2), `${Math.round(100 * share)} %`];
        console.log(`| ${row.join(' | ')} |`);
      } finally {
        await verifier.stop();
      }
    }
  } finally {
    redis.disconnect();
    await backend.stop();
  }
});
