import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { auditStream } from '../../shared/redis/redis-keys.ts';
import { type Benchmark, inDirectory, median, percentile, pin, type Row, startProcess } from '../harness.ts';
import { LOAD_CORE, SERVER_CORE } from '../load/load.ts';
import { type ControlPlane, startControlPlane } from '../servers.ts';

const ENDPOINTS = 10;
const EVENTS_PER_SECOND = 1000;
const TICK_MS = 10;
/** Few enough for a machine of two cores, on which everything runs. */
const CALLS_PER_SECOND = 300;
/** Hundredths of a second in which Linux counts CPU time. */
const JIFFY_MS = 10;

/** The counts of the receivers since the request before. */
interface Counts {
  readonly count: number;
  /** Ages of some events on arrival, milliseconds. */
  readonly ages: readonly number[];
}

/** The processes of a measurement. */
interface Stage {
  /** The control plane that takes calls, and the one that sends webhooks. */
  readonly called: ControlPlane;
  readonly sender: ControlPlane;
  readonly redis: Redis;
  readonly ports: readonly number[];
}

/** Delivers events to endpoints, and compares changes with and without an endpoint. */
const webhooks: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const server = await startRedis(join(directory, 'redis'));
    const env = { REDIS_URL: server.url, WEBHOOK_NETWORKS: '127.0.0.0/8', REDIS_COMMAND_TIMEOUT_MS: '20000' };
    const sender = await startControlPlane(env);
    const redis = new Redis({ path: server.url.replace('unix://', '') });
    while ((await redis.exists('kf:{!audit}:sender')) === 0) await passed(50);
    const called = await startControlPlane(env);
    const receivers = await startProcess<{ ports: number[] }>(
      [process.execPath, join(import.meta.dirname, '../load/webhook-receivers.ts'), String(ENDPOINTS)],
      {},
      'ports',
    );
    const stage = { called, sender, redis, ports: receivers.ready.ports };
    pin(called.pid, SERVER_CORE);
    for (const pid of [sender.pid, receivers.pid, server.process.pid, process.pid]) pin(pid, LOAD_CORE);
    try {
      const seconds = quick ? 5 : 20;
      const calls = await compareCalls(stage, quick);
      pin(called.pid, LOAD_CORE);
      pin(sender.pid, SERVER_CORE);
      return {
        title: 'Webhooks',
        about: ABOUT,
        rows: [...calls, await deliver(stage, seconds, 'one'), await deliver(stage, seconds, 'all')],
      };
    } finally {
      redis.disconnect();
      await Promise.all([called.stop(), sender.stop(), receivers.stop()]);
      await server.stop();
    }
  });

const ABOUT = `Two control planes and one Redis (AOF, fsync always); one control plane sends webhooks, the other takes calls. ${ENDPOINTS} endpoints are HTTP servers of one process, which answer at once. Calls: ${CALLS_PER_SECOND} a second create and then disable keys, with an endpoint that gets every event and without any, in turns; compared is the CPU time of the called control plane for a call. Deliveries: ${EVENTS_PER_SECOND.toLocaleString('en')} events a second are written to the audit log, as calls write them. The age of an event is from its record to its arrival. The control plane that is measured has a core for itself, and everything else shares another.`;

/** Compares the CPU time of calls with and without an endpoint. */
async function compareCalls(stage: Stage, quick: boolean): Promise<Row[]> {
  const { called, ports } = stage;
  const count = quick ? 600 : 1500;
  const ratios = { create: [] as number[], update: [] as number[] };
  await costOfCalls(called, count);
  for (let round = 0; round < (quick ? 2 : 10); round++) {
    // Either is the first in turn, because a process gets faster or slower with time.
    const before = round % 2 === 0 ? await costOfCalls(called, count) : undefined;
    const endpointId = await newEndpoint(stage, { url: urlOf(ports[0]) });
    const withOne = await costOfCalls(called, count);
    await called.call('webhooks.deleteEndpoint', { endpointId });
    const without = before ?? (await costOfCalls(called, count));
    ratios.create.push(withOne.create / without.create);
    ratios.update.push(withOne.update / without.update);
  }
  return (['create', 'update'] as const).map((name) => ({
    name: `${name}Key with an endpoint ÷ without, CPU time of a call`,
    value: `${median(ratios[name]).toFixed(3)} ×`,
    target: '≤ 1.03 ×',
    met: median(ratios[name]) <= 1.03,
  }));
}

