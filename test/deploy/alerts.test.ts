import type { ChildProcess } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { systemClock } from '../../shared/process/clock.ts';
import { apiKeys, auditStream } from '../../shared/redis/redis-keys.ts';
import { makeCertificate } from '../harness/certificates.ts';
import { Fleet } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';
import { Process } from '../harness/processes.ts';
import { skippedWithout } from '../harness/programs.ts';
import { share, turn } from '../harness/share.ts';

const RULES = join(import.meta.dirname, '../../deploy/monitoring/alerts.yaml');
const why = skippedWithout('prometheus');

/** The rules a hundred times as fast, so that a test can wait for them; alerts.test.yaml has the true times. */
function fastRules(): string {
  const seconds = (text: string) =>
    text.replace(/\b(\d+)(s|m|h)\b/g, (_, count: string, unit: 's' | 'm' | 'h') => {
      const ms = Number(count) * { s: 10, m: 600, h: 36_000 }[unit];
      return `${ms}ms`;
    });
  return readFileSync(RULES, 'utf8')
    .replace(/\[\w+\]|for: \w+|offset \w+/g, seconds)
    .replace('keyfence_fence_oldest_seconds > 60', 'keyfence_fence_oldest_seconds > 1');
}

/**
 * Real processes in real trouble, and one Prometheus that watches all. An alert is expected within the patience of a
 * test, and remembered from then on: Prometheus itself tells which fired.
 */
