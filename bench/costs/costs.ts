// Measures what each part costs Redis. `npm run costs` updates costs.json, from which deploy/scaling.md is
// calculated; `npm run costs -- simulate` updates only the simulation.
import { writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { scriptArguments } from '../../deploy/dev/arguments.ts';
import { systemClock } from '../../shared/process/clock.ts';
import { loadConfig } from '../../shared/process/load-config.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisDirectory } from '../../shared/protocol/follower/session.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { apiKeys } from '../../shared/redis/redis-keys.ts';
import { redisLimits, redisSettings } from '../../shared/redis/redis-settings.ts';
import { questionAbout } from '../../verifier/core/question.ts';
import { Verifier } from '../../verifier/core/verifier.ts';
import { type Benchmark, inDirectory, machine, startProcess } from '../harness.ts';
import { fullLoad, verifyRequest } from '../load/load.ts';
import { type Backend, inParallel, startBackend, startVerifier, warm } from '../servers.ts';
import { meteredAt, silent, verifierLimits } from '../verifier-options.ts';
import { FILE, lastCosts } from './measured-costs.ts';
import { type Costs, simulate } from './simulated-redis.ts';

function measure(quick: boolean): Promise<Costs> {
  return inDirectory(async (directory) => {
    const backend = await startBackend(directory, 1, []);
    const redis = new Redis({ path: backend.redisPath });
    const meter = new Meter(redis);
    try {
      const { keys, ...costs } = await costsOfKeys(backend, meter, quick ? 2000 : 10_000);
      const change = () => changeKey(backend, keys[0]?.keyId ?? '', quick ? 100 : 500);
      const others = await costsOfFollowers(backend, meter, change, quick);
      return { ...costs, ...others, verifyUs: await verifications(backend, quick ? 2 : 5) };
    } finally {
      redis.disconnect();
      await backend.stop();
    }
  });
}

/** Measures what it takes to create a key, to store it, and to look it up. */
async function costsOfKeys(backend: Backend, meter: Meter, count: number) {
  const before = await meter.memoryBytes();
  const created = await inParallel(count, () => backend.call('keys.createKey', { apiId: 'bench' }));
  const keys = created.map(({ key = '', keyId = '' }) => ({ key, keyId }));
  const bytesPerKey = ((await meter.memoryBytes()) - before) / count;
  const createUs = await meter.perItem(count / 4, () =>
    inParallel(count / 4, () => backend.call('keys.createKey', { apiId: 'other' })),
  );
  const lookupUs = await lookups(backend, meter, keys.map(({ key }) => key).slice(0, 5000));
  return { keys, bytesPerKey, createUs, lookupUs };
}

/** Changes a key `times` times, one change after the other; returns `times`. */
async function changeKey(backend: Backend, keyId: string, times: number): Promise<number> {
  for (let i = 0; i < times; i++) {
    const { propagation } = await backend.call('keys.updateKey', { keyId, enabled: i % 2 === 0 });
    if (propagation?.by !== 'acks') throw new Error('not complete by acks');
  }
  return times;
}

/** Measures the cost of a change, and what verifiers that follow the API add to it and cost when idle. */
async function costsOfFollowers(
  backend: Backend,
  meter: Meter,
  change: () => Promise<number>,
  quick: boolean,
) {
  const changes = await change();
  const updateUs = await meter.perItem(changes, change);
  const idleMs = quick ? 3000 : 10_000;
  const idle = () => meter.perItem(1, () => new Promise((resolve) => setTimeout(resolve, idleMs)));
  const [aloneUs, empty] = [await idle(), await meter.memoryBytes()];
  const count = 200;
  const subscribers = Array.from({ length: count }, () => new Redis({ path: backend.redisPath }));
  await Promise.all(subscribers.map((each) => each.subscribe(apiKeys('bench').channel)));
  const publishUs = ((await meter.perItem(changes, change)) - updateUs) / count;
  for (const each of subscribers) each.disconnect();

  const few = await startFollowers(backend, count);
  const ackUs = ((await meter.perItem(changes, change)) - updateUs) / count - publishUs;
  await few.stop();
  const crowd = quick ? count : 1000;
  const many = await startFollowers(backend, crowd, 'other');
  const idleSyncUs = ((await idle()) - aloneUs) / crowd / (idleMs / verifierLimits.syncPeriodMs);
  const bytesPerVerifier = ((await meter.memoryBytes()) - empty) / crowd;
  await many.stop();
  return { updateUs, publishUs, ackUs, idleSyncUs, bytesPerVerifier };
}

function startFollowers(backend: Backend, count: number, apiId = 'bench') {
  return startProcess(
    [process.execPath, join(import.meta.dirname, '../changes/followers.ts'), String(count), apiId],
    { REDIS_URL: `unix://${backend.redisPath}` },
    'live',
  );
}

/** Reads the counters that Redis keeps about itself. */
class Meter {
  readonly #redis: Redis;

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  /** CPU time of the main thread per item, over `count` items of `work`, microseconds. */
  async perItem(count: number, work: () => Promise<unknown>): Promise<number> {
    const before = await this.#cpuUs();
    await work();
    return ((await this.#cpuUs()) - before) / count;
  }

  memoryBytes(): Promise<number> {
    return this.#info('memory', 'used_memory');
  }

  async #cpuUs(): Promise<number> {
    const user = await this.#info('cpu', 'used_cpu_user_main_thread');
    return (user + (await this.#info('cpu', 'used_cpu_sys_main_thread'))) * 1e6;
  }

  async #info(section: string, field: string): Promise<number> {
    return Number(new RegExp(`^${field}:(\\S+)`, 'm').exec(await this.#redis.info(section))?.[1]);
  }
}

async function lookups(backend: Backend, meter: Meter, keys: readonly string[]): Promise<number> {
  const log = createLogger('verifier', 'silent');
  const nodes = new RedisNodes(
    { ...redisLimits, ...loadConfig(redisSettings, backend.env) },
    systemClock,
    log,
  );
  const verifier = new Verifier({
    ...meteredAt(nodes),
    directory: new RedisDirectory(nodes, 0, systemClock),
    clock: systemClock,
    newNonce: () => Math.random().toString(36),
    limits: verifierLimits,
    apiIds: ['bench'],
    foreignKeys: false,
    events: silent,
  });
  verifier.start();
  await verifier.followers[0]?.whenLive();
  const cost = await meter.perItem(keys.length, () =>
    inParallel(keys.length, (i) => verifier.lookUp(questionAbout(keys[i] ?? ''))),
  );
  await verifier.stop();
  await nodes.close();
  return cost;
}

async function verifications(backend: Backend, seconds: number): Promise<number> {
  const keys = backend.keys;
  const requests = keys.map(verifyRequest);
  const verifier = await startVerifier(backend);
  try {
    await warm(verifier, keys);
    const read = async () => {
      const text = await (await fetch(`${verifier.adminAddress}/metrics`)).text();
      const of = (name: string) => Number(new RegExp(`^${name} (\\S+)`, 'm').exec(text)?.[1]);
      return {
        cpuUs: of('process_cpu_seconds_total') * 1e6,
        answers: of('keyfence_verdicts_total{code="VALID",source="memory"}'),
      };
    };
    await fullLoad(verifier.port, requests, 2);
    const before = await read();
    await fullLoad(verifier.port, requests, seconds);
    const after = await read();
    return (after.cpuUs - before.cpuUs) / (after.answers - before.answers);
  } finally {
    await verifier.stop();
  }
}

const benchmark: Benchmark = async ({ quick }) => {
  const costs = await measure(quick);
  const us = (name: string, value: number) => ({ name, value: `${value.toFixed(1)} µs` });
  return {
    title: 'What each operation costs Redis',
    about:
      'CPU time of the main thread of one Redis (INFO cpu), with AOF and fsync always. 200 verifiers follow the changes, and 1,000 are idle. No process is pinned to a core.',
    rows: [
      us('createKey', costs.createUs),
      us('a change, without verifiers', costs.updateUs),
      us('the message about a change, for each verifier', costs.publishUs),
      us('the acknowledgement of a change, for each verifier', costs.ackUs),
      us('a SYNC with nothing new', costs.idleSyncUs),
      us('a look-up', costs.lookupUs),
      { name: 'a key', value: `${Math.round(costs.bytesPerKey)} bytes` },
      { name: 'a verifier', value: `${Math.round(costs.bytesPerVerifier)} bytes` },
      us('verifyKey from memory over HTTP (CPU of the verifier)', costs.verifyUs),
    ],
  };
};

export default benchmark;

const USAGE = `npm run costs -- [simulate]

Measures what things cost, calculates the fleets of the scaling page from that, and writes bench/costs/costs.json.

  simulate  calculates again from what was measured last`;

if (import.meta.main) {
  const { positionals } = scriptArguments(USAGE, { allowPositionals: true });
  const { machine: on, costs } = positionals.includes('simulate') ? lastCosts() : await measured();
  const simulated = [1, 100, 1000, 5000, 10_000].flatMap((verifiers) =>
    [1, 10].map((changesPerSecond) => simulate(costs, verifiers, changesPerSecond)),
  );
  writeFileSync(FILE, `${JSON.stringify({ machine: on, costs, simulated }, undefined, 2)}\n`);
}

async function measured() {
  const others = `load average ${(loadavg()[0] ?? 0).toFixed(1)} before`;
  return { machine: [...machine(), others], costs: await measure(false) };
}