/** Creates and changes keys; returns the CPU time of a call of each, milliseconds. */
async function costOfCalls(controlPlane: ControlPlane, count: number) {
  const ids: string[] = [];
  const cost = async (work: (i: number) => Promise<unknown>) => {
    const before = cpuMs(controlPlane.pid);
    const startedAt = performance.now();
    const calls: Promise<unknown>[] = [];
    while (calls.length < count) {
      const due = ((performance.now() - startedAt) / 1000) * CALLS_PER_SECOND;
      while (calls.length < Math.min(due, count)) calls.push(work(calls.length));
      await passed(TICK_MS);
    }
    await Promise.all(calls);
    return (cpuMs(controlPlane.pid) - before) / count;
  };
  const create = await cost(async (i) => {
    ids[i] = (await controlPlane.call('keys.createKey', { apiId: 'bench' })).keyId ?? '';
  });
  const update = await cost((i) => controlPlane.call('keys.updateKey', { keyId: ids[i], enabled: false }));
  return { create, update };
}

/** Writes events at a constant rate, and waits until all have come. */
async function deliver(stage: Stage, seconds: number, target: 'one' | 'all'): Promise<Row> {
  const { redis, sender, ports } = stage;
  const counts = () =>
    fetch(`http://127.0.0.1:${ports[0]}/counts`).then((answer) => answer.json() as Promise<Counts>);
  const endpointIds: string[] = [];
  for (const [i, port] of ports.entries()) {
    const scope = target === 'one' ? { apiIds: [`bench-${i}`] } : {};
    endpointIds.push(await newEndpoint(stage, { url: urlOf(port), ...scope }));
  }
  await passed(2000);
  await counts();
  const cpuBefore = cpuMs(sender.pid);
  const startedAt = performance.now();
  let written = 0;
  while (performance.now() - startedAt < seconds * 1000) {
    const due = Math.floor(((performance.now() - startedAt) / 1000) * EVENTS_PER_SECOND);
    const events = Array.from({ length: due - written }, (_, i) => eventOf(written + i));
    written = due;
    const pipeline = redis.pipeline();
    for (const event of events) pipeline.xadd(auditStream('done'), '*', 'e', event, 'k', '');
    await pipeline.exec();
    await passed(TICK_MS);
  }
  const expected = target === 'one' ? written : written * ENDPOINTS;
  let arrived = 0;
  const ages: number[] = [];
  while (arrived < expected && performance.now() - startedAt < 20 * seconds * 1000) {
    const { count, ages: more } = await counts();
    arrived += count;
    ages.push(...more);
    await passed(50);
  }
  const elapsedS = (performance.now() - startedAt) / 1000;
  const cpu = cpuMs(sender.pid) - cpuBefore;
  for (const endpointId of endpointIds) await stage.called.call('webhooks.deleteEndpoint', { endpointId });
  const rate = Math.round(arrived / elapsedS);
  return {
    name: `${EVENTS_PER_SECOND.toLocaleString('en')} events a second, each for ${target === 'one' ? 'one' : 'all'} of ${ENDPOINTS} endpoints`,
    value: `${arrived.toLocaleString('en')} of ${expected.toLocaleString('en')} arrived, ${rate.toLocaleString('en')} per second; age p50 / p99 ${median(ages).toFixed(0)} / ${percentile(ages, 0.99).toFixed(0)} ms; ${((cpu / arrived) * 1000).toFixed(0)} µs of the sender's CPU for a delivery`,
    target: target === 'one' ? 'keeps up: age p99 ≤ 1 s' : 'all arrive',
    met: arrived === expected && (target === 'all' || percentile(ages, 0.99) <= 1000),
  };
}

async function newEndpoint({ called }: Stage, input: object): Promise<string> {
  const answer: object = await called.call('webhooks.createEndpoint', input);
  return (answer as { endpointId: string }).endpointId;
}

const urlOf = (port: number | undefined) => `http://127.0.0.1:${port}/hook`;

/** Returns an audit event as a call records it. */
const eventOf = (i: number) =>
  JSON.stringify({
    ...{ time: Date.now(), requestId: `request-${i}`, operation: 'keys.createKey', outcome: 'OK' },
    ...{ by: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d', address: '127.0.0.1' } },
    on: { apiId: `bench-${i % ENDPOINTS}`, keyId: `key_${String(i).padStart(20, '0')}` },
    after: { name: 'Ada', enabled: true, meta: { bytes: 2, sha256: '44136fa355b3678a' } },
  });

/** CPU time of a process so far, milliseconds. */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * JIFFY_MS;
}

const passed = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export default webhooks;
