import { Redis } from 'ioredis';
import { Agent } from 'undici';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { recordRun } from '../../shared/protocol/log/new-key-record.ts';
import { send } from '../../shared/redis/script.ts';
import { type Benchmark, inDirectory, median, pin, type Row } from '../harness.ts';
import { cpuUs } from '../load/blocks.ts';
import { Callers } from '../load/callers.ts';
import { LOAD_CORE, SERVER_CORE } from '../load/load.ts';
import { redisCpuMs } from '../redis-cpu.ts';
import { type ControlPlane, inParallel, post, startControlPlane } from '../servers.ts';

const CALLERS = 64;
/** Far more than the benchmark makes, so that calls are counted and none is refused. */
const CALLS_MAX = '10000000';
const TARGETS = { 'keys.createKey': 6000, 'keys.updateKey': 5000 } as const;
type Operation = keyof typeof TARGETS;

/** What one block of calls took. */
interface Block {
  readonly perSecond: number;
  readonly cpuUs: number;
  readonly redisUs: number;
}

/** Measures changes per second with every write synced to disk, beside the bare script of a change. */
const writes: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const [warmUp, rounds, count] = quick ? [3, 3, 5000] : [4, 7, 10_000];
    const server = await startRedis(directory, []);
    pin(server.process.pid, LOAD_CORE);
    pin(process.pid, LOAD_CORE);
    const env = { REDIS_URL: server.url, ROOT_KEY_CALLS_PER_MINUTE: CALLS_MAX };
    const controlPlane = await startControlPlane(env);
    pin(controlPlane.pid, SERVER_CORE);
    const redis = new Redis({ path: server.url.replace('unix://', '') });
    const callers = await Callers.open(controlPlane.address, CALLERS, await newRootKey(controlPlane));
    const blocks: Record<Operation, Block[]> = { 'keys.createKey': [], 'keys.updateKey': [] };
    const bare: number[] = [];
    try {
      for (let round = -warmUp; round < rounds; round++) {
        const ids: string[] = [];
        const block = async (operation: Operation, bodyOf: (i: number) => object) => {
          const before = [cpuUs(controlPlane.pid), await redisCpuMs(redis), performance.now()] as const;
          await callers.call(operation, count, bodyOf, (i, { keyId }) => {
            ids[i] ||= keyId ?? '';
          });
          const ms = performance.now() - before[2];
          if (round < 0) return;
          blocks[operation].push({
            perSecond: (count * 1000) / ms,
            redisUs: (((await redisCpuMs(redis)) - before[1]) * 1000) / count,
            cpuUs: (cpuUs(controlPlane.pid) - before[0]) / count,
          });
        };
        await block('keys.createKey', () => ({ apiId: 'bench' }));
        await block('keys.updateKey', (i) => ({ keyId: ids[i], enabled: false }));
        const startedAt = performance.now();
        await inParallel(count, (i) => createWithScript(redis, `key_${round}_${i}`));
        if (round >= 0) bare.push((count * 1000) / (performance.now() - startedAt));
      }
    } finally {
      callers.close();
      redis.disconnect();
      await controlPlane.stop();
      await server.stop();
    }
    return {
      title: 'Changes per second',
      about: `One control plane and one Redis (AOF, fsync always) serve ${CALLERS} callers, who share one root key, which is in Redis and is read and counted for each call. No verifier follows the API. The control plane runs on core ${SERVER_CORE}; Redis and the callers share the other. ${rounds} blocks of ${count.toLocaleString('en')} calls each, after ${warmUp} in which V8 compiles. The bare script is called from the callers' process.`,
      rows: [
        { name: 'the Lua script of createKey, called directly', value: `${perSecond(bare)} per second` },
        ...(['keys.createKey', 'keys.updateKey'] as const).map((name) => row(name, blocks[name])),
      ],
    };
  });

function row(name: Operation, all: readonly Block[]): Row {
  const of = (field: keyof Block) => all.map((block) => block[field]);
  const [cpu, redisCpu] = [median(of('cpuUs')), median(of('redisUs'))];
  return {
    name,
    value: `${perSecond(of('perSecond'))} per second; ${cpu.toFixed(0)} µs of CPU per call, ${redisCpu.toFixed(0)} µs of Redis'`,
    target: `≥ ${TARGETS[name].toLocaleString('en')} per second`,
    met: median(of('perSecond')) >= TARGETS[name],
  };
}

const perSecond = (rates: readonly number[]) => Math.round(median(rates)).toLocaleString('en');

/** Creates a root key, as those who call an API of admins have one; that of the configuration costs less. */
async function newRootKey({ address }: ControlPlane): Promise<string> {
  const agent = new Agent();
  const body = { name: 'bench', permissions: ['api.*.create_key', 'api.*.update_key', 'api.*.create_api'] };
  const { key } = await post(agent, `${address}/v1/rootKeys.createRootKey`, body);
  await post(agent, `${address}/v1/apis.createApi`, { apiId: 'bench' });
  await agent.destroy();
  if (key === undefined) throw new Error('no root key was created');
  return key;
}

function createWithScript(redis: Redis, keyId: string): Promise<unknown> {
  const nowMs = Date.now();
  const key = { apiId: 'bare', keyId, secretHash: 'x'.repeat(43), start: 'kf_1234', meta: {}, enabled: true };
  return send(redis, recordRun({ ...key, createdAt: nowMs, foreign: false }, true, 10_000));
}

export default writes;
