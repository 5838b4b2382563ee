import { execFile } from 'node:child_process';
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify, stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { generateKey, hashSecret } from '../../../../shared/rules/key-format.ts';
import { VERSION } from '../../../../shared/version.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { skippedWithout } from '../../../harness/programs.ts';
import { envOf, noTerminal, start, startOnTerminal } from './keyfence.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet.stop());

const COLOUR = '\u001b[1m';

test.skipIf(noTerminal)(
  `colours are for terminals alone, and NO_COLOR takes them away${noTerminal}`,
  async () => {
    const env = envOf(fleet);
    expect((await startOnTerminal(['apis', 'list'], env)).stdout).toContain(COLOUR);
    expect((await startOnTerminal(['apis', 'list'], { ...env, NO_COLOR: '1' })).stdout).not.toContain(
      '\u001b',
    );
    expect((await start(['apis', 'list'], env).ended).stdout).not.toContain('\u001b');
  },
);

test.skipIf(noTerminal)(
  `the root key and the key are asked for, and what is typed is not shown${noTerminal}`,
  async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'asked' });
    const env = envOf(fleet, { KEYFENCE_ROOT_KEY: '' });
    const listed = await startOnTerminal(['apis', 'list'], env, 'Root key for http', `${ROOT_KEY}\r`);
    expect(listed.stdout).toContain('asked');
    expect(listed.stdout).not.toContain(ROOT_KEY);
    await fleet.verdict(key);
    const verified = await startOnTerminal(['keys', 'verify'], env, 'Key: ', `${key}\r`);
    expect(verified.stdout).toContain('VALID');
    expect(verified.stdout).not.toContain(key);
    const left = await startOnTerminal(['apis', 'list'], env, 'Root key for http', '\u0003');
    expect(left.status).toBe(130);
  },
);

test.skipIf(noTerminal)(
  `lists fit a terminal of 80 columns, what people know first${noTerminal}`,
  async () => {
    const name = 'A rather long name that somebody chose for a reason';
    const { keyId } = await fleet.ok('keys.createKey', {
      apiId: 'wide',
      name,
      externalId: 'ada',
      remaining: 5,
    });
    await fleet.ok('identities.createIdentity', { externalId: 'ada' });
    await fleet.ok('permissions.createRole', {
      name: 'editor',
      permissions: ['a.rather.long.permission', 'files.read'],
    });
    await fleet.ok('rootKeys.createRootKey', {
      name,
      permissions: ['api.*.read_key', 'api.*.read_api', 'root.*.read_role'],
    });
    await fleet.ok('webhooks.createEndpoint', { url: `https://example.com/${'long'.repeat(30)}` });
    await fleet.ok('webhooks.createEndpoint', { url: 'https://hooks.example.com/all', name: 'Hooks' });
    const lists = [
      ...[
        ['keys', 'list', 'wide'],
        ['apis', 'list'],
        ['identities', 'list'],
        ['roles', 'list'],
        ['root-keys', 'list'],
      ],
      ...[['permissions', 'list'], ['webhooks', 'list'], ['fleet'], ['audit'], ['keys', 'usage', keyId]],
    ];
    for (const args of lists) {
      const { stdout, status } = await startOnTerminal(args, envOf(fleet));
      expect(status, args.join(' ')).toBe(0);
      const lines = stripVTControlCharacters(stdout).split(/\r?\n/);
      expect(
        Math.max(...lines.map((line) => line.length)),
        `${args.join(' ')}\n${stdout}`,
      ).toBeLessThanOrEqual(80);
    }
    const { stdout } = await startOnTerminal(['keys', 'list', 'wide'], envOf(fleet));
    const [titles, line, ...notes] = stripVTControlCharacters(stdout).split(/\r?\n/);
    expect(titles).toMatch(/^name +customer +state +used +api +keyId$/);
    expect(line).toMatch(/^A rather long .*… +ada +● enabled +– +wide +key_\S+…$/);
    expect(notes.join()).toContain('2 columns hidden: --wide');
    expect((await startOnTerminal(['keys', 'list', 'wide', '--wide'], envOf(fleet))).stdout).toContain(keyId);
    const first = async (...args: string[]) =>
      stripVTControlCharacters((await startOnTerminal(args, envOf(fleet))).stdout).replaceAll('\r', '');
    expect(await first('roles', 'list')).toMatch(/^name +permissions +plan .*\neditor +/);
    expect(await first('root-keys', 'list')).toMatch(/^name +state .*\nA rather long .*… +● enabled /m);
    expect(await first('identities', 'list')).toMatch(/^externalId +state .*\nada +● enabled /);
    expect(await first('webhooks', 'list')).toMatch(
      /^Hooks +hooks\.example\.com\/all +● active +all +endpoint_/m,
    );
    expect(await first('webhooks', 'list', '--wide')).toContain('long'.repeat(30));
    expect(await first('apis', 'list')).toMatch(/^wide +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +/m);
    expect(await first('audit', '--operation', 'permissions.createRole')).toMatch(
      /^time +outcome +what\n\S+ \S+ +OK +bootstrap created role role_\S+$/m,
    );
    // Elsewhere nothing is cut.
    expect((await start(['keys', 'list', 'wide'], envOf(fleet)).ended).stdout).toContain(name);
  },
);

