import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { digestOf, makeSecret } from '../../../../control-plane/clients/client/own-secret.ts';
import { startedFrom } from '../../../harness/built.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { scratch } from '../../../harness/scratch.ts';
import { envOf, start, useCommandLine } from './keyfence.ts';

/** What files declare, applied by the command line. */
let fleet: Fleet;
const commandLine = useCommandLine();
const folder = scratch('declared');
beforeAll(async () => {
  fleet = await Fleet.start({ env: { WEBHOOK_NETWORKS: '127.0.0.0/8' } });
});
afterAll(async () => {
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
});

let sets = 0;
let set = '';
let at = '';
afterEach(async () => {
  if (set) await clear();
});
/** Declares one thing of each kind, so that a prune deletes all others of the set, which the next test must not meet. */
async function clear(kinds = ALL_KINDS) {
  write('../none.yaml', kinds.replaceAll('kept', `kept-${set}`));
  const { stderr, status } = await run(
    'apply',
    '-f',
    join(at, '../none.yaml'),
    '--prune',
    '--force',
    '--yes',
  );
  if (status !== 0) throw new Error(stderr);
}
const ALL_KINDS = `kind: Api
apiId: kept
---
kind: Permission
slug: kept
---
kind: Role
name: kept
---
kind: Identity
externalId: kept
---
kind: Webhook
name: kept
url: https://hooks.example.com/kept
---
kind: Key
apiId: kept
name: kept
secret: { file: secret of kept }
`;

/** Begins a set of files of its own. */
function begin() {
  set = `set-${++sets}`;
  at = join(folder, set);
  mkdirSync(at);
}
function write(name: string, text: string): string {
  const file = join(at, name);
  writeFileSync(file, text);
  return file;
}
const run = (command: string, ...args: string[]) =>
  commandLine.run(
    [
      command,
      ...args,
      ...(args.some((arg) => /plan\.json$/.test(arg)) && command === 'apply' ? [] : ['--managed-by', set]),
    ],
    envOf(fleet),
  );
const apply = (...args: string[]) => run('apply', '-f', at, '--yes', ...args);
const diff = (...args: string[]) => run('diff', '-f', at, ...args);

const SHOP = `kind: Api
apiId: shop
defaultLifetimeMs: 30d
---
kind: Permission
slug: reports.read
description: Reads reports
---
kind: Role
name: pro
permissions: [reports.read]
ratelimits:
  - { name: requests, limit: 600, duration: 60s, per: identity }
  - { name: calls, limit: 100000, interval: month }
---
kind: Identity
externalId: acme
roles: [pro]
meta: { plan: pro }
credits: { remaining: 100, refill: { interval: monthly, amount: 100 } }
---
kind: Key
apiId: shop
name: acme-ci
externalId: acme
roles: [pro]
permissions: [reports.read, a]
allowedIps: [2001:DB8::/32, 192.0.2.7]
expires: 2100-01-01T00:00:00Z
secret: { file: secrets/acme-ci }
---
kind: Webhook
name: hooks
url: https://hooks.example.com/
events: [key.*]
secret: { file: secrets/hooks }
`;

test('files become what they declare, once', async () => {
  begin();
  write('shop.yaml', SHOP);
  const before = await diff();
  expect([before.status, before.stderr]).toEqual([2, expect.anything()]);
  expect(before.stdout).toContain('+ Key shop/acme-ci');
  expect(before.stderr).toBe(`Compared with ${fleet.controlPlanes[0]?.address}:\n`);
  const first = await apply();
  expect([first.status, first.stderr]).toEqual([0, expect.stringContaining('At http')]);
  expect(first.stdout).toMatch(/6 changes made; complete everywhere after \d+ ms\./);
  const file = join(at, 'secrets', 'acme-ci');
  const secret = readFileSync(file, 'utf8').trim();
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(join(at, 'secrets', '.gitignore'), 'utf8')).toBe('*\n');
  expect(first.stdout + first.stderr + before.stdout).not.toContain(secret.slice(8));
  expect(await fleet.ok('keys.whoami', { key: secret })).toMatchObject({ name: 'acme-ci', managedBy: set });
  expect(readFileSync(join(at, 'secrets', 'hooks'), 'utf8')).toMatch(/^whsec_\S+\n$/);
  const again = await diff('--prune');
  expect([again.status, again.stdout]).toEqual([0, 'Nothing to change.\n']);
  expect((await apply('--prune')).stdout).toBe('Nothing to change.\n');
});

