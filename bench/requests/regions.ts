import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { FaultProxy } from '../../deploy/dev/fault-proxy.ts';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { type Benchmark, inDirectory, percentile } from '../harness.ts';
import { freePort } from '../load/load.ts';
import { complete, startControlPlane, startVerifier } from '../servers.ts';

/** Time of a packet from one region to the other, in milliseconds. */
const WAY_MS = 40;
const API = 'bench';
/** Time after which a verifier has seen the creation of a key. */
const SEEN_MS = 3000;

/** Measures a verifier that is 80 ms away from Redis, with a replica beside it and without. */
const regions: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const count = quick ? 200 : 1000;
    const stop: (() => Promise<unknown> | void)[] = [];
    const proxy = async (port: number) => {
      const way = new FaultProxy(() => port, undefined, WAY_MS);
      stop.push(() => way.close());
      return way.listen();
    };
    try {
      const port = await freePort();
      const tcp = ['--port', String(port), '--bind', '127.0.0.1', '--appendonly', 'no'];
      const redis = await startRedis(join(directory, 'home'), [...tcp, '--repl-diskless-sync-delay', '0']);
      stop.push(() => redis.stop());
      const link = ['--replicaof', '127.0.0.1', String(await proxy(port)), '--appendonly', 'no'];
      const replica = await startRedis(join(directory, 'far'), link);
      stop.push(() => replica.stop());
      const common = { PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'info', LEASE_MS: '60000', API_IDS: API };
      const control = await startControlPlane({ ...common, REDIS_URL: redis.url });
      stop.push(() => control.stop());
      const far = { ...common, REDIS_URL: `redis://127.0.0.1:${await proxy(port)}`, LOOKUP_WAIT_MS: '5000' };
      const near = { ...far, REDIS_READ_URL: replica.url };
      const made = await imported(control.call, count);
      const file = join(directory, 'keys.txt');
      writeFileSync(file, made.map(({ key }) => key).join('\n'));
      await new Promise((resolve) => setTimeout(resolve, SEEN_MS));
      const [withReplica, without] = [await lookUps(near, file), await lookUps(far, file)];

      const verifiers = [await startVerifier({ env: near }), await startVerifier({ env: far })] as const;
      for (const verifier of verifiers) stop.push(() => verifier.stop());
      const hits = { near: [] as number[], far: [] as number[] };
      const [first] = made as [{ key: string; keyId: string }];
      for (let i = 0; i < count; i++) {
        for (const [at, name] of [
          [0, 'near'],
          [1, 'far'],
        ] as const) {
          const startedAt = performance.now();
          const { code } = await verifiers[at].verify(first.key);
          hits[name].push(performance.now() - startedAt);
          if (code !== 'VALID') throw new Error(`${code}`);
        }
      }
      const disables: number[] = [];
      for (const { keyId } of made.slice(0, quick ? 20 : 100)) {
        const startedAt = performance.now();
        complete(await control.call('keys.updateKey', { keyId, enabled: false }), verifiers.length);
        disables.push(performance.now() - startedAt);
      }
      const exchanges: number[] = [];
      for (let i = 0; i < (quick ? 10 : 50); i++) {
        const { key = '' } = await control.call('keys.createKey', { apiId: API, remaining: 1000 });
        const startedAt = performance.now();
        await verifiers[0].verify(key);
        exchanges.push(performance.now() - startedAt);
      }
      const half = (all: readonly number[]) => percentile(all, 0.5);
      const [disable, get] = [half(disables), withReplica.get];
      return {
        title: 'Two regions',
        about: `Redis and the control plane run in one region, a verifier in another, ${2 * WAY_MS} ms away (a proxy delays each packet). A replica of Redis runs beside the verifier. Each of ${count.toLocaleString('en')} keys of an API that the verifier follows is looked up once, in process. Medians.`,
        rows: [
          { name: 'a bare ioredis GET at the replica', value: `${get.toFixed(3)} ms` },
          {
            name: 'a look-up, with REDIS_READ_URL',
            value: `${withReplica.lookUp.toFixed(3)} ms (${(withReplica.lookUp / get).toFixed(2)} ×); the replica answered ${withReplica.nearby} of ${count}`,
            target: '≤ 2 ×',
            met: withReplica.lookUp <= 2 * get,
          },
          { name: 'a look-up, without', value: `${without.lookUp.toFixed(1)} ms` },
          {
            name: 'verifyKey from memory over HTTP, with REDIS_READ_URL',
            value: `${half(hits.near).toFixed(3)} ms`,
          },
          { name: 'verifyKey from memory over HTTP, without', value: `${half(hits.far).toFixed(3)} ms` },
          {
            name: 'a disable that is complete at both verifiers',
            value: `${disable.toFixed(0)} ms`,
            target: '≤ 2 round trips + 20 ms',
            met: disable <= 4 * WAY_MS + 20,
          },
          {
            name: 'the first question about a new key with credits',
            value: `${half(exchanges).toFixed(0)} ms`,
          },
        ],
      };
    } finally {
      for (const end of stop.reverse()) await end();
    }
  });

interface Measured {
  readonly get: number;
  readonly lookUp: number;
  /** Look-ups that the replica answered. */
  readonly nearby: number;
}

/** Looks up each key of a file once, in a separate process. */
async function lookUps(env: Readonly<Record<string, string>>, keysFile: string): Promise<Measured> {
  const script = join(import.meta.dirname, 'look-ups.ts');
  const options = { env: { ...process.env, ...env } };
  const { stdout } = await promisify(execFile)(process.execPath, [script, keysFile], options);
  return JSON.parse(stdout) as Measured;
}

async function imported(
  call: Awaited<ReturnType<typeof startControlPlane>>['call'],
  count: number,
): Promise<{ key: string; keyId: string }[]> {
  const all: { key: string; keyId: string }[] = [];
  while (all.length < count) {
    const keys = Array.from({ length: Math.min(200, count - all.length) }, () => generateKey(16));
    const rows = keys.map((key) => ({ sha256: hashSecret(key), foreign: false }));
    const { results = [] } = await call('keys.importKeys', { apiId: API, keys: rows });
    all.push(...keys.map((key, i) => ({ key, keyId: results[i]?.keyId ?? '' })));
  }
  return all;
}

export default regions;