test.skipIf(noTerminal)(`--web opens the dashboard or prints where${noTerminal}`, async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'web', name: 'Webby' });
  const page = (path: string) => `${fleet.controlPlanes[0]?.address}/dashboard/#/${path}`;
  const pages = [
    ['keys get Webby', `keys/${keyId}`],
    ['keys usage Webby', `keys/${keyId}`],
    ['keys ls web --role editor', 'apis/web?filter=role%3A%22editor%22'],
    ['apis usage web', 'apis/web?tab=traffic'],
    ['webhooks list', 'webhooks'],
    ['audit --refused --key Webby', `audit?refused=true&keyId=${keyId}`],
  ] as const;
  for (const [line, path] of pages) {
    const { stdout, status } = await start([...line.split(' '), '--web'], envOf(fleet)).ended;
    expect([line, stdout, status]).toEqual([line, `${page(path)}\n`, 0]);
  }
  const { PATH = '', ...env } = envOf(fleet);
  const onDesktop = { ...env, PATH: `${fleet.directory}:${PATH}`, DISPLAY: ':1' };
  const web = ['keys', 'get', keyId, '--web'];
  // Without a display the address is printed on a terminal too.
  expect((await startOnTerminal(web, { ...env, PATH })).stdout).toMatch(/^http/);
  const opened = join(fleet.directory, 'opened');
  writeFileSync(join(fleet.directory, 'xdg-open'), `#!/bin/sh\nprintf %s "$1" > ${opened}\n`, {
    mode: 0o755,
  });
  expect((await startOnTerminal(web, onDesktop)).stdout).toContain(`opened ${page(`keys/${keyId}`)}`);
  await fleet.until(() => existsSync(opened) && readFileSync(opened, 'utf8') === page(`keys/${keyId}`));
});

test.skipIf(noTerminal)(`login does not echo the root key${noTerminal}`, async () => {
  const env = envOf(fleet, { KEYFENCE_ROOT_KEY: '', KEYFENCE_URL: '', XDG_CONFIG_HOME: fleet.directory });
  const address = fleet.controlPlanes[0]?.address ?? '';
  const ended = await startOnTerminal(['login', address], env, 'Root key for http', `${ROOT_KEY}\r`);
  expect(ended.status, ended.stdout).toBe(0);
  expect(ended.stdout).not.toContain(ROOT_KEY);
});

test.skipIf(noTerminal)(`deleting asks first${noTerminal}`, async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'kept' });
  const no = await startOnTerminal(['keys', 'delete', keyId], envOf(fleet), 'Type yes: ', 'y\r');
  expect(no.status).toBe(130);
  expect((await fleet.admin('keys.getKey', { keyId })).status).toBe(200);
  const yes = await startOnTerminal(['keys', 'delete', keyId], envOf(fleet), 'Type yes: ', 'yes\r');
  expect(yes.status).toBe(0);
  expect((await fleet.admin('keys.getKey', { keyId })).status).toBe(404);
});

