import { spawnSync } from 'node:child_process';
import { cpSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skippedWithout } from '../harness/programs.ts';
import { graceMs } from './settings.ts';

const root = join(import.meta.dirname, '..', '..');
const units = globSync('deploy/systemd/*.service', { cwd: root });
/** Of 100; 13 is what remains for a program that compiles at run time and talks to the network. */
const EXPOSURE_MAX = 15;

const noSystemd = skippedWithout('systemd-analyze', 'systemd-sysusers');

it('there is a unit for each process', () => {
  expect(units.map((unit) => basename(unit)).sort()).toEqual([
    'keyfence-control-plane.service',
    'keyfence-redis.service',
    'keyfence-sentinel.service',
    'keyfence-verifier.service',
  ]);
});

it.each(['control-plane', 'verifier'])('the unit of the %s is not killed before it has stopped', (name) => {
  const text = readFileSync(join(root, `deploy/systemd/keyfence-${name}.service`), 'utf8');
  const [, grace] = /^TimeoutStopSec=(\d+)$/m.exec(text) ?? [];
  const env = Object.fromEntries(
    [...text.matchAll(/^Environment=(\w+)=(.*)$/gm)].map(([, key, value]) => [key, value]),
  );
  expect(Number(grace) * 1000).toBeGreaterThanOrEqual(graceMs([`${name}/main.js`], env));
});

it('journald keeps each line of a control plane, however many come at once', () => {
  const text = readFileSync(join(root, 'deploy/systemd/keyfence-control-plane.service'), 'utf8');
  expect(text).toMatch(/^LogRateLimitIntervalSec=0$/m);
});

it('the pages name every file of a unit', () => {
  const pages = ['systemd/README.md', 'machines.md'].map((page) =>
    readFileSync(join(root, 'deploy', page), 'utf8'),
  );
  const named = pages
    .join('')
    .replaceAll('`<user>-password`', (text) =>
      ['operator', 'replica', 'sentinel'].map((user) => text.replace('<user>', user)).join(' '),
    );
  for (const unit of units) {
    const text = readFileSync(join(root, unit), 'utf8');
    const files = [...text.matchAll(/=-?[\w-]*:?\/etc\/keyfence\/([\w.-]+)$/gm)].map(([, file]) => file);
    expect(files.length).toBeGreaterThan(0);
    for (const file of files) expect(named).toContain(`\`${file}\``);
  }
});

describe.skipIf(noSystemd)(`systemd's own opinion${noSystemd}`, () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'keyfence-units-'));
    for (const unit of units) {
      const here = readFileSync(join(root, unit), 'utf8').replaceAll('/opt/keyfence', root);
      writeFileSync(join(folder, basename(unit)), here);
    }
    // As verifier/doors/http/sharing-a-port.md installs them.
    cpSync(join(folder, 'keyfence-verifier.service'), join(folder, 'keyfence-verifier@.service'));
    const settings = 'keyfence-verifier@.service.d';
    cpSync(join(root, 'deploy/systemd', settings), join(folder, settings), { recursive: true });
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  for (const unit of [...units.map((path) => basename(path)), 'keyfence-verifier@2.service']) {
    it(`nothing to say about ${unit}`, () => {
      expect(analyze('verify', '--man=no', join(folder, unit))).toEqual({ status: 0, output: '' });
    });

    it(`${unit} is exposed no more than ${EXPOSURE_MAX} of 100`, () => {
      const verdict = analyze(
        'security',
        '--offline=true',
        `--threshold=${EXPOSURE_MAX}`,
        join(folder, unit),
      );
      expect(verdict.output).toMatch(/Overall exposure level/);
      expect(verdict.status, verdict.output).toBe(0);
    });
  }

  it('a drop-in of the template is read', () => {
    const wrong = join(folder, 'keyfence-verifier@.service.d', 'wrong.conf');
    writeFileSync(wrong, '[Service]\nProtectHomes=yes\n');
    const { output } = analyze('verify', '--man=no', join(folder, 'keyfence-verifier@2.service'));
    rmSync(wrong);
    expect(output).toContain('ProtectHomes');
  });

  it('the user and the group can be made', () => {
    const made = mkdtempSync(join(tmpdir(), 'keyfence-users-'));
    mkdirSync(join(made, 'etc'));
    const file = join(root, 'deploy/systemd/keyfence.sysusers');
    const { status, stderr } = spawnSync('systemd-sysusers', [`--root=${made}`, file], { encoding: 'utf8' });
    const groups = readFileSync(join(made, 'etc/group'), 'utf8');
    rmSync(made, { recursive: true });
    expect({ status, stderr }).toEqual({ status: 0, stderr: expect.not.stringContaining('Failed') });
    for (const unit of units) {
      const text = readFileSync(join(root, unit), 'utf8');
      for (const [, group] of text.matchAll(/^(?:User|SupplementaryGroups)=(.*)$/gm))
        expect(groups).toContain(`${group}:`);
    }
  });

  it('a misspelt directive would be noticed', () => {
    const wrong = join(folder, 'wrong.service');
    writeFileSync(wrong, '[Service]\nExecStart=/bin/true\nProtectHomes=yes\n');
    expect(analyze('verify', '--man=no', wrong).output).toContain('ProtectHomes');
  });
});

function analyze(...args: string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
  return { status, output: stdout + stderr };
}
