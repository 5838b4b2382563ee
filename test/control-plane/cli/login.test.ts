import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../harness/fleet.ts';
import { envOf, noTerminal, startOnTerminal, useCommandLine } from './keyfence.ts';

let fleet: Fleet;
let home: string;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  home = mkdtempSync(join(tmpdir(), 'keyfence-login-'));
});
afterAll(async () => {
  await fleet.stop();
  rmSync(home, { recursive: true, force: true });
});

const commandLine = useCommandLine();
const envOfHome = () => {
  const { PATH = '' } = envOf(fleet);
  return { PATH, XDG_CONFIG_HOME: home, KEYFENCE_DATA: home };
};
const run = (line: string, input = '', more = {}) =>
  commandLine.run(line.split(' '), { ...envOfHome(), ...more }, input);
const address = () => fleet.controlPlanes[0]?.address ?? '';

test('without an address it says where one comes from', async () => {
  const { status, stderr } = await run('apis list');
  expect(status).toBe(77);
  expect(stderr).toContain('npm start is not running here');
});

test('contexts are kept for this user, and chosen by name', async () => {
  const file = join(home, 'keyfence', 'contexts.json');
  expect((await run(`login ${address()}`, 'wrong\n')).status).toBe(77);
  expect(() => statSync(file)).toThrow();
  const { status, stdout, stderr } = await run(`login ${address()} --name here`, `${ROOT_KEY}\n`);
  expect(status, stderr).toBe(0);
  expect(stdout + stderr).not.toContain(ROOT_KEY);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(file, 'utf8')).toContain(ROOT_KEY);
  expect((await run('apis list')).status).toBe(0);

  await run(`login ${address()}/ --name other`, `${ROOT_KEY}\n`);
  expect(JSON.parse((await run('contexts --json')).stdout).contexts).toMatchObject([
    { name: 'here', applies: false },
    { name: 'other', applies: true },
  ]);
  expect((await run('contexts here')).stdout).toMatch(/^\* +here/m);
  expect((await run('contexts nowhere')).stderr).toContain('there is: here, other');
  // The environment comes first, and the kept key goes nowhere else.
  const elsewhere = await run('apis list', '', { KEYFENCE_URL: 'http://127.0.0.2:9' });
  expect(elsewhere.stderr).toContain('no root key');

  expect((await run('logout')).stdout).toBe('forgot here\n');
  expect((await run('apis list')).status).toBe(77);
  await run('logout other');
  expect(readFileSync(file, 'utf8')).not.toContain(ROOT_KEY);
});

test.skipIf(noTerminal)(`the root key is not echoed${noTerminal}`, async () => {
  const { status, stdout } = await startOnTerminal(
    ['login', address()],
    { ...envOf(fleet), ...envOfHome(), KEYFENCE_ROOT_KEY: '' },
    'Root key: ',
    `${ROOT_KEY}\r`,
  );
  expect(status, stdout).toBe(0);
  expect(stdout).not.toContain(ROOT_KEY);
});
