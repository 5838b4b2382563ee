import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { envOf, type Run, start, useCommandLine } from './keyfence.ts';

let fleet: Fleet;
let redis: Redis;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { LEASE_MS: '20000' } });
  redis = new Redis(fleet.redisUrl);
});
afterAll(async () => {
  redis.disconnect();
  await fleet.stop();
});

const commandLine = useCommandLine();
const run = (args: string, input?: string): Promise<Run> =>
  commandLine.run(args.split(' '), envOf(fleet), input);
/** The answer as scripts read it; the command must end as `status` says. */
const answer = async (args: string, status = 0, input?: string) => {
  const ended = await run(`${args} --json`, input);
  expect(ended, args).toMatchObject({ status });
  return JSON.parse(ended.stdout);
};
/** Keys of an API and one owner. */
async function make(apiId: string, count: number, externalId: string) {
  const made: { key: string; keyId: string }[] = [];
  for (let at = 0; at < count; at += 500) {
    const keys = Array.from({ length: Math.min(500, count - at) }, () => generateKey(16));
    const wanted = keys.map((key) => ({ sha256: hashSecret(key), foreign: false, externalId }));
    const { results } = await fleet.ok('keys.importKeys', { apiId, keys: wanted });
    made.push(...keys.map((key, i) => ({ key, keyId: results[i].keyId })));
  }
  return made;
}
const fileOf = (name: string, lines: readonly string[]) => {
  const file = join(fleet.directory, name);
  writeFileSync(file, lines.join('\n'));
  return file;
};

test('a change nobody listens to is finished', async () => {
  const keys = await make('unheard', 5100, 'acme');
  // Each call has an unknown key, which is reported.
  const ids = keys.flatMap(({ keyId }, i) => (i % 500 === 0 ? [`key_${i}`, keyId] : [keyId]));
  const args = ['keys', 'disable', '--api', 'unheard', '--file', fileOf('unheard', ids)];
  const { child, ended } = start(args, envOf(fleet));
  let lines = 0;
  child.stderr?.on('data', () => {
    // The first line names the server.
    if (++lines < 2) return;
    child.stderr?.destroy();
    child.stdout?.destroy();
  });
  expect((await ended).status).toBe(65);
  expect(await fleet.verdict(keys.at(-1)?.key ?? '')).toBe('DISABLED');
  const query = { apiId: 'unheard', enabled: 'true', limit: '1' };
  expect((await fleet.ok('apis.listKeys', query)).keys).toEqual([]);
});

test('changes all keys of an owner, summed up once', async () => {
  const keys = await make('owned', 1100, 'acme');
  const [first, last] = [keys[0]?.key ?? '', keys.at(-1)?.key ?? ''];
  for (const key of [first, last]) expect(await fleet.verdict(key)).toBe('VALID');
  const off = await answer('keys disable --api owned --owner acme');
  expect(off).toEqual({
    ...{ disabled: 1100, refused: 0, server: fleet.controlPlanes[0]?.address },
    propagation: expect.objectContaining({ state: 'complete', by: 'acks', sequence: 1100 }),
  });
  for (const key of [first, last]) expect(await fleet.verdict(key)).toBe('DISABLED');
  expect((await run('keys enable --api owned --owner acme')).stdout).toMatch(
    /^1,100 keys enabled: complete, change 2200: 1 verifier confirmed it, in [\d,]+ ms\.$/m,
  );
  expect(await fleet.verdict(last)).toBe('VALID');
  expect(await run('keys delete --api owned --owner acme')).toMatchObject({
    ...{
      status: 64,
      stderr: expect.stringMatching(/delete all keys of acme in owned at http:\S+ cannot be undone/),
    },
  });
  expect(await answer('keys delete --api owned --owner acme --yes')).toMatchObject({ deleted: 1100 });
  for (const key of [first, last]) expect(await fleet.verdict(key)).toBe('NOT_FOUND');
  expect(await answer('keys disable --api owned --owner acme')).toMatchObject({ disabled: 0, refused: 0 });
});

test('the runbook command stops all of a customer', async () => {
  const runbook = readFileSync(join(import.meta.dirname, '../../../../deploy/incidents.md'), 'utf8');
  const section = runbook.split("## A customer's keys must be refused now")[1] ?? '';
  const [, command = ''] = /```sh\nnpx keyfence (.*)\n```/.exec(section) ?? [];
  const keys = [...(await make('shop', 3, 'acme')), ...(await make('books', 2, 'acme'))];
  for (const { key } of keys) expect(await fleet.verdict(key)).toBe('VALID');
  expect(await run(command)).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/^disabled acme: complete/),
  });
  for (const { key } of keys) expect(await fleet.verdict(key)).toBe('DISABLED');
});

