import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { lacking } from '../harness/programs.ts';
import { graceMs, settingsOf } from './settings.ts';

const folder = join(import.meta.dirname, '..', '..', 'deploy');

interface Service {
  image: string;
  command?: string[];
  user?: string;
  environment?: Record<string, string>;
  secrets?: string[];
  ports?: string[];
  volumes?: string[];
  networks: string[];
  [key: string]: unknown;
}
interface Compose {
  services: Record<string, Service>;
  networks: Record<string, { internal?: boolean }>;
  secrets: Record<string, { file: string }>;
}
const compose: Compose = parse(readFileSync(join(folder, 'compose.yaml'), 'utf8'), { merge: true });
const services = Object.entries(compose.services);

describe('compose.yaml', () => {
  it.each(services)('%s gains no rights and pins its image', (_, service) => {
    expect(service).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
    });
    expect(service['privileged']).toBeUndefined();
    const grace = /^(\d+)s$/.exec(String(service['stop_grace_period']))?.[1];
    expect(Number(grace) * 1000).toBeGreaterThanOrEqual(
      graceMs(service.command ?? [], service.environment ?? {}),
    );
    expect(service.image).toMatch(/:\d+\.\d+\.\d+/);
  });

  it.each(services)('%s has existing settings, secrets in files', (_, service) => {
    const names = Object.keys(service.environment ?? {});
    const known = settingsOf(service.command ?? []);
    if (known) expect(names.filter((name) => !known.has(name))).toEqual([]);
    for (const [name, value] of Object.entries(service.environment ?? {})) {
      if (name.endsWith('_FILE')) expect(service.secrets).toContain(value.replace('/run/secrets/', ''));
      else expect(name).not.toMatch(/PASSWORD|ROOT_KEY/);
    }
    for (const secret of service.secrets ?? [])
      expect(compose.secrets[secret]?.file).toMatch(/^\.\/secrets\//);
  });

  it.each(services)('%s mounts what exists, and is local', (_, service) => {
    for (const volume of service.volumes ?? []) {
      const [source = ''] = volume.split(':');
      if (source.startsWith('.')) expect(existsSync(join(folder, source)), volume).toBe(true);
    }
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/);
  });

  it('each process reaches Redis as its own user', () => {
    const beside = services.filter(([, { networks }]) => networks.includes('redis'));
    const users = beside.map(([name, { environment }]) => [name, environment?.['REDIS_USERNAME']]);
    expect(Object.fromEntries(users)).toEqual({
      redis: undefined,
      'control-plane': 'control-plane',
      'verifier-1': 'verifier',
      'verifier-2': 'verifier',
    });
    expect(compose.networks['redis']).toEqual({ internal: true });
    const acl = readFileSync(join(folder, 'redis/users.acl'), 'utf8');
    for (const user of ['control-plane', 'verifier'])
      expect(acl).toContain(`user ${user} on #@${user}-password@`);
  });

  it('its secrets stay out of the repository', () => {
    expect(readFileSync(join(folder, '.gitignore'), 'utf8')).toMatch(/^secrets\/$/m);
  });

  const tool = [['docker', 'compose'], ['docker-compose']].find(
    ([command = '', ...args]) => spawnSync(command, [...args, 'version']).status === 0,
  );
  it.skipIf(!tool)(`compose itself accepts it${lacking(tool ? [] : ['docker-compose'])}`, () => {
    const [command = '', ...args] = tool ?? [];
    const { status, stderr } = spawnSync(command, [...args, '-f', 'compose.yaml', 'config', '-q'], {
      cwd: folder,
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });
});