test('absent is left alone, null removes, [] is none', async () => {
  begin();
  const role = (fields: string) => write('a.yaml', `kind: Role\nname: some\n${fields}`);
  role('description: One\npermissions: [a, b]\nratelimits: [{ name: r, limit: 1, duration: 1m }]\n');
  await apply();
  const shown = async () => (await fleet.ok('permissions.listRoles', { managedBy: set }))[0];
  role('permissions: [b]\n');
  expect((await diff()).stdout).toContain('permissions: - a\n');
  await apply();
  expect(await shown()).toMatchObject({
    description: 'One',
    ratelimits: [{ name: 'r' }],
    permissions: [{ id: 'b' }],
  });
  role('description: null\nratelimits: []\n');
  await apply();
  expect(await shown()).not.toHaveProperty('description');
  expect(await shown()).toMatchObject({ ratelimits: [], permissions: [{ id: 'b' }] });
  expect((await diff()).status).toBe(0);
});

test('a change by hand is told and taken back', async () => {
  begin();
  write('a.yaml', 'kind: Identity\nexternalId: drifter\nenabled: true\n');
  await apply();
  await fleet.ok('identities.updateIdentity', { externalId: 'drifter', enabled: false });
  const { status, stdout } = await diff();
  expect([status, stdout]).toEqual([
    2,
    expect.stringMatching(/~ Identity drifter {2}\(changed by others since .*\n {4}enabled: false → true/),
  ]);
  await apply();
  expect(await fleet.ok('identities.getIdentity', { externalId: 'drifter' })).not.toHaveProperty('driftedAt');
});

test('prunes only its own, also of kinds that no file mentions any more', async () => {
  begin();
  await fleet.ok('permissions.createRole', { name: 'by hand' });
  await fleet.ok('permissions.createRole', { name: 'of others', managedBy: 'others' });
  const roles = (names: string[]) =>
    write('a.yaml', names.map((name) => `kind: Role\nname: ${name}\n`).join('---\n'));
  const many = Array.from({ length: 12 }, (_, i) => `many-${i}`);
  write('b.yaml', 'kind: Permission\nslug: stays\n');
  roles(['x', ...many]);
  await apply();
  rmSync(join(at, 'b.yaml'));
  roles(['x', 'y']);
  expect((await diff()).stdout).toContain('1 to create, 0 to change, 0 to delete');
  const refused = await apply('--prune');
  expect([refused.status, refused.stderr]).toEqual([
    1,
    expect.stringContaining('prune: would delete 12 of 13 of the kind Role; nothing was done'),
  ]);
  const left = async () =>
    (await fleet.ok('permissions.listRoles')).map(({ name }: { name: string }) => name);
  expect(await left()).not.toContain('y');
  await apply('--prune', '--force');
  expect(await left()).toEqual(expect.arrayContaining(['x', 'y', 'by hand', 'of others']));
  expect(await left()).not.toContain('many-1');
  expect(await fleet.ok('permissions.listPermissions', { managedBy: set })).toEqual([]);
  roles(['x', 'of others']);
  expect((await diff()).stderr).toContain('a.yaml:4:1: Role of others is managed by others');
});

test('a role that will not exist is refused early', async () => {
  begin();
  const roles = (names: string) => `kind: Identity\nexternalId: referrer\nroles: [${names}]\n`;
  write('a.yaml', `kind: Role\nname: kept-role\n---\nkind: Role\nname: old-role\n---\n${roles('old-role')}`);
  await apply();
  write('a.yaml', `kind: Role\nname: kept-role\n---\n${roles('old-role')}`);
  expect((await diff()).status).toBe(0);
  expect(await diff('--prune')).toMatchObject({
    status: 64,
    stderr: expect.stringMatching(
      /a\.yaml:4:1: Identity referrer: roles: --prune would delete the role old-role/,
    ),
  });
  write('a.yaml', `kind: Role\nname: kept-role\n---\n${roles('kept-rolle')}`);
  expect(await diff()).toMatchObject({
    status: 64,
    stderr: expect.stringMatching(/roles: there is no role kept-rolle; declare it/),
  });
});

const keyOf = (name: string, file: string) =>
  `kind: Key\napiId: renamed\nname: ${name}\nsecret: { file: secrets/${file} }\n`;
const secretAt = (file: string) => readFileSync(join(at, 'secrets', file), 'utf8').trim();

test('a rename with the same secret is one change, and two keys may swap their names', async () => {
  begin();
  write('a.yaml', [keyOf('one', 'of-one'), keyOf('two', 'of-two')].join('---\n'));
  await apply();
  const idOf = async (file: string) => (await fleet.ok('keys.whoami', { key: secretAt(file) })).keyId;
  const before = [await idOf('of-one'), await idOf('of-two')];
  write('a.yaml', [keyOf('two', 'of-one'), keyOf('one', 'of-two')].join('---\n'));
  expect((await diff('--prune')).stdout).toContain('0 to create, 2 to change, 0 to delete');
  expect((await apply('--prune')).status).toBe(0);
  write('a.yaml', [keyOf('two', 'of-one'), keyOf('three', 'of-two')].join('---\n'));
  expect((await diff('--prune')).stdout).toContain('name: "one" → "three"');
  expect((await apply('--prune')).status).toBe(0);
  expect([await idOf('of-one'), await idOf('of-two')]).toEqual(before);
  expect(await fleet.ok('keys.whoami', { key: secretAt('of-one') })).toMatchObject({ name: 'two' });
  expect(await fleet.ok('keys.whoami', { key: secretAt('of-two') })).toMatchObject({ name: 'three' });
  expect((await diff('--prune')).status).toBe(0);
});

test('a digest of another key is refused, with the way to rename that', async () => {
  begin();
  const sha256 = digestOf(makeSecret('own')).sha256;
  const key = (name: string) => `kind: Key\napiId: digests\nname: ${name}\nsecret: { sha256: ${sha256} }\n`;
  write('a.yaml', key('before'));
  await apply();
  write('a.yaml', key('after'));
  const { status, stderr } = await apply();
  const [, advice = '', keyId = ''] = /run keyfence (keys update (\S+) --name) "after"$/m.exec(stderr) ?? [];
  expect([status, stderr.includes('Somebody else')]).toEqual([1, false]);
  expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ name: 'before' });
  expect((await commandLine.run([...advice.split(' '), 'after'], envOf(fleet))).status).toBe(0);
  expect(await diff('--prune')).toMatchObject({ status: 0 });
});

