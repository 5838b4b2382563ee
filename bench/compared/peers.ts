import { join } from 'node:path';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory } from '../harness.ts';
import {
  type Contender,
  findNginxLua,
  freePort,
  interleave,
  type LoadRequest,
  loadPanels,
  throughputRows,
  verifyRequest,
} from '../load/load.ts';
import { type Backend, type ServerProcess, startBackend, startVerifier, warm } from '../servers.ts';
import {
  buildGo,
  buildRust,
  installPeers,
  startEnvoy,
  startHaproxy,
  startNginx,
  startPeer,
  startProgram,
} from '../start-peers.ts';
import { isHere } from './gateways.ts';

const KEYS = 10_000;
/** express-gateway makes its credentials itself, with bcrypt, so it gets few. */
const CREDENTIALS = 100;

/** Measures other projects with the question "is this key good?", each doing work as similar as possible. */
const peers: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    installPeers();
    const rounds = quick ? 1 : 5;
    const backend = await startBackend(directory, KEYS);
    const { keys } = backend;
    const redisPort = String(freePort());
    const redis = await startRedis(join(directory, 'peers'), ['--port', redisPort, '--appendonly', 'no']);
    const servers: ServerProcess[] = [];
    const contenders: Contender[] = [];
    const add: Add = (server, requests = keys.map(verifyRequest)) => {
      servers.push(server);
      contenders.push({ name: server.name, port: server.port, pid: server.pid, requests });
    };
    try {
      await startAll(add, { directory, backend, redisPort, redisUrl: redis.url });
      const loads = await interleave(contenders, rounds, quick ? 2 : 3);
      return {
        title: 'Other projects in comparison',
        about: `32 connections ask for random keys out of ${KEYS.toLocaleString('en')} (express-gateway: ${CREDENTIALS} credentials). Medians of ${rounds} rounds, in turns. express-gateway, HAProxy and Envoy read a header and no body. HAProxy's map and Envoy's filter hold the keys unhashed, and a change to them does not reach other instances.`,
        panels: loadPanels(loads),
        rows: throughputRows(loads, {}),
      };
    } finally {
      for (const { stop } of servers.reverse()) await stop();
      await redis.stop();
      await backend.stop();
    }
  });

type Add = (server: ServerProcess, requests?: readonly LoadRequest[]) => void;

/** Starts all available servers, one after the other. */
async function startAll(
  add: Add,
  parts: { directory: string; backend: Backend; redisPort: string; redisUrl: string },
): Promise<void> {
  const { directory, backend, redisPort, redisUrl } = parts;
  const { keys, keysFile, redisPath } = backend;
  const verifier = await startVerifier(backend);
  add(verifier);
  await warm(verifier, keys);
  const nginx = findNginxLua();
  if (nginx) add(await startNginx(nginx, directory, keysFile));
  const go = buildGo('net-http.go', directory);
  if (go) add(await startProgram("Go's net/http, minimal", go, keysFile));
  const rust = buildRust('hyper');
  if (rust) add(await startProgram("Rust's hyper in one thread, minimal", rust, keysFile));
  add(await startPeer('a socket of Node that answers constant bytes', 'constant-bytes.ts'));
  add(await startPeer('minimal node:http handler', 'minimal-http.ts', keysFile));
  add(await startPeer('Fastify + one Redis GET', 'fastify-redis.ts', keysFile, redisPath));
  add(
    await startPeer(
      'better-auth, API keys in Redis',
      'better-auth.mjs',
      keysFile,
      redisUrl.replace('unix://', ''),
    ),
  );
  const gateway = await startPeer(
    'express-gateway key-auth, credentials in Redis',
    'express-gateway.mjs',
    redisPort,
    String(CREDENTIALS),
  );
  add(
    gateway,
    gateway.headers.map((Authorization) => ({ method: 'GET', path: '/', headers: { Authorization } })),
  );
  const withHeader = keys.map(
    (key): LoadRequest => ({ method: 'GET', path: '/', headers: { 'X-Api-Key': key } }),
  );
  if (isHere('haproxy')) add(await startHaproxy(directory, keys), withHeader);
  if (isHere('envoy')) add(await startEnvoy(directory, keys), withHeader);
}

export default peers;
