// Ensures that this machine has a redis-server, or explains how to get one.
import { spawnSync } from 'node:child_process';
import { scriptArguments } from './arguments.ts';
import { redisProgram } from './redis-server.ts';

const INSTALLERS = [
  {
    tool: 'apt-get',
    commands: ['apt-get update -q', 'apt-get install -y -q --no-install-recommends redis-server'],
  },
  { tool: 'dnf', commands: ['dnf install -y redis || dnf install -y valkey'] },
  { tool: 'apk', commands: ['apk add redis'] },
  { tool: 'brew', commands: ['brew install redis'] },
] as const;

/**
 * Installs redis-server with the system's package manager, if it is missing and this user may install it.
 * Exits otherwise.
 */
export function ensureRedis(): void {
  if (redisProgram()) return;
  const installer = INSTALLERS.find(({ tool }) => succeeds(`command -v ${tool}`));
  if (!installer) giveUp('Install Redis 7 or newer, or set REDIS_URL.');
  const isRoot = process.getuid?.() === 0 || installer.tool === 'brew';
  const sudo = isRoot ? '' : 'sudo -n ';
  const line = installer.commands.map((command) => sudo + command).join(' && ');
  if (!isRoot && !succeeds('sudo -n true')) giveUp(`Run: ${line.replaceAll('sudo -n', 'sudo')}`);
  console.error(`There is no redis-server on this machine. Installing it: ${line}`);
  // The package must not start its own service: policy-rc.d refuses that in this runlevel.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const result = spawnSync('sh', ['-c', line], { stdio: ['ignore', 2, 2], env });
  if (result.status !== 0 || !redisProgram()) giveUp('That failed. Run it yourself, or set REDIS_URL.');
}

function succeeds(command: string): boolean {
  return spawnSync('sh', ['-c', command], { stdio: 'ignore' }).status === 0;
}

function giveUp(advice: string): never {
  console.error(`Keyfence needs a redis-server. ${advice}`);
  process.exit(1);
}

if (import.meta.main) {
  scriptArguments('node deploy/dev/install-redis.ts: installs Redis where this machine has none', {});
  ensureRedis();
}
