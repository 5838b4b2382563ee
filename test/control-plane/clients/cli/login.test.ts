import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Contexts } from '../../../../control-plane/clients/cli/contexts.ts';
import { takeFolder, tell } from '../../../../deploy/dev/folder.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { envOf, useCommandLine } from './keyfence.ts';

let fleet: Fleet;
let home: string;
beforeAll(async () => {
  fleet = await Fleet.start();
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
  expect((await run('logout')).stdout).toBe('forgot here\n');
  expect((await run('apis list')).status).toBe(77);
  await run('logout other');
  expect(readFileSync(file, 'utf8')).not.toContain(ROOT_KEY);
});

/** A server that must receive nothing: neither a call nor a connection. */
const bystander = createServer(() => undefined);
const heard: string[] = [];
bystander.on('connection', (socket) => {
  heard.push('a connection');
  socket.destroy();
});
const BYSTANDER = () => `http://127.0.0.1:${(bystander.address() as AddressInfo).port}`;
beforeAll(async () => {
  await once(bystander.listen(0, '127.0.0.1'), 'listening');
});
afterAll(() => bystander.close());

/** The note of an `npm start` that runs, or was killed. */
function startNote(controlPlane: string, verifier: string, isRunning: boolean): string {
  const folder = mkdtempSync(join(home, 'start-'));
  writeFileSync(join(folder, 'root-key'), `${ROOT_KEY}\n`);
  if (isRunning) takeFolder(folder);
  else writeFileSync(join(folder, 'lock'), '');
  tell(folder, { pid: process.pid, controlPlane, verifier });
  return folder;
}
/** The folder of a context with these addresses. */
function contextOf(url: string, verifierUrl?: string): string {
  const folder = mkdtempSync(join(home, 'context-'));
  const production = { url: `${url}/`, rootKey: ROOT_KEY, verifierUrl };
  new Contexts(folder).write({ current: 'production', contexts: { production } });
  return folder;
}

