// `npm start`: runs everything on this machine, for a first look. Not for production: see deploy/README.md.
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { integer, loadConfigOrExit } from '../../shared/process/load-config.ts';
import { scriptArguments } from './arguments.ts';
import { takeFolder, tell, untilFree } from './folder.ts';
import { ensureRedis } from './install-redis.ts';
import { createCalls, enableCall, verifyCall } from './printed-calls.ts';
import { Processes } from './processes.ts';
import { type RedisServer, startRedis } from './redis-server.ts';

const ROOT = join(import.meta.dirname, '..', '..');
/** Folder of the keys; tests use another. */
const DATA = process.env['KEYFENCE_DATA'] || join(ROOT, '.keyfence');
const PARENT_POLL_MS = 500;

scriptArguments(
  `npm start: a private Redis, a control plane and a verifier on this machine, until Ctrl-C.
It takes no options. Settings are environment variables, as deploy/README.md lists them for both processes;
CONTROL_PLANE_PORT, VERIFIER_PORT and their like are for one of them, REDIS_URL leads to a Redis of yours.`,
  {},
);
const { env } = process;
/** Port 0 is refused, because the printed walk names the ports. */
const port = (byDefault: number) => integer(1, 65_535, '', byDefault);
const { readSecretsAgain: _, ...ports } = loadConfigOrExit(
  {
    CONTROL_PLANE_PORT: port(3000).help('Port of the control plane'),
    CONTROL_PLANE_ADMIN_PORT: port(9300).help('Port of its admin listener'),
    VERIFIER_PORT: port(3001).help('Port of the verifier'),
    VERIFIER_ADMIN_PORT: port(9301).help('Port of its admin listener'),
  },
  (chosen) => {
    const entries = Object.entries(chosen);
    return entries.flatMap(([name, number], i) => {
      const [first] = entries.slice(0, i).find(([, other]) => other === number) ?? [];
      return first === undefined ? [] : [`${name}: ${number} is the port of ${first} too`];
    });
  },
);
/** Variables of a single process, each with what to set instead. */
const UNUSED: Readonly<Record<string, string>> = {
  PORT: 'set CONTROL_PLANE_PORT and VERIFIER_PORT',
  ADMIN_PORT: 'set CONTROL_PLANE_ADMIN_PORT and VERIFIER_ADMIN_PORT',
  HOST: 'both listen on 127.0.0.1',
  ADMIN_HOST: 'both listen on 127.0.0.1',
};
for (const [name, instead] of Object.entries(UNUSED).filter(([name]) => env[name]))
  console.error(`keyfence: ${name} is not used by npm start, which starts two processes: ${instead}`);
const processes = new Processes((message) => void fail(message));
let redis: RedisServer | undefined;
let stopping: Promise<void> | undefined;
let isReported = false;

process.on('SIGINT', () => void stop(0));
process.on('SIGTERM', () => void stop(0));
process.on('SIGHUP', () => void stop(0));
const parent = process.ppid;
// Nobody notifies this process when npm or the terminal is killed.
setInterval(() => process.ppid !== parent && void stop(0), PARENT_POLL_MS).unref();

try {
  await start();
} catch (error) {
  await fail((error as Error).message);
}

async function start(): Promise<void> {
  mkdirSync(DATA, { recursive: true, mode: 0o700 });
  const leftover = takeFolder(DATA);
  const addresses = {
    CONTROL_PLANE: addressOf(ports.CONTROL_PLANE_PORT, ports.CONTROL_PLANE_ADMIN_PORT),
    VERIFIER: addressOf(ports.VERIFIER_PORT, ports.VERIFIER_ADMIN_PORT),
  };
  await untilFree(ports, leftover);
  const bases = {
    pid: process.pid,
    controlPlane: baseOf(addresses.CONTROL_PLANE),
    verifier: baseOf(addresses.VERIFIER),
  };
  tell(DATA, bases);
  isReported = true;
  if (!env['REDIS_URL']) {
    ensureRedis();
    redis = await startRedis(join(DATA, 'redis'));
    tell(DATA, { ...bases, redisUrl: redis.url });
    redis.process.once('exit', () => !stopping && void fail('Redis ended'));
  }
  const rootKeyFile = env['ROOT_KEY'] ? '' : env['ROOT_KEY_FILE'] || ownRootKeyFile();
  const common: NodeJS.ProcessEnv = {
    DRAIN_MS: '0', // there is no load balancer to wait for
    STOP_WAIT_MS: '2000',
    FOREIGN_KEYS: 'true', // `keyfence keys import` is tried out here
    ...env,
    ...(redis ? { REDIS_URL: redis.url } : {}),
    LOG_LEVEL: env['LOG_LEVEL'] || 'warn',
  };
  processes.run('control plane', 'control-plane/main.ts', {
    ...common,
    ...addresses.CONTROL_PLANE,
    ...(rootKeyFile ? { ROOT_KEY_FILE: rootKeyFile } : {}),
  });
  const { ROOT_KEY: _key, ROOT_KEY_FILE: _file, ...withoutRootKey } = common;
  processes.run('verifier', 'verifier/main.ts', {
    ...withoutRootKey,
    ...addresses.VERIFIER,
  });
  await processes.untilReady();
  if (stopping === undefined) console.log(walk(bases.controlPlane, bases.verifier, rootKeyFile));
}

function addressOf(port: number, adminPort: number) {
  return { HOST: '127.0.0.1', PORT: String(port), ADMIN_HOST: '127.0.0.1', ADMIN_PORT: String(adminPort) };
}

function baseOf({ PORT }: { PORT: string }): string {
  return `http://127.0.0.1:${PORT}`;
}

/** Returns a file with a root key that is made once and kept beside the data, readable only by this user. */
function ownRootKeyFile(): string {
  const file = join(DATA, 'root-key');
  if (!existsSync(file)) writeFileSync(file, `${randomBytes(32).toString('base64url')}\n`, { mode: 0o600 });
  return file;
}

function walk(controlPlane: string, verifier: string, rootKeyFile: string): string {
  const rootKey = rootKeyFile ? readFileSync(rootKeyFile, 'utf8').trim().split('\n')[0] : env['ROOT_KEY'];
  return `
Keyfence is ready.
  control plane  ${controlPlane}   (admins)
  dashboard      ${controlPlane}/dashboard
  verifier       ${verifier}   (gateways)
  root key       ${rootKey}
${redis ? `  Redis          ${redis.url}   (REDIS_URL, for the library)\n` : ''}
Try it: copy this into another terminal.

  ROOT_KEY='${rootKey}'
  ${createCalls(controlPlane, { apiId: 'demo', name: 'first' })}
  ${verifyCall(verifier)}   # valid
  ${enableCall(controlPlane, false)}
  ${verifyCall(verifier)}   # refused
  ${enableCall(controlPlane, true)}
  ${verifyCall(verifier)}   # valid again

Ctrl-C stops everything. Keys are kept in ${DATA}.
`;
}

async function fail(message: string): Promise<void> {
  console.error(`keyfence: ${message}`);
  await stop(1);
}

/** The verifier and the control plane stop first, so that they can still deregister in Redis. */
function stop(status: number): Promise<void> {
  stopping ??= (async () => {
    await processes.stop();
    await redis?.stop();
    if (isReported) tell(DATA, undefined);
    process.exit(status);
  })();
  return stopping;
}
