import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  globSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skippedWithout } from '../harness/programs.ts';
import { untilPrinted } from '../harness/until-printed.ts';
import { checkout, release } from './release-files.ts';

const root = join(import.meta.dirname, '..', '..');
const BUILD_MS_MAX = 300_000;
const reason = whyNot();

describe.skipIf(reason)(`the image, built with buildah${reason}`, () => {
  const image = 'localhost/keyfence:test';
  let folder = '';
  let container = '';
  /** Folder of the image's files; `buildah run` sometimes loses what a short command prints. */
  let files = '';
  afterAll(() => {
    buildah('umount', '--all');
    rmSync(folder, { recursive: true, force: true });
  }, BUILD_MS_MAX);

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'keyfence-buildah-'));
    makeBaseImage();
    buildah('bud', '--pull-never', '--format', 'docker', '-f', 'deploy/Dockerfile', '-t', image, '.');
    container = buildah('from', '--pull-never', image).trim();
    files = buildah('mount', container).trim();
  }, BUILD_MS_MAX);

  it('runs as a nameless user and knows its health', () => {
    const { config } = JSON.parse(buildah('inspect', '--type', 'image', image)).Docker;
    expect(config).toMatchObject({
      User: '10001:10001',
      Cmd: ['node', 'control-plane/main.js'],
      Healthcheck: { Test: ['CMD', 'node', 'healthcheck.js'] },
      Labels: { 'org.opencontainers.image.title': 'Keyfence', 'org.opencontainers.image.licenses': 'MIT' },
    });
  });

  it('holds the program and nothing else from here', () => {
    const list = (path: string) => readdirSync(join(files, path)).sort();
    expect(list('/app')).toEqual(
      [
        'control-plane',
        'healthcheck.js',
        'node_modules',
        'package.json',
        'sbom.json',
        'shared',
        'verifier',
      ].sort(),
    );
    expect(list('/app/node_modules')).not.toContain('vitest');
    expect(list('/usr/local/bin')).toEqual(['node']);
    expect(JSON.parse(readFileSync(join(files, 'app/sbom.json'), 'utf8')).components.length).toBeGreaterThan(
      50,
    );
  });

  it('can change nothing of itself', () => {
    const find = ['!', '-user', 'root', '-o', '-perm', '/022', '!', '-type', 'l'];
    expect(execFileSync('find', [join(files, 'app'), ...find], { encoding: 'utf8' })).toBe('');
    expect(() => buildah('run', container, '--', 'touch', '/app/written')).toThrow();
  });

  for (const source of globSync('{control-plane,verifier}/main.ts', { cwd: root })) {
    const main = source.replace(/ts$/, 'js');

    it(`starts ${main} and leaves at SIGTERM`, async () => {
      const env = { REDIS_URL: 'redis://127.0.0.1:1', ROOT_KEY: 'r'.repeat(40), PORT: '0', ADMIN_PORT: '0' };
      const settings = Object.entries(env).flatMap(([name, value]) => ['--env', `${name}=${value}`]);
      const command = ['sh', '-c', `echo pid=$$; exec node ${main}`];
      const child = spawn('buildah', [...storage(), 'run', ...settings, container, '--', ...command], {
        env: { ...process.env, BUILDAH_ISOLATION: 'chroot' },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const exited = once(child, 'exit');
      const [, pid, port] = await untilPrinted(
        child.stdout,
        /^pid=(\d+)$.*"adminAddress":"http:[^"]*:(\d+)"/ms,
      );
      const answer = await fetch(`http://127.0.0.1:${port}/livez`);
      process.kill(Number(pid), 'SIGTERM');
      expect(answer.status).toBe(200);
      expect(await exited).toEqual([0, null]);
    });
  }

  it(
    'is built twice with the same bytes',
    () => {
      const conf = join(folder, 'storage.conf');
      const roots = [`graphroot = "${join(folder, 'storage')}"`, `runroot = "${join(folder, 'run')}"`];
      writeFileSync(conf, ['[storage]', 'driver = "vfs"', ...roots, ''].join('\n'));
      const images = buildah('images', '--digests', '--format', '{{.Digest}} {{.Name}}');
      const [digest] = images.split('\n').filter((line) => line.endsWith('/library/node'));
      const base = `docker.io/library/node@${digest?.split(' ')[0]}`;
      const env = { CONTAINERS_STORAGE_CONF: conf, BUILDAH_ISOLATION: 'chroot' };
      const [one, two] = ['one', 'two'].map((name) =>
        release(checkout(join(folder, name)), ['--base', base], env),
      );
      expect(one?.manifest).toMatchObject({
        base,
        images: [{ platform: 'all' }, { platform: expect.stringMatching(/^linux\//) }],
      });
      expect(one?.sums).toContain(`image/keyfence-${one?.manifest.version}.oci.tar`);
      expect(two?.sums).toBe(one?.sums);
    },
    BUILD_MS_MAX * 2,
  );

  function storage(): string[] {
    return ['--root', join(folder, 'storage'), '--runroot', join(folder, 'run'), '--storage-driver', 'vfs'];
  }

  function buildah(...args: string[]): string {
    return execFileSync('buildah', [...storage(), ...args], {
      cwd: root,
      env: { ...process.env, BUILDAH_ISOLATION: 'chroot' },
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  }

  /** Stands in for the official image where no registry of images is in reach: Debian, this Node, this npm. */
  function makeBaseImage(): void {
    const archive = join(folder, 'base.tar');
    const packages = '--include=ca-certificates,libstdc++6';
    execFileSync('mmdebstrap', ['--variant=essential', packages, 'bookworm', archive], { stdio: 'pipe' });
    const npm = join(
      dirname(realpathSync(execFileSync('which', ['npm'], { encoding: 'utf8' }).trim())),
      '..',
    );
    const base = buildah('from', 'scratch').trim();
    buildah('add', base, archive, '/');
    buildah('copy', base, process.execPath, '/usr/local/bin/node');
    buildah('copy', base, npm, '/usr/local/lib/node_modules/npm');
    buildah('run', base, 'ln', '-s', '../lib/node_modules/npm/bin/npm-cli.js', '/usr/local/bin/npm');
    const authorities = process.env['NODE_EXTRA_CA_CERTS'];
    if (authorities) {
      buildah('copy', base, authorities, '/etc/extra-ca.pem');
      buildah('config', '--env', 'NODE_EXTRA_CA_CERTS=/etc/extra-ca.pem', base);
    }
    buildah('commit', '--rm', base, 'docker.io/library/node:24-bookworm-slim');
  }
});

/** Reason why the image cannot be built here; '' when it can. */
function whyNot(): string {
  if (process.env['TEST_IMAGE'] !== '1')
    return ' (skipped: takes a minute and the network; set TEST_IMAGE=1)';
  if (process.getuid?.() !== 0) return ' (skipped: needs root)';
  return skippedWithout('buildah', 'mmdebstrap');
}