describe.skipIf(why)(`an alert fires by its cause${why}`, () => {
  let fleet: Fleet;
  let prometheus: ChildProcess;
  let base: string;
  let targets: string;
  const crashing: Process[] = [];
  let isCrashing = true;
  let crashes: Promise<void>;

  const firing = async (): Promise<string[]> => {
    const { body } = await fleet.get(`${base}/api/v1/alerts`);
    return body.data.alerts
      .filter(({ state }: { state: string }) => state === 'firing')
      .map(({ labels }: { labels: { alertname: string } }) => labels.alertname);
  };
  /** Times that Prometheus looked at the rules. */
  const evaluations = async (): Promise<number> => {
    const text = await (await fetch(`${base}/metrics`)).text();
    return Number(/^prometheus_rule_group_iterations_total\{.*\} (\S+)$/m.exec(text)?.[1] ?? 0);
  };
  /** Waits until these fire, doing something again and again meanwhile. */
  const fires = async (names: readonly string[], meanwhile: () => unknown = () => undefined) => {
    const missing = new Set(names.map((name) => `Keyfence${name}`));
    await fleet.until(async () => {
      await meanwhile();
      for (const name of await firing()) missing.delete(name);
      return missing.size === 0;
    }, `did not fire: ${names}`);
  };
  const watch = () => {
    const groups = {
      'keyfence-control-plane': fleet.controlPlanes.map(({ adminAddress }) => adminAddress),
      'keyfence-verifier': [...fleet.verifiers, ...crashing].map(({ adminAddress }) => adminAddress),
    };
    const list = Object.entries(groups).map(([job, urls]) => ({
      targets: urls.filter(Boolean).map((url) => new URL(url).host),
      labels: { job },
    }));
    writeFileSync(targets, JSON.stringify(list));
  };
  const ask = (key: string, at = 0) => fleet.verifyOnce(key, { at });
  const restartForever = async (process: Process) => {
    while (isCrashing) {
      await process.stop('SIGKILL');
      await process.start();
      // Seen alive by Prometheus, and no oftener than it takes: the processors are others' too.
      const last = (await evaluations()) + 10;
      await fleet.until(async () => !isCrashing || (await evaluations()) >= last);
    }
    await process.stop('SIGKILL');
  };

  beforeAll(async () => {
    const env = {
      ...{ API_IDS: 'shop', STATUS_PERIOD_MS: '300', CONNECTIONS_PER_ADDRESS_MAX: '200' },
      ...{ AUDIT_WAITING_MAX: '2', WEBHOOK_NETWORKS: '127.0.0.0/8', FAILURES_PER_MINUTE: '100000' },
    };
    fleet = await Fleet.start({ env });
    await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
    targets = join(fleet.directory, 'targets.json');
    const rules = join(fleet.directory, 'rules.yaml');
    writeFileSync(rules, fastRules());
    const config = join(fleet.directory, 'prometheus.yml');
    writeFileSync(
      config,
      `global: { scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms }
rule_files: ['${rules}']
scrape_configs:
  - job_name: all
    file_sd_configs: [{ files: ['${targets}'], refresh_interval: 1s }]
`,
    );
    watch();
    const address = `127.0.0.1:${await freePort()}`;
    base = `http://${address}`;
    prometheus = spawnBound('prometheus', [
      `--config.file=${config}`,
      `--storage.tsdb.path=${join(fleet.directory, 'tsdb')}`,
      `--web.listen-address=${address}`,
      '--log.level=error',
    ]);
    await fleet.until(async () => {
      const { body } = await fleet.get(`${base}/api/v1/query?query=sum(up)`);
      return body.data.result[0]?.value[1] === '2';
    });
  });
  afterAll(async () => {
    isCrashing = false;
    await crashes;
    const exited = new Promise((resolve) => prometheus.once('exit', resolve));
    prometheus.kill('SIGTERM');
    await exited;
    await fleet.stop();
  });

  test('none in a rolling restart under load', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const env = { API_IDS: 'shop', STATUS_PERIOD_MS: '300' };
    const verdicts: number[] = [];
    const begunMs = systemClock.monotonicMs();
    const last = (await evaluations()) + 40;
    while ((await evaluations()) < last) {
      const next = await fleet.addVerifier(env, false);
      // As soon as it listens, callers come.
      for (let asked = 0; asked < 50; asked++) {
        const { status } = await fleet.post(`${next.address}/v1/keys.verifyKey`, { key });
        verdicts.push(status);
      }
      watch();
      await fleet.verifiers.shift()?.stop();
      watch();
    }
    expect(verdicts.filter((status) => status !== 200)).toEqual([]);
    const sinceMs = Math.round(systemClock.monotonicMs() - begunMs);
    const query = encodeURIComponent(`max_over_time(ALERTS{alertstate="firing"}[${sinceMs}ms])`);
    const { body } = await fleet.get(`${base}/api/v1/query?query=${query}`);
    const names = body.data.result.map(({ metric }: { metric: { alertname: string } }) => metric.alertname);
    expect(names.filter((name: string) => !/ProcessDown/.test(name))).toEqual([]);
  });

  test('what Redis can say of itself', async () => {
    const redis = fleet.client;
    const obstacle = join(fleet.directory, 'redis/appendonlydir/temp-appendonly.aof.manifest');
    mkdirSync(obstacle);
    await redis.bgrewriteaof().catch(() => undefined);
    await redis.config('SET', 'appendfsync', 'everysec', 'maxmemory', '0');
    await fires(['RedisDisk', 'RedisUnlimited', 'NotDurable']);
    rmSync(obstacle, { recursive: true });
    await redis.bgrewriteaof();
    const used = Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
    await redis.config('SET', 'appendfsync', 'always', 'maxmemory', String(Math.round(used * 1.1)));
    await fires(['RedisFull']);
    // Full for good, and it evicts: what ends first, so that the other tests keep what they need.
    await redis.config('SET', 'maxmemory', '2gb');
    await redis.set('kf:{old}:x', 'x'.repeat(2_000_000), 'EX', 5);
    await redis.config('SET', 'maxmemory-policy', 'volatile-ttl', 'maxmemory', String(used + 1_000_000));
    await redis.set('kf:{old}:y', 'x').catch(() => undefined);
    await redis.config('SET', 'maxmemory', '2gb', 'maxmemory-policy', 'noeviction');
    await fires(['KeysEvicted']);
    await redis.config('RESETSTAT');
  });

  // Takes a minute, and so comes at every second commit.
  test.each(share(['clocks, certificates, root keys, restarts'], 2, turn + 1))('%s', async () => {
    const ahead = { ...systemClock, wallMs: () => systemClock.wallMs() + 60_000 };
    const { certFile, keyFile } = makeCertificate(fleet.directory, 'ends-soon');
    const own = { STATUS_PERIOD_MS: '300', API_IDS: 'shop' };
    await fleet.addVerifier({ ...own, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile }, true, ahead);
    await fleet.addControlPlane({ ROOT_KEY: 'another-root-key-0123456789abcdef01234567' });
    const process = new Process('verifier/main.ts', { REDIS_URL: fleet.redisUrl, API_IDS: 'shop' });
    await process.start();
    crashing.push(process);
    watch();
    crashes = restartForever(process);
    await fires(['ClockWrong', 'CertificateEnds', 'BootstrapKeysDiffer', 'Restarting']);
    isCrashing = false;
    await crashes;
    await fires(['ProcessDown']);
    crashing.pop();
    await fleet.verifiers.pop()?.stop();
    await fleet.controlPlanes.pop()?.stop();
    watch();
  });

  test('what clients do', async () => {
    let count = 0;
    await fires(['ManyUnknownKeys', 'RootKeyGuessing'], async () => {
      const asked = Array.from({ length: 30 }, () => ask(`unknown${count++}`));
      await Promise.all([...asked, fleet.admin('apis.listApis', {}, { rootKey: 'wrong' })]);
    });
    const small = await fleet.addVerifier({ API_IDS: 'shop', CACHE_KEYS_MAX: '1' });
    watch();
    const keys = await Promise.all([1, 2].map(() => fleet.ok('keys.createKey', { apiId: 'shop' })));
    await fires(['CacheTooSmall'], async () => {
      for (const { key } of keys) await ask(key, fleet.verifiers.indexOf(small));
    });
    await fleet.verifiers.pop()?.stop();
    watch();
  });

  test('verifiers that answer nobody, and damage', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect(await fleet.verdict(key)).toBe('VALID');
    const { members, log } = apiKeys('shop');
    await fires(['VerifierGivenUp'], () => fleet.client.del(members));
    // Crashed ones, for which each change waits a lease.
    await fires(['ChangesByFence', 'ChangesPending'], async () => {
      await fleet.client.zadd(members, 0, 'crashed');
      await fleet.ok('keys.updateKey', { keyId, name: String(Math.random()) });
    });
    await fleet.client.xadd(log, '*', 'nonsense', '1');
    await fleet.client.rename(log, 'aside');
    await fleet.client.set(log, 'not a stream');
    await fires(['Bug'], () => fleet.admin('keys.updateKey', { keyId, enabled: false }));
    await fleet.client.del(log);
    await fleet.client.rename('aside', log);
  });

  test('events that Redis does not take', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'events' });
    await fleet.client.rename(auditStream('done'), 'aside');
    await fleet.client.set(auditStream('done'), 'not a stream');
    await fires(['AuditEventsWaiting', 'AuditEventsLost'], () =>
      fleet.ok('keys.updateKey', { keyId, name: String(Math.random()) }),
    );
    await fleet.client.rename('aside', auditStream('done'));
  });

  test('replicas that do not confirm', async () => {
    const lonely = await fleet.addControlPlane({ REDIS_REPLICAS: '1' });
    watch();
    const at = fleet.controlPlanes.indexOf(lonely);
    // Each takes seconds, and the alerts must see some of them all the time.
    const calls = new Set<Promise<unknown>>();
    await fires(['ReplicaMissing', 'ControlPlaneFailing'], () => {
      if (calls.size === 10) return;
      const call = fleet.admin('keys.createKey', { apiId: 'shop' }, { at }).finally(() => calls.delete(call));
      calls.add(call);
    });
    await Promise.all(calls);
    await fleet.controlPlanes.pop()?.stop();
    watch();
  });

  test('a Redis that is silent, gone, and older', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect(await fleet.verdict(key)).toBe('VALID');
    fleet.redis.process.kill('SIGSTOP');
    const waits = ['VerifierCannotAnswer', 'FleetCannotAnswer', 'VerificationsUndecided'];
    await fires([...waits, 'RedisUnreachable', 'WebhooksNotSent'], () =>
      Promise.all(Array.from({ length: 20 }, () => ask(key))),
    );
    fleet.redis.process.kill('SIGCONT');
    await fleet.redis.stop();
    rmSync(join(fleet.directory, 'redis'), { recursive: true });
    await fleet.startRedis();
    await fires(['HistoryLost']);
    await fleet.controlPlanes.pop()?.stop();
    watch();
    await fires(['ControlPlaneMissing']);
  });
});
