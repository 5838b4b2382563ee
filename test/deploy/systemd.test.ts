import { spawnSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skippedWithout } from '../harness/programs.ts';

const root = join(import.meta.dirname, '..', '..');
const units = globSync('deploy/systemd/*.service', { cwd: root });
/** Of 100; 13 is what remains for a program that compiles at run time and talks to the network. */
const EXPOSURE_MAX = 15;

const noSystemd = skippedWithout('systemd-analyze');

it('there is a unit for each process', () => {
  expect(units.map((unit) => basename(unit)).sort()).toEqual([
    'keyfence-control-plane.service',
    'keyfence-verifier.service',
  ]);
});

it('README.md names every secret and unit', () => {
  const page = readFileSync(join(root, 'deploy/systemd/README.md'), 'utf8');
  for (const unit of units) {
    expect(page).toContain(`systemctl enable --now /opt/keyfence/${unit}\n`);
    const text = readFileSync(join(root, unit), 'utf8');
    const files = [...text.matchAll(/=-?[\w-]*:?\/etc\/keyfence\/([\w.-]+)$/gm)].map(([, file]) => file);
    expect(files.length).toBeGreaterThan(1);
    for (const file of files) expect(page).toContain(`\`${file}\``);
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
    // As verifier/http/sharing-a-port.md installs them.
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