test('an API with keys that the set does not declare is deleted only with --force', async () => {
  begin();
  write(
    'a.yaml',
    `kind: Api\napiId: full-${set}\n---\n${keyOf('mine', 'of-mine').replace('renamed', `full-${set}`)}`,
  );
  await apply();
  await fleet.ok('keys.createKey', { apiId: `full-${set}`, name: 'of a customer' });
  write('a.yaml', 'kind: Permission\nslug: rest\n');
  const refused = await apply('--prune');
  expect([refused.status, refused.stderr]).toEqual([
    1,
    expect.stringContaining(
      `would delete Api full-${set} with 1 key that ${set} does not declare; nothing was done`,
    ),
  ]);
  expect(await fleet.verdict(secretAt('of-mine'))).toBe('VALID');
  const forced = await apply('--prune', '--force');
  expect([forced.status, forced.stdout]).toEqual([0, expect.stringMatching(/complete everywhere after/)]);
  expect(await fleet.verdict(secretAt('of-mine'))).toBe('NOT_FOUND');
});

test('what stops goes first, and in spite of what is refused', async () => {
  begin();
  const hook = 'kind: Webhook\nname: bad\nurl: https://10.1.2.3/\n';
  write('a.yaml', [keyOf('leaked', 'of-leaked'), keyOf('off', 'of-off')].join('---\n'));
  await apply();
  write('a.yaml', `${hook}---\n${keyOf('off', 'of-off')}enabled: false\n`);
  const { status, stderr } = await apply('--prune');
  expect([status, stderr]).toEqual([64, expect.stringContaining('keyfence: Webhook bad: url: ')]);
  expect(await fleet.verdict(secretAt('of-leaked'))).toBe('NOT_FOUND');
  expect(await fleet.verdict(secretAt('of-off'))).toBe('DISABLED');
});