test.skipIf(noTerminal)(`an import shows how far it is${noTerminal}`, async () => {
  const file = join(fleet.directory, 'bar.ndjson');
  writeFileSync(file, Array.from({ length: 4000 }, () => `{"key":"${generateKey(16)}"}\n`).join(''));
  const { stdout, status } = await startOnTerminal(['keys', 'import', 'bar', file], envOf(fleet));
  expect(status).toBe(0);
  expect(stdout).toMatch(/█+░+ 50 % line 2,000/);
  expect(stdout).toContain('4,000 created');
});

test.skipIf(noTerminal)(`a disable shows how far it is${noTerminal}`, async () => {
  const keyIds: string[] = [];
  for (let part = 0; part < 4; part++) {
    const keys = Array.from({ length: 500 }, () => ({ sha256: hashSecret(generateKey(16)), foreign: false }));
    const { results } = await fleet.ok('keys.importKeys', { apiId: 'shown', keys });
    keyIds.push(...results.map((result: { keyId: string }) => result.keyId));
  }
  const file = join(fleet.directory, 'shown');
  writeFileSync(file, keyIds.join('\n'));
  const args = ['keys', 'disable', '--api', 'shown', '--file', file];
  const { stdout, status } = await startOnTerminal(args, envOf(fleet));
  expect(status).toBe(0);
  expect(stdout).toMatch(/█+░* (50|100) % [12],000 keys/);
  expect(stdout).toContain('2,000 keys disabled');
});

test('the version is told without the program', async () => {
  const root = join(import.meta.dirname, '..', '..', '..', '..');
  const files = ['package.json', 'control-plane/clients/cli/keyfence.js'];
  for (const file of files) cpSync(join(root, file), join(fleet.directory, 'bare', file));
  const command = join(fleet.directory, 'bare', 'control-plane/clients/cli/keyfence.js');
  const { stdout } = await promisify(execFile)(process.execPath, [command, '--version']);
  expect(stdout).toBe(`${VERSION}\n`);
});

test('a file that is not there is told in words', async () => {
  const { status, stderr } = await start(['keys', 'import', 'bar', 'keys.json'], envOf(fleet)).ended;
  expect(status).toBe(64);
  expect(stderr).toMatch(/cannot read or write keys\.json: no such file or directory/);
});

const noFish = skippedWithout('fish');
test.skipIf(noFish)(`fish completes commands, options and shells by the words before${noFish}`, async () => {
  const { stdout: script } = await start(['completion', 'fish'], envOf(fleet)).ended;
  const completed = async (line: string) => {
    const program = `${script}\ncomplete -C 'keyfence ${line}'`;
    return (await promisify(execFile)('fish', ['--no-config', '-c', program])).stdout.trim().split('\n');
  };
  expect(await completed('ke')).toEqual(['keys']);
  // It offers files too.
  expect((await completed('keys d')).filter((word) => !word.endsWith('/'))).toEqual(['delete', 'disable']);
  expect(await completed('--json keys disable --w')).toEqual(['--wait']);
  expect(await completed('keys disable key_x --j')).toEqual(['--json']);
  expect(await completed('completion f')).toEqual(['fish']);
});

const noBash = skippedWithout('bash');
test.skipIf(noBash)(`bash completes commands, options and shells by the words before${noBash}`, async () => {
  const { stdout: script } = await start(['completion', 'bash'], envOf(fleet)).ended;
  const completed = async (...words: string[]) => {
    const program = `${script}\nCOMP_WORDS=(keyfence ${words.map((word) => `'${word}'`).join(' ')})
      COMP_CWORD=${words.length}; _keyfence; echo "\${COMPREPLY[*]}"`;
    return (await promisify(execFile)('bash', ['-c', program])).stdout.trim();
  };
  expect(await completed('ke')).toBe('keys');
  expect(await completed('keys', 'd')).toBe('disable delete');
  expect(await completed('--json', 'keys', 'disable', '--w')).toBe('--wait');
  expect(await completed('keys', 'disable', 'key_x', '--j')).toBe('--json');
  expect(await completed('completion', 'z')).toBe('zsh');
  const zsh = await start(['completion', 'zsh'], envOf(fleet)).ended;
  expect(zsh.stdout).toMatch(/^#compdef keyfence\n/);
  expect(zsh.stdout).toContain(
    '" keys disable "*) compadd -- --api --owner --file --secret --wait --json --help || _files ;;',
  );
});
