import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, type Row } from '../harness.ts';
import { freePort } from '../load/load.ts';
import { type History, outcomes, summary } from '../revocation/outcome.ts';
import { readTarget } from '../revocation/target.ts';
import { runTrial } from '../revocation/trial.ts';
import { ROOT_KEY, startControlPlane, startVerifier } from '../servers.ts';
import { installPeers, startConfigured, startPeer } from '../start-peers.ts';
import { isHere } from './gateways.ts';

const TARGETS = join(import.meta.dirname, '../revocation/targets');
/** Of caches that are usual, shorter than their defaults where these are minutes. */
const CACHE_MS = 10_000;

interface Stopped {
  stop(): Promise<void>;
}

/** Measures how long a revoked key is accepted, at Keyfence and at all else that can run here. */
const revocation: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    installPeers();
    const rows: Row[] = [];
    const measure = async (
      file: string,
      name: string,
      revocations: number,
      start: () => Promise<Started>,
    ): Promise<void> => {
      const { variables, servers } = await start();
      try {
        const target = readTarget(readFileSync(join(TARGETS, `${file}.json`), 'utf8'), variables);
        const history: History[number][] = [];
        for (let i = 0; i < revocations; i++) history.push(...(await runTrial(target, i, PACE)));
        const { claimed, window, falseComplete } = summary(outcomes(history));
        rows.push({ name, value: `${claimed}; ${window}; ${falseComplete}` });
      } finally {
        for (const { stop } of servers.reverse()) await stop();
      }
    };
    const many = quick ? 5 : 20;
    const few = quick ? 1 : 5;
    const sub = (name: string) => join(directory, name);
    await measure('keyfence', 'Keyfence, one verifier', many, () => startKeyfence(sub('one'), 1, 0));
    await measure(
      'keyfence-three',
      'Keyfence, three verifiers, Redis with two replicas that confirm',
      many,
      () => startKeyfence(sub('three'), 3, 2),
    );
    const nginx = isHere('nginx');
    if (nginx)
      await measure('keyfence-nginx', 'Keyfence behind nginx (`auth_request`)', many, () =>
        startKeyfence(sub('nginx'), 1, 0, true),
      );
    await measure('fastify-cached', 'Fastify, a Redis GET per question, two instances', many, () =>
      startChecks(sub('plain'), 0),
    );
    await measure(
      'fastify-cached',
      'Fastify, verdicts in memory for 10 s before Redis, two instances',
      few,
      () => startChecks(sub('cached'), CACHE_MS),
    );
    if (nginx)
      await measure('nginx-cached', 'nginx, `auth_request` cached for 10 s', few, () =>
        startCachedNginx(sub('cache')),
      );
    await measure(
      'better-auth',
      'better-auth, sessions with a cookie cache of 10 s (300 s by default)',
      few,
      () => startSessions(),
    );
    await measure('express-gateway', 'express-gateway, credentials in Redis', many, () =>
      startGateway(sub('gateway')),
    );
    if (isHere('haproxy'))
      await measure('haproxy-map', 'HAProxy, keys in a map, one instance', many, () => startMap(directory));
    return {
      title: 'How long a revoked key is accepted',
      about: `Measured from outside by \`npm run revocation\`'s code: 4 clients of each instance ask 200 times a second in all, around ${many} revocations (${few} where a cache holds keys for seconds). For each: when the call claims that the key is refused; how long it was accepted after the call began, both p50 / p99; and revocations after which it was accepted although the call had claimed. All on one machine.`,
      rows,
    };
  });

const PACE = { clients: 4, perSecond: 200, beforeMs: 300, quietMs: 1500, longestMs: 30_000 };

interface Started {
  readonly variables: Readonly<Record<string, string>>;
  readonly servers: Stopped[];
}

async function startKeyfence(
  directory: string,
  verifiers: number,
  replicas: number,
  isBehindNginx = false,
): Promise<Started> {
  const servers: Stopped[] = [];
  const port = String(freePort());
  const redis = await startRedis(directory, ['--port', port]);
  servers.push(redis);
  for (let i = 0; i < replicas; i++)
    servers.push(await startRedis(`${directory}-${i}`, ['--replicaof', '127.0.0.1', port]));
  const env = {
    ...{ REDIS_URL: redis.url, REDIS_REPLICAS: String(replicas), PORT: '0', ADMIN_PORT: '0' },
    ...{ LOG_LEVEL: 'info', API_IDS: 'my-api' },
  };
  const controlPlane = await startControlPlane(env);
  servers.push(controlPlane);
  await controlPlane.call('apis.createApi', { apiId: 'my-api', name: 'my-api' });
  const variables: Record<string, string> = { ROOT_KEY, CONTROL_PLANE: controlPlane.address };
  for (let i = 1; i <= verifiers; i++) {
    const verifier = await startVerifier({ env }, undefined, false);
    servers.push(verifier);
    variables[i === 1 ? 'VERIFIER' : `VERIFIER_${i}`] = `http://127.0.0.1:${verifier.port}`;
    if (!isBehindNginx) continue;
    const gateway = await startConfigured('nginx-keyfence.conf', directory, ['nginx', '-c', '$FILE'], {
      CHECK: String(verifier.port),
    });
    servers.push(gateway);
    variables['GATEWAY'] = `http://127.0.0.1:${gateway.port}`;
  }
  return { variables, servers };
}

async function startChecks(directory: string, cacheMs: number): Promise<Started> {
  const redis = await startRedis(directory, ['--appendonly', 'no']);
  const path = redis.url.replace('unix://', '');
  const one = await startPeer('one', 'revocable.ts', path, String(cacheMs));
  const two = await startPeer('two', 'revocable.ts', path, String(cacheMs));
  const variables = { SERVICE: `http://127.0.0.1:${one.port}`, SERVICE_2: `http://127.0.0.1:${two.port}` };
  return { variables, servers: [redis, one, two] };
}

async function startCachedNginx(directory: string): Promise<Started> {
  const { variables, servers } = await startChecks(directory, 0);
  const CHECK = new URL(variables['SERVICE'] ?? '').port;
  const nginx = await startConfigured('nginx-cached-check.conf', directory, ['nginx', '-c', '$FILE'], {
    CHECK,
  });
  return { variables: { ...variables, ASK: `http://127.0.0.1:${nginx.port}` }, servers: [...servers, nginx] };
}

async function startSessions(): Promise<Started> {
  const server = await startPeer('sessions', 'better-auth-sessions.mjs', String(CACHE_MS / 1000));
  return { variables: { SERVICE: `http://127.0.0.1:${server.port}` }, servers: [server] };
}

async function startGateway(directory: string): Promise<Started> {
  const port = String(freePort());
  const redis = await startRedis(directory, ['--port', port, '--appendonly', 'no']);
  const gateway = await startPeer('gateway', 'express-gateway.mjs', port, '1');
  const [SERVICE, ADMIN] = [gateway.port, gateway.port + 1].map((at) => `http://127.0.0.1:${at}`);
  return { variables: { SERVICE: SERVICE ?? '', ADMIN: ADMIN ?? '' }, servers: [redis, gateway] };
}

async function startMap(directory: string): Promise<Started> {
  const MAP = join(directory, 'changing.map');
  writeFileSync(MAP, '');
  const server = await startConfigured(
    'haproxy-changing-map.cfg',
    directory,
    ['haproxy', '-db', '-f', '$FILE'],
    { MAP },
  );
  return { variables: { SERVICE: `http://127.0.0.1:${server.port}` }, servers: [server] };
}

export default revocation;