test('a webhook that files disable is created disabled', async () => {
  begin();
  write('a.yaml', 'kind: Webhook\nname: off\nurl: https://hooks.example.com/\nenabled: false\n');
  expect((await apply()).status).toBe(0);
  const { endpoints } = await fleet.ok('webhooks.listEndpoints', { managedBy: set });
  expect(endpoints).toMatchObject([{ enabled: false }]);
  expect((await diff()).status).toBe(0);
});

test('the root key of the page suffices, for few calls', async () => {
  begin();
  const keyOf = async (line: string) =>
    envOf(fleet, { KEYFENCE_ROOT_KEY: JSON.parse(await runLines(`${line} --json`, 'bash')).key });
  const env = await keyOf(blocks('bash')[0]?.trim() ?? '');
  const reader = await keyOf('npx keyfence root-keys create reader --preset read-only');
  const owned = (...more: string[]) =>
    commandLine.run(['apply', '-f', at, '--managed-by', set, '--yes', ...more], env);
  const names = Array.from({ length: 100 }, (_, i) => `${set}-${i}`);
  const identities = names.map((name) => `---\nkind: Identity\nexternalId: ${name}\n`).join('');
  const calls = () => fleet.logged.filter((line) => /"msg":"request"/.test(line)).length;
  write('a.yaml', ALL_KINDS.replaceAll('kept', `p-${set}`) + identities);
  const differs = await commandLine.run(['diff', '-f', at, '--managed-by', set], reader);
  expect([differs.status, differs.stderr]).toEqual([2, expect.stringContaining('Compared')]);
  const before = calls();
  expect(await owned()).toMatchObject({ status: 0 });
  // A creation each, and pages of what there is.
  expect(calls() - before).toBeLessThan(130);
  write('b.yaml', identities.slice(4).replaceAll('externalId: ', 'externalId: more-'));
  const more = await owned();
  expect([more.status, more.stdout]).toEqual([0, expect.stringContaining('100 to create, 0 to change')]);
  rmSync(join(at, 'b.yaml'));
  write('a.yaml', ALL_KINDS.replaceAll('kept', `q-${set}`));
  expect(await owned('--prune', '--force')).toMatchObject({ status: 0 });
});

test('a server that went away is not asked for the rest', async () => {
  begin();
  let calls = 0;
  const server = createServer((request, response) => {
    if (++calls > 3 && request.url?.includes('createRole')) return void request.socket.destroy();
    response.setHeader('content-type', 'application/json').end('[]');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const roles = Array.from({ length: 60 }, (_, i) => `kind: Role\nname: away-${i}\n`);
  write('a.yaml', roles.join('---\n'));
  const args = ['apply', '-f', at, '--managed-by', set, '--yes'];
  const env = envOf(fleet, { KEYFENCE_URL: `http://127.0.0.1:${port}` });
  const { status, stdout } = await commandLine.run(args, env);
  server.close();
  expect([status, stdout]).toEqual([69, expect.stringMatching(/\d+ changes made, \d+ not\.\n/)]);
  // Those that were under way as the third of them failed, each with its retries.
  expect(calls).toBeLessThan((8 + 2) * 4 + 8);
});

test('a plan is refused where something has moved', async () => {
  begin();
  write('a.yaml', 'kind: Role\nname: planned\npermissions: [a]\n');
  await apply();
  write('a.yaml', 'kind: Role\nname: planned\npermissions: [b]\n---\nkind: Role\nname: second\n');
  const plan = join(at, 'plan.json');
  expect((await run('plan', '-f', at, '-o', plan)).status).toBe(2);
  const [{ id: roleId }] = await fleet.ok('permissions.listRoles', { managedBy: set });
  await fleet.ok('permissions.updateRole', { roleId, permissions: ['c'] });
  const refused = await run('apply', plan, '--yes');
  expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining('nothing was done')]);
  expect(await fleet.ok('permissions.listRoles', { managedBy: set })).toHaveLength(1);
  await run('plan', '-f', at, '-o', plan);
  expect((await run('apply', plan, '--yes')).status).toBe(0);
  expect((await diff()).status).toBe(0);
});

