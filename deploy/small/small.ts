/**
 * All of Keyfence in one container: a Redis of its own, a control plane and a verifier. It runs in the image, so it imports
 * nothing. When one of the three ends, it stops the others and fails, so that the container is started again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';

const STOP_MS_MAX = 8000;
const { DATA = '', SECRETS = '', BACKUP = '', REDIS_PORT = '6379', ...env } = process.env;
const unused = ['REDIS_URL', 'PORT', 'ADMIN_PORT'].filter((name) => env[name]);
if (unused.length > 0) {
  const instead = 'this image has its own Redis and ports; with a Redis of yours, run the image keyfence';
  console.error(`${unused.join(', ')}: ${instead}`);
  process.exit(1);
}

for (const folder of [DATA, SECRETS, BACKUP]) mkdirSync(folder, { recursive: true, mode: 0o700 });
const passwordOf = (user: string) => secretFile(`${user}-password`);
passwordOf('operator');
const common: NodeJS.ProcessEnv = {
  // Nobody else sends requests here that would have to notice.
  DRAIN_MS: '0',
  ...env,
  REDIS_URL: `redis://127.0.0.1:${REDIS_PORT}`,
};
const { ROOT_KEY: _key, ROOT_KEY_FILE: _file, ...withoutRootKey } = common;
const memory = Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem());

let isStopping = false;
// The others still tell Redis that they leave. It has written all that it acknowledged.
const redis = run('sh', ['redis/start.sh'], {
  ...{ DATA, SECRETS, REDIS_PORT, PATH: env['PATH'] },
  MEMORY_LIMIT_BYTES: `${Math.floor(memory / 2)}`,
});
const services = [
  run(process.execPath, ['control-plane/main.js'], {
    ...common,
    ...(env['ROOT_KEY'] || env['ROOT_KEY_FILE'] ? {} : { ROOT_KEY_FILE: secretFile('root-key') }),
    ...{ REDIS_USERNAME: 'control-plane', REDIS_PASSWORD_FILE: passwordOf('control-plane') },
    ...{ PORT: env['CONTROL_PLANE_PORT'] || '3000', ADMIN_PORT: env['CONTROL_PLANE_ADMIN_PORT'] || '9300' },
  }),
  run(process.execPath, ['verifier/main.js'], {
    ...withoutRootKey,
    ...{ REDIS_USERNAME: 'verifier', REDIS_PASSWORD_FILE: passwordOf('verifier') },
    // It has STOP_MS_MAX in all.
    STOP_WAIT_MS: '2000',
    ...{ PORT: env['VERIFIER_PORT'] || '3001', ADMIN_PORT: env['VERIFIER_ADMIN_PORT'] || '9301' },
  }),
];
process.on('SIGTERM', () => void stop(0));
process.on('SIGINT', () => void stop(0));

function run(command: string, args: readonly string[], settings: NodeJS.ProcessEnv): ChildProcess {
  const child = spawn(command, args, { env: settings, stdio: ['ignore', 'inherit', 'inherit'] });
  child.once('exit', (code, signal) => {
    if (isStopping) return;
    console.error(`${args[0]} ended with ${signal ?? `status ${code}`}`);
    void stop(1);
  });
  return child;
}

async function stop(status: number): Promise<void> {
  if (isStopping) return;
  isStopping = true;
  await Promise.all(services.map(end));
  await end(redis);
  process.exit(status);
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
  await exited;
  clearTimeout(timer);
}

/** Returns a file with a secret that is made once, whole or not at all. */
function secretFile(name: string): string {
  const file = join(SECRETS, name);
  if (!existsSync(file)) {
    writeFileSync(`${file}.new`, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
    renameSync(`${file}.new`, file);
  }
  return file;
}
