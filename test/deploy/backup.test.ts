import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bareEnv } from '../harness/bare-machine.ts';
import { Fleet } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(ROOT, 'deploy/operations.md'), 'utf8');
const commandsOf = (heading: string) => {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? '';
  return /```sh\n([\s\S]*?)```/.exec(section)?.[1] ?? '';
};

describe('a backup by deploy/operations.md', () => {
  const files = new OwnFiles();
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-backup-'));
  const BACKUP = join(folder, 'backup');
  let redis: OwnRedis;
  let fleet: Fleet;
  beforeAll(async () => {
    mkdirSync(BACKUP);
    redis = await OwnRedis.start(files);
    const user = { REDIS_USERNAME: 'control-plane', REDIS_PASSWORD: 'control-plane' };
    fleet = await Fleet.start({ redisUrl: `redis://127.0.0.1:${redis.port}`, verifiers: 0, env: user });
    await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
  });
  afterAll(async () => {
    await fleet?.stop();
    await redis?.stop();
    files.remove();
    rmSync(folder, { recursive: true });
  });
  /** Not synchronous: the control plane is in this process. */
  const run = async (commands: string, more: NodeJS.ProcessEnv = {}) =>
    (
      await promisify(execFile)('sh', ['-ec', commands], {
        cwd: ROOT,
        env: bareEnv({ ...redis.env, BACKUP, ...more }),
      })
    ).stdout;
  const copies = () => readdirSync(BACKUP).filter((name) => name !== 'unfinished');

  it('is not kept if Redis cannot read it', async () => {
    const stubs = join(folder, 'stubs');
    mkdirSync(stubs);
    const { stdout: real } = await promisify(execFile)('sh', ['-c', 'command -v redis-cli']);
    const cut = `#!/bin/sh\n${real.trim()} "$@" || exit\nfor word; do case $word in *.rdb) truncate -s -20 "$word" ;; esac; done\n`;
    writeFileSync(join(stubs, 'redis-cli'), cut);
    chmodSync(join(stubs, 'redis-cli'), 0o755);
    const PATH = `${stubs}:${process.env['PATH']}`;
    await expect(run(commandsOf('Backup'), { PATH })).rejects.toThrow(
      /no backup: the copy of .* cannot be read/,
    );
    expect(copies()).toEqual([]);
  });

  it('fails if Redis refuses the password', async () => {
    const SECRETS = join(folder, 'wrong');
    mkdirSync(SECRETS);
    writeFileSync(join(SECRETS, 'operator-password'), 'wrong');
    await expect(run(commandsOf('Backup'), { SECRETS })).rejects.toThrow(/no backup: /);
    expect(copies()).toEqual([]);
  });

  it('is rehearsed by the commands of the page', async () => {
    const told = await run(commandsOf('Backup'));
    expect(told).toMatch(/^\S+\.rdb: (\d+) entries, of \1 in 127\.0\.0\.1\n$/);
    const rehearsal = commandsOf('Rehearse a restore')
      .replaceAll('6399', String(await freePort()))
      .replaceAll('3999', String(await freePort()))
      .replaceAll('9399', String(await freePort()));
    const TMPDIR = join(folder, 'temporary');
    mkdirSync(TMPDIR);
    const listed = await run(rehearsal, { COPY: told.replace(/: .*\n/, ''), TMPDIR });
    expect(listed).toContain('shop');
    // A copy has the names of all customers.
    expect(readdirSync(TMPDIR).filter((name) => name.startsWith('tmp.'))).toEqual([]);
  });
});