test('what is exported applies with no change', async () => {
  begin();
  write('shop.yaml', SHOP.replaceAll('acme', 'export').replaceAll('pro', 'plus'));
  await apply();
  const { stdout } = await run('export');
  expect((await run('export')).stdout).toBe(stdout);
  expect(stdout).not.toMatch(/whsec_|secret/);
  rmSync(join(at, 'shop.yaml'));
  write('exported.yaml', stdout);
  expect(await diff('--prune')).toMatchObject({ status: 0, stdout: 'Nothing to change.\n' });
});

test('a difference is told in words, without what nobody changed', async () => {
  begin();
  const role = (limits: string, permissions: string) =>
    write('a.yaml', `kind: Role\nname: ${set}\npermissions: [${permissions}]\nratelimits:\n${limits}`);
  const stays = '  - { name: stays, limit: 5, duration: 60000, async: true }\n';
  role(`${stays}  - { name: monthly, limit: 60000, interval: month }\n`, 'a, b');
  await apply();
  role(`  - { name: monthly, limit: 75000, interval: month }\n${stays.replace('60000', '1m')}`, 'b, c');
  const { stdout } = await diff();
  expect(stdout.split('\n').filter((line) => line.startsWith('    '))).toEqual([
    '    permissions: - a, + c',
    '    ratelimits.monthly.limit: 60,000 → 75,000',
  ]);
});

test('a file is found where it is named: absolute, by a link, and from the folder of a plan', async () => {
  begin();
  const elsewhere = join(folder, `${set}-elsewhere`);
  mkdirSync(elsewhere);
  const secret = join(elsewhere, 'absolute');
  writeFileSync(
    join(elsewhere, 'linked.yaml'),
    `${keyOf('linked', 'of-linked')}---\n${keyOf('absolute', 'x')}`.replace('secrets/x', secret),
  );
  symlinkSync(join(elsewhere, 'linked.yaml'), join(at, 'linked.yaml'));
  const plan = join(at, 'plan.json');
  expect((await run('plan', '-f', relative(process.cwd(), at), '-o', plan)).status).toBe(2);
  expect(JSON.parse(readFileSync(plan, 'utf8')).declared).toMatchObject([
    { secret: { file: join(at, 'secrets', 'of-linked') } },
    { secret: { file: secret } },
  ]);
  expect((await run('apply', plan, '--yes')).status).toBe(0);
  for (const file of [secret, join(at, 'secrets', 'of-linked')])
    expect(await fleet.verdict(readFileSync(file, 'utf8').trim())).toBe('VALID');
});

test.each([
  [
    'that others may read',
    (file: string) => writeFileSync(file, `${makeSecret('own')}\n`, { mode: 0o644 }),
    'others may read',
  ],
  [
    'that is short',
    (file: string) => writeFileSync(file, 'short', { mode: 0o600 }),
    'must have at least 24 characters',
  ],
  ['that is empty', (file: string) => writeFileSync(file, '', { mode: 0o600 }), 'has no secret'],
  ['that is a folder', (file: string) => mkdirSync(file), 'illegal operation on a directory'],
  [
    'that leads nowhere',
    (file: string) => symlinkSync(join(at, 'nowhere'), file),
    'leads to a file that does not exist',
  ],
])('a file of a secret %s is refused by its name, and nothing is left behind', async (_what, make, fault) => {
  begin();
  mkdirSync(join(at, 'secrets'));
  write('a.yaml', `${keyOf('bad', 'bad')}---\n${keyOf('good', 'good')}`);
  make(join(at, 'secrets', 'bad'));
  const { status, stderr } = await apply();
  expect([status, stderr]).toEqual([
    64,
    expect.stringMatching(
      new RegExp(`${join(at, 'secrets', 'bad')}.*${fault}|${fault}.*${join(at, 'secrets', 'bad')}`),
    ),
  ]);
  expect(readdirSync(join(at, 'secrets')).filter((name) => !/^(bad|good)$/.test(name))).toEqual([]);
});

const keysNamed = (count: number) =>
  Array.from(
    { length: count },
    (_, i) =>
      `kind: Key\napiId: killed-${set}\nname: key-${i}\nroles: [killed-${i % 3}]\nsecret: { file: secrets/${i} }\n`,
  );
const rolesNamed = (count: number) =>
  Array.from({ length: count }, (_, i) => `kind: Role\nname: killed-${i}\npermissions: [a, b${i}]\n`);
