import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MEMORY, SEMI_SPACES } from '../../bench/servers.ts';
import { untilPrinted } from '../harness/until-printed.ts';

const root = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'keyfence-image-'));
const quiet = { PATH: process.env['PATH'], NODE_OPTIONS: '--disable-warning=ExperimentalWarning' };

/** A folder with what `.dockerignore` lets into the build of the image, and no more. */
const context = mkdtempSync(join(tmpdir(), 'keyfence-context-'));

beforeAll(() => {
  const letIn = readFileSync(join(root, '.dockerignore'), 'utf8').matchAll(/^!(.+)$/gm);
  for (const [, path = ''] of letIn) cpSync(join(root, path), join(context, path), { recursive: true });
  for (const made of [context, folder]) symlinkSync(join(root, 'node_modules'), join(made, 'node_modules'));
  execFileSync(process.execPath, ['deploy/image/build.ts', folder], { cwd: context, env: quiet });
  execFileSync(process.execPath, ['deploy/image/sbom.ts', '--help'], { cwd: context, env: quiet });
});
afterAll(() => {
  rmSync(folder, { recursive: true });
  rmSync(context, { recursive: true });
});

describe('what the image runs', () => {
  it('has the memory settings of the units', () => {
    const image = readFileSync(join(root, 'deploy/Dockerfile'), 'utf8');
    const settings = [SEMI_SPACES, ...Object.entries(MEMORY).map((each) => each.join('='))];
    for (const unit of ['control-plane', 'verifier']) {
      const text = readFileSync(join(root, `deploy/systemd/keyfence-${unit}.service`), 'utf8');
      for (const setting of settings)
        expect([setting, image.includes(setting), text.includes(setting)]).toEqual([setting, true, true]);
    }
    // Whoever instruments a process replaces the options, so the page about that repeats them.
    const [options = ''] = /NODE_OPTIONS="[^"$]+"/.exec(image) ?? [];
    expect(readFileSync(join(root, 'verifier/metrics/usage-and-traces.md'), 'utf8')).toContain(options);
  });

  it('has what README.md runs', () => {
    const page = readFileSync(join(root, 'deploy/image/README.md'), 'utf8');
    const run = [...page.matchAll(/^docker run keyfence node (\S+)$/gm)].map(([, file = '']) => file);
    expect(run).toHaveLength(2);
    for (const file of run) expect(globSync(file, { cwd: folder })).toEqual([file]);
    expect(page).toContain('docker build -f deploy/Dockerfile -t keyfence .\n');
  });

  it('holds no TypeScript, and every Lua script', () => {
    const lua = (cwd: string) => globSync('{control-plane,verifier,shared}/**/*.lua', { cwd }).sort();
    expect(globSync('{*,{control-plane,verifier,shared}/**/*}.ts', { cwd: folder })).toEqual([]);
    expect(lua(folder)).toEqual(lua(root));
  });

  for (const source of globSync('{control-plane,verifier}/main.ts', { cwd: root })) {
    const main = source.replace(/ts$/, 'js');

    it(`${main} lives without Redis, which the health check sees, and leaves at SIGTERM`, async () => {
      const settings = {
        REDIS_URL: 'redis://127.0.0.1:1',
        ROOT_KEY: 'r'.repeat(40),
        PORT: '0',
        ADMIN_PORT: '0',
        // What a verifier loads only where it is configured must be there too.
        CONTROL_PLANE_URL: 'http://127.0.0.1:1',
        EXT_AUTHZ_GRPC_PORT: '0',
      };
      const child = spawn(process.execPath, [main], {
        cwd: folder,
        env: { ...quiet, ...settings },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const exited = once(child, 'exit');
      try {
        const [, adminPort = ''] = await untilPrinted(child.stdout, /"adminAddress":"http:[^"]*:(\d+)"/);
        expect(healthOf(adminPort)).toBe(0);
        child.kill('SIGTERM');
        expect(await exited).toEqual([0, null]);
        expect(healthOf(adminPort)).not.toBe(0);
      } finally {
        child.kill('SIGKILL');
      }
    });
  }

  it('a verifier starts without loading extras', async () => {
    const tell = 'console.log(JSON.stringify({ modules: process.moduleLoadList })); process.exit()';
    const look = `setInterval(() => { if (process.listenerCount("SIGTERM") > 0) { ${tell} } }, 20)`;
    const output = execFileSync(
      process.execPath,
      ['--import', `data:text/javascript,${look}`, 'verifier/main.js'],
      {
        cwd: folder,
        env: { ...quiet, REDIS_URL: 'redis://127.0.0.1:1', PORT: '0', ADMIN_PORT: '0' },
        encoding: 'utf8',
      },
    );
    const said = output.split('\n').find((line) => line.startsWith('{"modules"')) ?? '';
    const { modules } = JSON.parse(said) as { modules: string[] };
    expect(modules).toContain('NativeModule http');
    const costly = /^NativeModule (internal\/deps\/undici\/undici|tls|https|http2|worker_threads)$/;
    expect(modules.filter((name) => costly.test(name))).toEqual([]);
  });

  it('lists every production dependency, no other', () => {
    const bill = JSON.parse(
      execFileSync('npm', ['run', '--silent', 'sbom'], { cwd: root, encoding: 'utf8' }),
    );
    const listed = bill.components.map(
      (part: { name: string; version: string }) => `${part.name}@${part.version}`,
    );
    const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
    const locked = Object.entries<{ version: string; dev?: true; optional?: true; devOptional?: true }>(
      lock.packages,
    )
      .filter(([path, { dev, optional, devOptional }]) => path && !dev && !optional && !devOptional)
      .map(([path, { version }]) => `${path.split('node_modules/').at(-1)}@${version}`);
    expect(new Set(listed)).toEqual(new Set(locked));
  });
});

function healthOf(adminPort: string): number | null {
  const env = { ...quiet, ADMIN_PORT: adminPort };
  return spawnSync(process.execPath, ['healthcheck.js'], { cwd: folder, env, stdio: 'ignore' }).status;
}