test('disables the keys of a file, naming missing', async () => {
  const keys = await make('filed', 3, 'ada');
  const ids = keys.map(({ keyId }) => keyId);
  const file = fileOf('ids', [...ids, '', ` ${ids[0]} `, 'key_none']);
  const ended = await run(`keys disable --api filed --file ${file} --json`);
  expect(ended.status).toBe(65);
  expect(JSON.parse(ended.stdout)).toMatchObject({ disabled: 3, refused: 1 });
  expect(ended.stderr.trim()).toBe(
    '{"keyId":"key_none","code":"NOT_FOUND","message":"key key_none not found"}',
  );
  expect((await run('keys disable --api filed --file -', 'key_none')).stderr).toBe(
    `At ${fleet.controlPlanes[0]?.address}, from the environment:\nkey key_none not found in API filed\n`,
  );
  for (const { key } of keys) expect(await fleet.verdict(key)).toBe('DISABLED');
  expect(await answer('keys enable --api filed --file -', 0, ids.slice(1).join('\r\n'))).toMatchObject({
    enabled: 2,
  });
  expect(await fleet.verdict(keys[0]?.key ?? '')).toBe('DISABLED');
  expect(await fleet.verdict(keys[2]?.key ?? '')).toBe('VALID');
});

test('disables the keys of a file in spite of lines that are no ids, and names these', async () => {
  const keys = await make('mistyped', 2, 'ada');
  const lines = [keys[0]?.keyId, 'key 2', '"key_3"', keys[1]?.keyId, 'x'.repeat(70_000)];
  const ended = await run(`keys disable --api mistyped --file ${fileOf('mistyped', lines as string[])}`);
  expect([ended.status, ended.stdout]).toEqual([65, expect.stringContaining('2 keys disabled, 3 refused')]);
  for (const line of [2, 3, 5]) expect(ended.stderr).toContain(`line ${line} of `);
  for (const { key } of keys) expect(await fleet.verdict(key)).toBe('DISABLED');
});

test('an API may be named, and no second one of that name is made', async () => {
  await fleet.ok('apis.createApi', { apiId: 'pay_1', name: 'Payments' });
  const created = await answer('keys create Payments', 0);
  expect(await fleet.ok('keys.getKey', { keyId: created.keyId })).toMatchObject({ apiId: 'pay_1' });
  const file = fileOf('named', [created.keyId]);
  expect(await answer(`keys disable --api Payments --file ${file}`, 0)).toMatchObject({ disabled: 1 });
  expect((await run('keys export Payments')).stdout).toContain('"enabled":false');
  await fleet.ok('apis.createApi', { apiId: 'pay_2', name: 'Payments' });
  expect(await run('keys create Payments')).toMatchObject({
    ...{ status: 64, stderr: expect.stringContaining('give an id: pay_1, pay_2') },
  });
  const { apis } = await fleet.ok('apis.listApis');
  expect(apis.map(({ id }: { id: string }) => id)).not.toContain('Payments');
});

test.each([
  ['no key at all', 'keys disable'],
  ['a key and an owner', 'keys disable key_1 --api a --owner b'],
  ['a key and a secret', 'keys disable key_1 --secret'],
  ['an owner without an API', 'keys disable --owner b'],
  ['an API without keys', 'keys enable --api a'],
  ['an owner and a file', 'keys delete --api a --owner b --file c --yes'],
  ['a file that there is not', 'keys disable --api a --file /nowhere/ids'],
  ['a file without ids', 'keys disable --api a --file -'],
  ['a file with nothing but something else', 'keys disable --api a --file -', 'key 1\nkey 2\n'],
])('%s is refused, and nothing is done', async (_, args, input = '') => {
  const { status, stderr, stdout } = await run(args, input);
  expect([status, stdout]).toEqual([64, '']);
  expect(stderr).not.toBe('');
});

test('tells a missing API or an incomplete change', async () => {
  expect((await run('keys disable --api nowhere --owner ada')).status).toBe(1);
  await make('slow', 2, 'ada');
  await redis.zadd(apiKeys('slow').members, 0, 'silent');
  const pending = await run('keys disable --api slow --owner ada --wait 0');
  expect([pending.status, pending.stdout]).toEqual([75, expect.stringContaining('2 keys disabled: pending')]);
});

test('waits for a control plane that is away', async () => {
  const keys = await make('patient', 2, 'ada');
  await redis.call('CLIENT', 'PAUSE', '3000', 'WRITE');
  expect(await answer('keys disable --api patient --owner ada')).toMatchObject({ disabled: 2 });
  expect(await fleet.verdict(keys[0]?.key ?? '')).toBe('DISABLED');
});