/** Every secret in the files belongs to the one key of its name, and no file is a half. */
async function expectWhole(count: number) {
  const { keys } = await fleet.ok('apis.listKeys', { apiId: `killed-${set}` });
  expect(keys.map(({ name }: { name: string }) => name).toSorted()).toEqual(
    Array.from({ length: count }, (_, i) => `key-${i}`).toSorted(),
  );
  for (let i = 0; i < count; i++) {
    const key = readFileSync(join(at, 'secrets', String(i)), 'utf8').trim();
    expect(await fleet.ok('keys.whoami', { key })).toMatchObject({
      name: `key-${i}`,
      roles: [`killed-${i % 3}`],
    });
  }
}

test('killed anywhere, the next apply finishes', async () => {
  begin();
  write('a.yaml', [`kind: Api\napiId: killed-${set}\n`, ...rolesNamed(3), ...keysNamed(4)].join('---\n'));
  const args = ['apply', '-f', at, '--managed-by', set, '--yes'];
  const calls = () => fleet.logged.filter((line) => /"msg":"request"/.test(line)).length;
  for (let n = 1; n <= 20; n++) {
    // An API would keep its name for some seconds, until its deletion is over.
    if (n % 7 === 0) await clear(ALL_KINDS.replace('kept', `killed-${set}`));
    const { child, ended } = start(args, envOf(fleet));
    const before = calls();
    let isOver = false;
    child.once('exit', () => {
      isOver = true;
    });
    await fleet.until(() => isOver || calls() - before >= n);
    child.kill('SIGKILL');
    await ended;
  }
  expect(await apply()).toMatchObject({ status: 0, stderr: expect.not.stringContaining('keyfence: ') });
  expect((await diff()).status).toBe(0);
  await expectWhole(4);
});

test('two applies at once end as one of them', async () => {
  begin();
  write('a.yaml', [`kind: Api\napiId: killed-${set}\n`, ...rolesNamed(3), ...keysNamed(4)].join('---\n'));
  const args = ['apply', '-f', at, '--managed-by', set, '--yes'];
  const runs = await Promise.all([1, 2, 3].map(() => start(args, envOf(fleet)).ended));
  expect(runs.map(({ status, stderr }) => [status, stderr])).toEqual(Array(3).fill([0, expect.anything()]));
  expect((await diff('--prune')).status).toBe(0);
  await expectWhole(4);
});

const PAGE = readFileSync(
  join(import.meta.dirname, '../../../../control-plane/clients/declared/declared.md'),
  'utf8',
);
const blocks = (language: string) =>
  [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, text = '']) => text);
/** Runs lines of the page as a shell does. */
async function runLines(lines: string, shell = 'sh'): Promise<string> {
  const main = startedFrom('control-plane/clients/cli/main.ts');
  const script = `set -e\nnpx() { shift; '${process.execPath}' '${main}' "$@"; }\n${lines}`;
  const { stdout } = await promisify(execFile)(shell, ['-c', script], { cwd: at, env: envOf(fleet) });
  return stdout;
}

test('the page does what it says', async () => {
  begin();
  set = 'shop';
  const [first = '', second = '', ...others] = blocks('sh');
  expect(others).toEqual([]);
  const created = await runLines(first);
  expect(created).toMatch(/4 to create.*status 2.*4 changes made; complete everywhere/s);
  const secret = readFileSync(join(at, 'secrets', 'acme-ci'), 'utf8').trim();
  expect(await fleet.verdict(secret)).toBe('VALID');
  expect(await runLines(second)).toMatch(/changed by others since.*enabled: false → true.*1 change made/s);
  expect(await fleet.verdict(secret)).toBe('VALID');
  // The lines of the workflow, as its shell runs them.
  const [workflow = ''] = blocks('yaml');
  const steps = parse(workflow).jobs.apply.steps.flatMap((step: { run?: string }) => step.run ?? []);
  expect(await runLines(steps.join('\n'))).toBe('Nothing to change.\nNothing to change.\n');
});

test('a digest declares a secret, which deletions free', async () => {
  begin();
  const secret = makeSecret('own');
  write('a.yaml', `kind: Key\napiId: own\nname: own\nsecret: { sha256: ${digestOf(secret).sha256} }\n`);
  for (const _ of [1, 2]) {
    expect((await apply()).status).toBe(0);
    const { keyId } = await fleet.ok('keys.whoami', { key: secret });
    expect(await fleet.verdict(secret)).toBe('VALID');
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect((await diff()).status).toBe(0);
    await fleet.ok('keys.deleteKey', { keyId });
    expect((await diff()).stdout).toContain('+ Key own/own');
  }
});