describe('a secret goes only to servers of its source', () => {
  const change = ['keys disable Ada', 'keys update key_x --name Ada', 'keys delete key_x --yes', 'apis list'];
  const commands = [
    ...change,
    'keys import shop -',
    'keys disable --secret',
    'tail --refused',
    'fleet',
    'doctor',
  ];
  const verify = 'keys verify';
  const verifier = () => fleet.verifiers[0]?.address ?? '';

  const cases: readonly (readonly [string, () => object, readonly string[], RegExp])[] = [
    [
      'the root key of the environment, not to a context',
      () => ({ KEYFENCE_ROOT_KEY: 'mine', XDG_CONFIG_HOME: contextOf(BYSTANDER(), BYSTANDER()) }),
      [...commands, verify],
      /^keyfence: no (control plane|verifier): the environment has only KEYFENCE_ROOT_KEY.*: set KEYFENCE_\w*URL too, or unset KEYFENCE_ROOT_KEY to use the context production \(http:/,
    ],
    [
      'the root key of the environment, not to npm start',
      () => ({ KEYFENCE_ROOT_KEY: 'mine', KEYFENCE_DATA: startNote(BYSTANDER(), BYSTANDER(), true) }),
      [...commands, verify],
      /has only KEYFENCE_ROOT_KEY.* to use npm start \(http:/,
    ],
    [
      'the root key of a context, not to KEYFENCE_URL',
      () => ({ KEYFENCE_URL: BYSTANDER(), XDG_CONFIG_HOME: contextOf(address()) }),
      commands.filter((line) => line !== 'doctor'),
      /^keyfence: no root key: the environment has only KEYFENCE_URL.* to use the context production/,
    ],
    [
      'a secret, not to the verifier of npm start beside a context',
      () => ({
        XDG_CONFIG_HOME: contextOf(address()),
        KEYFENCE_DATA: startNote(BYSTANDER(), BYSTANDER(), true),
      }),
      [verify],
      /^keyfence: no verifier: run keyfence login http:\S+ --name production --verifier <url>/,
    ],
    [
      'a secret, not to a verifier of the environment without one',
      () => ({
        KEYFENCE_URL: address(),
        KEYFENCE_ROOT_KEY: ROOT_KEY,
        KEYFENCE_DATA: startNote(BYSTANDER(), BYSTANDER(), true),
      }),
      [verify],
      /only KEYFENCE_URL and KEYFENCE_ROOT_KEY.*: set KEYFENCE_VERIFIER_URL too/,
    ],
    [
      'nothing to an npm start that was killed',
      () => ({ KEYFENCE_DATA: startNote(BYSTANDER(), BYSTANDER(), false) }),
      [...commands, verify],
      /npm start is not running here/,
    ],
    [
      'the root key of the environment, not to a login elsewhere',
      () => ({ KEYFENCE_URL: address(), KEYFENCE_ROOT_KEY: 'mine' }),
      ['login ELSEWHERE'],
      /^keyfence: the root key of the environment is for http:\S+, which KEYFENCE_URL names/,
    ],
  ];
  test.each(cases)('%s', async (_, env, lines, told) => {
    const more = { XDG_CONFIG_HOME: join(home, 'none'), KEYFENCE_DATA: home, ...env() };
    for (const line of lines) {
      const { status, stdout, stderr } = await run(
        line.replace('ELSEWHERE', BYSTANDER()),
        'a-secret\n',
        more,
      );
      expect([line, stderr]).toEqual([line, expect.stringMatching(told)]);
      expect(status, line).toBeGreaterThan(1);
      expect(stdout, line).toBe('');
    }
    expect(heard).toEqual([]);
  });

  test('the chosen context applies, not npm start', async () => {
    const more = {
      XDG_CONFIG_HOME: contextOf(address(), verifier()),
      KEYFENCE_DATA: startNote(BYSTANDER(), BYSTANDER(), true),
    };
    const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const disabled = await run(`keys disable ${keyId}`, '', more);
    expect(disabled).toMatchObject({
      status: 0,
      stderr: `At ${address()}, from the context production:\n`,
      stdout: expect.stringContaining('complete'),
    });
    expect(JSON.parse((await run(`keys enable ${keyId} --json`, '', more)).stdout).server).toBe(address());
    expect((await run(`keys get ${keyId}`, '', more)).stderr).toBe('');
    await fleet.until(async () => (await fleet.verify(key)).body.code === 'VALID');
    expect((await run('keys verify --json', `${key}\n`, more)).stdout).toContain(keyId);
    expect((await run(`keys delete ${keyId}`, '', more)).stderr).toContain(
      `at ${address()} cannot be undone`,
    );
    expect(JSON.parse((await run('contexts --json', '', more)).stdout).contexts).toMatchObject([
      { name: 'production', url: `${address()}/`, verifier: `${verifier()}`, applies: true },
      { name: 'npm-start', url: `${BYSTANDER()}/`, applies: false },
    ]);
    expect(heard).toEqual([]);
  });

  test('npm start applies where none is chosen', async () => {
    const more = {
      XDG_CONFIG_HOME: contextOf(BYSTANDER()),
      KEYFENCE_DATA: startNote(address(), verifier(), true),
    };
    expect((await run('contexts npm-start', '', more)).stdout).toMatch(/^\* +npm-start/m);
    const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect((await run(`keys enable ${keyId}`, '', more)).stderr).toBe(`At ${address()}, from npm start:\n`);
    await fleet.until(async () => (await fleet.verify(key)).body.code === 'VALID');
    expect((await run('keys verify --json', `${key}\n`, more)).stdout).toContain(keyId);
    expect((await run('login http://127.0.0.1:9 --name npm-start', '', more)).stderr).toContain(
      'choose another',
    );
    expect(heard).toEqual([]);
  });
});

test('contexts says that the environment comes first', async () => {
  const ended = await run('contexts', '', { KEYFENCE_URL: address(), XDG_CONFIG_HOME: contextOf(address()) });
  expect(ended.stdout).not.toContain('*');
  expect(ended.stderr).toContain('No context applies: the environment comes first');
});