test('the schema is served', async () => {
  const { status, body } = await fleet.get(`${fleet.controlPlanes[0]?.address}/declared.schema.json`);
  expect(status).toBe(200);
  expect(Object.keys(JSON.parse(String(body)).definitions)).toContain('Role');
});

describe('a file is refused with its place', () => {
  const BOMB = `a: &a [x,x,x,x,x,x,x,x]\n${'bcdefgh'.replace(/./g, (c) => `${c}: &${c} [${`*${String.fromCharCode(c.charCodeAt(0) - 1)},`.repeat(8)}]\n`)}`;
  test.each([
    [
      'an unknown field',
      'kind: Role\nname: a\npermisions: [a]\n',
      /a\.yaml:3:1: permisions: unknown field; did you mean permissions\?/,
    ],
    [
      'a wrong type',
      'kind: Role\nname: a\npermissions: [a, 7]\n',
      /a\.yaml:3:18: permissions\.1: must be string/,
    ],
    [
      'a time without a unit that there is',
      'kind: Role\nname: a\nratelimits: [{ name: r, limit: 1, duration: 60sec }]\n',
      /duration: must be integer, or must match pattern .*ms\|s\|m/,
    ],
    ...['017', '0o17', '0x1f', '.nan', '9007199254740993', '1e400'].map(
      (number): [string, string, RegExp] => [
        `the number ${number}`,
        `kind: Identity\nexternalId: a\nmeta: { n: ${number} }\n`,
        /a\.yaml:3:12: must be a number in decimal digits/,
      ],
    ),
    [
      'a file of two secrets',
      'kind: Key\napiId: a\nname: a\nsecret: { file: x }\n---\nkind: Key\napiId: a\nname: b\nsecret: { file: x }\n',
      /a\.yaml:6:1: secret\.file: Key a\/a has the same/,
    ],
    ['a missing name', 'kind: Key\napiId: shop\n', /a\.yaml:1:1: name: required/],
    ...[
      '2030-13-01T00:00:00Z',
      '2030-06-31T00:00:00Z',
      '2030-06-30T24:60:00Z',
      '2030-06-30T00:00:00+25:00',
    ].map((time): [string, string, RegExp] => [
      `the time ${time}`,
      `kind: Key\napiId: shop\nname: a\nexpires: ${time}\n`,
      /a\.yaml:4:1: expires: must be .*/,
    ]),
    ['an unknown kind', 'kind: Rol\nname: a\n', /a\.yaml:1:1: kind: must be one of Api, /],
    [
      'a name twice',
      'kind: Role\nname: a\n---\nkind: Role\nname: a\n',
      /a\.yaml:4:1: Role a is declared at .*a\.yaml:1:1 already/,
    ],
    ['a field twice', 'kind: Role\nname: a\nname: b\n', /a\.yaml:3:1: .*unique/],
    ['broken YAML', 'kind: [Role\nname: a\n', /a\.yaml:\d+:\d+: /],
    ['an alias', 'kind: Role\nname: &a x\ndescription: *a\n', /a\.yaml:2:\d+: must have no anchor/],
    ['a bomb', BOMB, /a\.yaml:1:\d+: must have no anchor/],
    ['many brackets', `kind: ${'['.repeat(100_000)}`, /a\.yaml:1:1: .*nested deeper than 40/],
    ['many dashes', `${'- '.repeat(100_000)}x`, /a\.yaml:1:\d+: .*nested deeper than 40/],
    ['a tag', 'kind: Role\nname: !!js/function "x"\n', /a\.yaml:2:\d+: /],
    ['a name that is no text', 'kind: Role\n1: a\n', /a\.yaml:2:1: the name of a field must be a text/],
    [
      'a key without a secret',
      'kind: Key\napiId: shop\nname: new\n',
      /a\.yaml:1:1: Key shop\/new: secret: required/,
    ],
  ])('%s', async (_name, text, fault) => {
    begin();
    write('a.yaml', text);
    const { status, stderr } = await run('diff', '-f', at);
    expect(stderr).toMatch(fault);
    expect(status).toBe(64);
    set = '';
  });
});
