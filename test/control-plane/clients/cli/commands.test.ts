import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EXITS } from '../../../../control-plane/clients/cli/exit.ts';
import { PRESETS } from '../../../../control-plane/core/callers/root-permissions.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { envOf, type Run, start, useCommandLine } from './keyfence.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { STATUS_PERIOD_MS: '100', USAGE_PERIOD_MS: '1000' } });
});
afterAll(() => fleet.stop());

const commandLine = useCommandLine();
const run = (args: string, env = {}, input?: string): Promise<Run> =>
  commandLine.run(args.split(' '), envOf(fleet, env), input);
/** What people read; the command must end as `status` says. */
const printed = async (args: string, status = 0, env = {}): Promise<string> => {
  const ended = await run(args, env);
  expect(ended, `${args}: ${ended.stderr}`).toMatchObject({ status });
  return ended.stdout;
};
/** The answer as scripts read it; the command must end as `status` says. */
const answer = async (args: string, status = 0, env = {}, input?: string) => {
  const ended = await run(`${args} --json`, env, input);
  expect(ended, `${args}: ${ended.stderr}`).toMatchObject({ status });
  return JSON.parse(ended.stdout);
};

/** The verdict of the command line, once the verifier can decide, which callers must bear. */
const verified = async (key: string, status: number, options: string) => {
  let ended: Run | undefined;
  await fleet.until(async () => {
    ended = await run(`keys verify ${options} --json`, { KEYFENCE_KEY: key });
    return ended.status !== EXITS.UNAVAILABLE[0];
  });
  expect(ended, ended?.stderr).toMatchObject({ status });
  return JSON.parse(ended?.stdout ?? '');
};

describe('keys', () => {
  test('go from creation to deletion', async () => {
    const { keyId, key } = await answer(
      'keys create shop --name Ada --prefix shop --meta {"plan":"pro"} --expires +1h --environment live --ratelimit 100/10s',
    );
    const verify = (status: number) => verified(key, status, '--api shop');
    expect(await verify(0)).toMatchObject({
      valid: true,
      keyId,
      name: 'Ada',
      meta: { plan: 'pro' },
      environment: 'live',
    });
    expect(await answer('keys whoami', 0, {}, `${key}\n`)).toMatchObject({ keyId, name: 'Ada' });
    expect((await answer(`keys disable ${keyId}`)).propagation).toMatchObject({
      state: 'complete',
      by: 'acks',
    });
    expect(await verify(1)).toMatchObject({ valid: false, code: 'DISABLED' });
    await answer(`keys enable ${keyId}`);
    await answer(`keys update ${keyId} --external-id o1 --clear name expires environment`);
    const now = await answer(`keys get ${keyId}`);
    const ratelimit = { limit: 100, duration: 10_000, async: true };
    expect(now).toMatchObject({ enabled: true, externalId: 'o1', meta: { plan: 'pro' }, ratelimit });
    expect(Object.keys(now)).not.toEqual(expect.arrayContaining(['name']));
    expect(now).not.toHaveProperty('expires');
    expect(now).not.toHaveProperty('environment');
    expect((await run(`keys delete ${keyId}`)).stderr).toContain('--yes');
    await answer(`keys delete ${keyId} --yes`);
    expect(await verify(1)).toMatchObject({ code: 'NOT_FOUND' });
    expect(await answer('keys verify', 1, {}, `${key}\n`)).toMatchObject({ code: 'NOT_FOUND' });
  });

  test('go by name or by the start of the secret', async () => {
    const { keyId, key } = await answer('keys create shop --name Zoe-1 --prefix zoe');
    await answer('keys create books --name Zoe-12');
    const start = key.slice(0, 8);
    for (const args of ['get Zoe-1', `get ${start}`, `get ${start}…`, 'explain Zoe-1', 'refusals Zoe-1'])
      expect(await printed(`keys ${args}`), args).toMatch(args.startsWith('ref') ? /^time/ : keyId);
    await printed('keys usage Zoe-1');
    const disabled = await run('keys disable Zoe-1');
    expect(disabled.stdout).toContain(`disabled ${keyId}: complete`);
    expect(disabled.stderr).toContain(`${keyId} is Zoe-1 (${start}…) in shop`);
    expect(await answer('keys enable Zoe-1')).toMatchObject({ keyId, propagation: { state: 'complete' } });
    expect(await answer('keys update Zoe-1 --environment live')).toMatchObject({ keyId });
    expect(await answer('keys permissions Zoe-1 add a')).toMatchObject([{ name: 'a' }]);
    for (const wrong of ['Zoe', 'zoe-1', start.slice(0, 7)])
      expect(await run(`keys disable ${wrong}`), wrong).toMatchObject({
        ...{ status: 1, stdout: '', stderr: expect.stringContaining(`has the name ${wrong}`) },
      });
    const ids = [keyId];
    const listed = async () => (await run('keys disable Zoe-1 --json')).stderr;
    for (let i = 0; i < 10; i++) ids.push((await answer('keys create books --name Zoe-1')).keyId);
    expect(JSON.parse(await listed()).error).toMatchObject({
      ...{
        code: 'USAGE',
        message: expect.stringMatching(/^more than 10 keys are called Zoe-1; give an id:/),
      },
    });
    expect((await listed()).match(/key_\w+ is Zoe-1/g)).toHaveLength(10);
    await answer(`keys delete ${ids.pop()} --yes`);
    expect(await run('keys delete Zoe-1 --yes')).toMatchObject({
      ...{ status: 64, stderr: expect.stringMatching(/^keyfence: 10 keys are called Zoe-1/) },
    });
    const { stderr } = await run('keys get Zoe-1');
    for (const id of ids) expect(stderr).toContain(`\n  ${id} is Zoe-1 (`);
    expect((await answer(`keys get ${keyId}`)).enabled).toBe(true);
    await answer(`keys delete ${keyId} --yes`);
  });

  test('go by their secret on standard input', async () => {
    const { keyId, key } = await answer('keys create shop --disabled --prefix two');
    const line = `10.0.0.1 "GET /v1?key=${key}" 403\n`;
    for (const args of ['enable --secret', 'disable --secret'])
      expect(await answer(`keys ${args}`, 0, {}, line), args).toMatchObject({ keyId });
    expect(await answer('keys explain', 1, {}, line)).toMatchObject({ keyId, code: 'DISABLED' });
    expect(await answer('keys whoami', 0, {}, line)).toMatchObject({ keyId, enabled: false });
    const basic = Buffer.from(`user:${key}`).toString('base64');
    for (const other of [
      `{"msg":"refused\\n${key}"}`,
      `GET /v1?key%3D${key}&a=b`,
      `GET /v1?to=%2Fv1%3Fkey%253D${key}`,
      `\\\\n${key}\\\\n`,
      `C:\\${key}`,
      `authorization: Basic ${basic}`,
      `Authorization%3A%20basic%20${encodeURIComponent(basic)}`,
      key.replaceAll('_', '%5F'),
      `${key} ${key}`,
    ])
      expect(await answer('keys whoami', 0, {}, `${other}\n`), other).toMatchObject({ keyId });
    const two = `${line.trim()} ${generateKey(16, 'other')}\n`;
    for (const args of ['keys disable --secret', 'keys whoami', 'keys explain', 'keys verify', 'keys self'])
      expect(await run(args, {}, two), args).toMatchObject({
        ...{ status: 64, stdout: '' },
        stderr: expect.stringMatching(
          /^keyfence: the line has 2 keys \(two_\w{4}…, other_\w{4}…\): give only/,
        ),
      });
    await answer('keys delete --secret --yes', 0, {}, line);
    expect((await run('keys disable --secret', {}, line)).status).toBe(1);
  });

  test('get, use and lose permissions', async () => {
    const { keyId, key } = await answer('keys create shop --permissions files.write,files.read');
    const asking = (status: number, query: string) => verified(key, status, `--permissions ${query}`);
    expect(await asking(0, 'files.read')).toMatchObject({ permissions: ['files.read', 'files.write'] });
    expect(await asking(1, 'files.delete')).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    await answer(`keys permissions ${keyId} add files.delete`);
    expect(await asking(0, 'files.delete')).toMatchObject({ valid: true });
    await answer(`keys permissions ${keyId} remove files.read,files.write`);
    expect(await answer(`keys get ${keyId}`)).toMatchObject({ permissions: ['files.delete'] });
    expect(await printed(`keys get ${keyId}`)).toMatch(/^permissions +files\.delete$/m);
    await answer(`keys permissions ${keyId} set files.read`);
    expect(await asking(0, 'files.read')).toMatchObject({ valid: true });
    for (const wrong of ['give files.read', 'add', 'remove ,'])
      expect((await run(`keys permissions ${keyId} ${wrong}`)).status).toBe(64);
    await answer(`keys update ${keyId} --clear permissions`);
    expect(await asking(1, 'files.read')).not.toHaveProperty('permissions');
  });

  test('have permissions of a described catalogue', async () => {
    await answer('permissions create cli.read --description Reads');
    await answer('permissions create cli.write --name Write-all');
    const { roleId } = await answer('roles create scribe --permissions cli.read,cli.write');
    expect(await printed('permissions list')).toMatch(/cli\.read +– +Reads\s+cli\.write +Write-all +–/);
    expect((await run('permissions delete cli.write')).stderr).toContain('--yes');
    expect(await printed('permissions delete cli.write --yes')).toContain('deleted cli.write');
    expect(await answer('permissions list')).toHaveLength(1);
    expect((await answer('roles list')).find(({ id }: { id: string }) => id === roleId).permissions).toEqual([
      { id: 'cli.read', name: 'cli.read' },
    ]);
    await answer(`roles delete ${roleId} --yes`);
  });

  test('get, change and lose roles', async () => {
    const { roleId } = await answer('roles create writer --description Writes --permissions files.write');
    const { keyId, key } = await answer('keys create shop --roles writer');
    const asking = (status: number, query: string) => verified(key, status, `--permissions ${query}`);
    expect(await asking(0, 'files.write')).toMatchObject({ roles: ['writer'] });
    await answer(`roles set ${roleId} files.read,files.list`);
    expect(await asking(1, 'files.write')).toMatchObject({ permissions: ['files.list', 'files.read'] });
    expect(await answer('roles list')).toMatchObject([{ id: roleId, name: 'writer', description: 'Writes' }]);
    expect(await printed('roles list')).toMatch(/role_\w+ +writer +files\.list files\.read +Writes/);
    await answer(`keys roles ${keyId} remove writer`);
    expect(await asking(1, 'files.read')).not.toHaveProperty('roles');
    await answer(`keys roles ${keyId} add writer`);
    expect(await printed(`keys get ${keyId}`)).toMatch(/^roles +writer$/m);
    expect((await run(`keys roles ${keyId} add unknown`)).stderr).toContain('there is no role unknown');
    expect((await run(`roles delete ${roleId}`)).stderr).toContain('--yes');
    expect(await answer(`roles delete ${roleId} --yes`)).toMatchObject({
      propagation: { state: 'complete' },
    });
    expect(await asking(1, 'files.read')).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
  });

  test('show limits and plans as people write them', async () => {
    const limits = [
      {
        name: 'calls',
        limit: 1000,
        interval: 'month',
        anchor: { day: 15 },
        autoApply: true,
        per: 'identity',
      },
      { name: 'burst', limit: 5, duration: 90_000, async: false },
    ];
    await commandLine.run(
      [
        'roles',
        'create',
        'pro',
        '--ratelimits',
        JSON.stringify(limits),
        '--concurrency',
        '[{"name":"jobs","limit":3}]',
      ],
      envOf(fleet),
    );
    const plan = 'burst 5/90s exact if asked, calls 1,000/month from day 15 per identity';
    for (const line of ['roles list', 'roles get pro']) {
      const text = await printed(line);
      expect(
        plan.split(', ').filter((part) => !text.includes(part)),
        text,
      ).toEqual([]);
      expect(text).toContain('jobs 3');
    }
    expect(await printed('roles get pro')).toMatch(/^plan +(burst|calls) /m);
    const { keyId, key } = await answer('keys create shop --ratelimit 5000/1h --roles pro');
    expect(await printed(`keys get ${keyId}`)).toMatch(/^ratelimit +5,000\/1h$/m);
    await verified(key, 0, '--cost 0');
    const verdict = await printed('keys verify', 0, { KEYFENCE_KEY: key });
    expect(verdict).toMatch(/^ratelimits .*default 5,000\/1h\b/m);
    expect(verdict).not.toContain('if asked');
    expect(await printed(`keys explain ${keyId}`)).toContain('default of the key: 5,000 an hour, ');
    const own = await printed('keys self', 0, { KEYFENCE_KEY: key, KEYFENCE_ROOT_KEY: '' });
    expect(own).toMatch(/^plan +pro$/m);
    expect(own).toMatch(/^used +.*default \d of 5,000\/1h.* jobs 0 of 3 at once/m);
    await answer('roles delete pro --yes');
  });

  test('stop with their customer and come back', async () => {
    const [shop, books] = [
      await answer('keys create shop --external-id zoe'),
      await answer('keys create books --external-id zoe'),
    ];
    const all = async (status: number) => {
      for (const { key } of [shop, books]) await verified(key, status, '--cost 0');
    };
    await all(0);
    const disabled = await answer('identities disable zoe');
    expect(disabled).toMatchObject({ propagation: { state: 'complete' } });
    expect(await printed('identities credits zoe set 5')).toContain('zoe: 5 credits');
    await answer('identities credits zoe set unlimited');
    await all(1);
    expect(await printed('keys self', 77, { KEYFENCE_KEY: shop.key })).toBe('');
    expect(await printed('keys verify', 1, { KEYFENCE_KEY: shop.key })).toMatch(
      /^identity +\{"id":"identity_\w+"/m,
    );
    const shown = (await run('customers get zoe')).stdout;
    expect(shown).toMatch(/^externalId +zoe$/m);
    expect(shown).toMatch(/^keys +\d/m);
    expect(await answer('identities get zoe')).toMatchObject({ externalId: 'zoe', enabled: false });
    expect((await answer(`keys get ${shop.keyId}`)).identity.externalId).toBe('zoe');
    expect(await printed(`keys get ${shop.keyId}`)).toMatch(/^identity +identity_\w+$/m);
    // Neither the id of the identity nor a name that was mistyped makes another customer.
    const { id } = await answer('identities get zoe');
    for (const wrong of [id, 'zo']) {
      const { status, stderr } = await run(`identities disable ${wrong}`);
      expect([status, stderr]).toEqual([1, expect.stringContaining(`no identity of ${wrong}, and no key`)]);
      expect((await run(`identities get ${wrong}`)).status).toBe(1);
    }
    // What the runbook says that a root key needs for it is enough.
    const permissions = [
      'root.*.update_identity',
      'root.*.create_identity',
      'api.*.read_api',
      'api.*.read_key',
    ];
    const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', { name: 'on call', permissions });
    const onCall = { KEYFENCE_ROOT_KEY: rootKey };
    await answer('keys create shop --external-id yan');
    expect(await answer('identities disable yan', 0, onCall)).toMatchObject({
      propagation: { state: 'complete' },
    });
    expect((await run('identities disable yam', onCall)).status).toBe(1);
    expect((await run('identities delete zoe --yes')).stderr).toContain('is disabled');
    await answer('identities enable zoe');
    await all(0);
    await answer('identities update zoe --meta {"plan":"pro"}');
    expect(await printed('customers get zoe')).toMatch(/meta +\{"plan":"pro"\}/);
    expect((await run('identities delete zoe')).stderr).toContain('--yes');
    await answer('identities delete zoe --yes');
    await all(0);
    await answer('identities create abe --disabled');
    expect(await printed('identities list')).toMatch(/identity_\w+ +disabled +abe/);
    expect((await run('identities get zoe')).status).toBe(1);
  });

  test('spend, refill and add credits', async () => {
    const { keyId, key } = await answer('keys create shop --remaining 3 --refill monthly:10:15');
    expect(await answer(`keys get ${keyId}`)).toMatchObject({
      remaining: 3,
      refill: { interval: 'monthly', amount: 10, refillDay: 15 },
    });
    expect(await printed(`keys get ${keyId}`)).toMatch(/refill +10 monthly on day 15/);
    const verify = (status: number, cost: number) => verified(key, status, `--api shop --cost ${cost}`);
    await answer(`keys credits ${keyId} set 5`);
    expect(await verify(0, 4)).toMatchObject({ valid: true, remaining: 1 });
    expect(await verify(1, 2)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 1 });
    const increased = await answer(`keys credits ${keyId} increment 2`);
    expect(increased).toMatchObject({ remaining: 3, propagation: { state: 'complete' } });
    expect(await printed(`keys credits ${keyId} decrement 9`)).toContain(`${keyId}: 0 credits`);
    expect(await answer(`keys credits ${keyId} set unlimited`)).toMatchObject({ remaining: null });
    expect(await answer(`keys get ${keyId}`)).not.toHaveProperty('remaining');
    await answer(`keys update ${keyId} --remaining 7 --refill daily:9`);
    await answer(`keys update ${keyId} --clear refill`);
    const now = await answer(`keys get ${keyId}`);
    expect(now).toMatchObject({ remaining: 7 });
    expect(now).not.toHaveProperty('refill');
    await answer(`keys update ${keyId} --clear remaining`);
    expect(await answer(`keys get ${keyId}`)).not.toHaveProperty('remaining');
    expect((await run(`keys credits ${keyId} take 1`)).stderr).toContain('set, increment, decrement');
    expect((await run(`keys credits ${keyId} increment unlimited`)).stderr).toContain('credits: ');
    expect((await run('keys create shop --remaining 1 --refill daily:1:2')).stderr).toContain('monthly');
  });

  test('reroll once, ending the old one now or later', async () => {
    const { keyId, key } = await answer('keys create shop --name Ada');
    const made = await answer(`keys reroll ${keyId} --expiration 12h`);
    expect(made).toMatchObject({ propagation: { state: 'complete' }, endsAt: expect.any(Number) });
    expect([await fleet.verdict(key), await fleet.verdict(made.key)]).toEqual(['VALID', 'VALID']);
    expect(await answer(`keys get ${keyId}`)).toMatchObject({ rerolledTo: made.keyId });
    expect((await run(`keys get ${made.keyId}`)).stdout).toMatch(new RegExp(`rerolledFrom +${keyId}`));
    expect((await run(`keys reroll ${keyId} --expiration 0`)).stderr).toContain(`into ${made.keyId}`);
    const told = await run(`keys reroll ${made.keyId} --expiration 0`);
    expect(told.stdout).toMatch(new RegExp(`${made.keyId} +refused\nrerolled ${made.keyId}: complete`));
    expect(told.stderr).toContain('cannot be shown again');
    expect(await fleet.verdict(made.key)).toBe('EXPIRED');
    const off = await answer('keys create shop --disabled');
    const both = await printed(`keys reroll ${off.keyId} --expiration 12h`);
    expect(both).toMatch(new RegExp(`^${off.keyId} +ends at 20\\S+Z$`, 'm'));
    expect(both).toContain(`rerolled ${off.keyId}; both keys are disabled: complete`);
    const paid = await answer('keys create rerolled --remaining 9 --refill daily:9');
    const latest = await answer(`keys reroll ${paid.keyId} --expiration 90m`);
    const exported = (await run('keys export rerolled')).stdout.trim().split('\n');
    expect(exported.map((line) => JSON.parse(line))).toEqual([
      expect.objectContaining({ keyId: paid.keyId, remaining: 0 }),
      expect.objectContaining({
        keyId: latest.keyId,
        remaining: 9,
        refill: { interval: 'daily', amount: 9 },
      }),
    ]);
    expect((await run(`keys rotate ${keyId}`)).stderr).toContain(
      'say for how long the old key still works, as in: keyfence keys reroll key_0mzc9k4q8r2wfXa1Bc2d --expiration 12h',
    );
    expect(await answer(`keys rotate ${latest.keyId} --grace 12h`)).toMatchObject({
      endsAt: expect.any(Number),
    });
    expect((await run('keys get')).stderr).toContain("'key', as in: keyfence keys get key_");
    expect((await run(`keys reroll ${keyId} --expiration soon`)).stderr).toContain('0, 90m, 12h or 30d');
  });

  test('refuse malformed Unicode, naming the field', async () => {
    const { status, stderr } = await run('keys create shop --meta {"owner":"\\ud800"}');
    expect(status).not.toBe(0);
    expect(stderr).toContain('meta: must be well-formed Unicode');
  });

  test('show when and how often they were used', async () => {
    const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'used' });
    await fleet.verdict(key);
    await fleet.until(async () => (await fleet.ok('keys.getKey', { keyId })).lastUsedAt !== undefined);
    expect(await answer(`keys get ${keyId}`)).toHaveProperty('lastUsedAt');
    expect((await answer(`keys usage ${keyId}`)).verifications.at(-1)).toMatchObject({
      success: 1,
      disabled: 0,
    });
    expect(await printed(`keys usage ${keyId} --hourly`)).toMatch(/^from +accepted\n20\S+:00:00.000Z +1\n$/);
  });

  test('that were never verified have no usage', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'used' });
    expect(await printed(`keys usage ${keyId}`)).toBe('No verification is counted in the last 31 days.\n');
    expect(await printed('apis usage used --minutes')).toMatch(/^from |last 60 minutes/);
  });

  test('show their state and what they may do', async () => {
    const { keyId } = await answer('keys create shown --permissions b,a');
    await answer(`keys disable ${keyId}`);
    const text = await printed(`keys get ${keyId}`);
    expect(text).toMatch(/^state +disabled$/m);
    expect(text).toMatch(/^effectivePermissions +a b$/m);
  });

  test('show the usage of an API, with its tags', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'tagged' });
    await fleet.verdict(key);
    const url = `${fleet.verifiers[0]?.address}/v1/keys.verifyKey`;
    await fleet.post(url, { key, tags: ['read'] });
    await fleet.until(async () => (await printed('apis usage tagged --by-tag')).includes('read'));
    // Counts of different kinds lie at different places, and come one after another.
    await fleet.until(async () => / 2\n/.test(await printed('apis usage tagged --hourly')));
    expect(await printed('apis usage tagged --by-tag')).toMatch(/^tag +accepted\nread +1\n$/);
    expect(await printed('apis usage tagged --tag read')).toMatch(/^from +accepted\n20\S+ +1\n$/);
    expect(await printed('apis usage tagged --hourly')).toMatch(/^from +accepted\n20\S+ +2\n$/);
    await fleet.verify(key, { authorization: { permissions: 'none' } });
    const refused = /^from +accepted +permissions\n20\S+ +2 +1\n$/;
    await fleet.until(async () => refused.test(await printed('apis usage tagged --hourly')));
  });

  test('are listed up to the limit, with a cursor', async () => {
    for (let i = 0; i < 5; i++) await fleet.ok('keys.createKey', { apiId: 'listed', name: `n${i}` });
    const first = await answer('keys list listed --limit 2');
    expect(first).toMatchObject({ total: 5, cursor: expect.any(String) });
    const rest = await answer(`keys list listed --cursor ${first.cursor}`);
    expect(rest).not.toHaveProperty('cursor');
    expect([...first.keys, ...rest.keys].map(({ name }) => name)).toEqual(['n0', 'n1', 'n2', 'n3', 'n4']);
    expect((await answer('keys list listed --newest --limit 1')).keys[0].name).toBe('n4');
    expect((await answer('keys list listed --sort -name --limit 1')).keys[0].name).toBe('n4');
    expect((await run('keys list listed --sort size')).stderr).toContain('lastUsedAt');
    expect((await run('keys list listed --sort name --newest')).status).not.toBe(0);
    expect((await answer('keys list listed --disabled')).keys).toEqual([]);
    const { stdout, stderr } = await run('keys list listed --limit 2');
    expect(stdout.split('\n')[0]).toMatch(/^keyId +start +state/);
    expect(stdout.trim().split('\n')).toHaveLength(3);
    expect(stderr).toContain(`--cursor ${first.cursor}`);
  });

  test('a pending disable has its own exit status', async () => {
    const redis = new Redis(fleet.redisUrl);
    const keyWithLaggard = async (apiId: string): Promise<string> => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId });
      await redis.zadd(apiKeys(apiId).members, 0, 'crashed'); // a verifier that will never confirm anything
      return keyId;
    };
    const keyId = await keyWithLaggard('slow');
    const pending = await run(`keys disable ${keyId} --wait 0`);
    expect(pending.status).toBe(75);
    expect(pending.stdout).toContain('pending, change 1');
    const looked = await run(`keys propagation ${keyId} 1`);
    expect(looked.status).toBe(75);
    expect(looked.stdout).toContain('crashed');
    const propagation = () => fleet.ok('keys.getPropagation', { keyId, sequence: '1' });
    await fleet.until(async () => (await propagation()).propagation.state === 'complete');
    expect((await run(`keys propagation ${keyId} 1`)).status).toBe(0);

    const fenced = await run(`keys disable ${await keyWithLaggard('waited-for')}`);
    expect(fenced.status).toBe(0);
    expect(fenced.stdout).toContain('for the leases of those that did not confirm');
    redis.disconnect();
  });
});

test('APIs are made, shown, listed and deleted', async () => {
  const made = await answer('apis create Garden --id garden');
  expect(made).toEqual({ apiId: 'garden', name: 'Garden', server: fleet.controlPlanes[0]?.address });
  expect(await answer('apis get garden')).toMatchObject({ id: 'garden', name: 'Garden' });
  const options = '--default-prefix rose --default-bytes 32';
  expect(await answer(`apis create Roses --id roses ${options}`)).toMatchObject({ defaultPrefix: 'rose' });
  await answer('apis update roses --name Rosarium --default-bytes 24');
  const roses = { name: 'Rosarium', defaultPrefix: 'rose', defaultBytes: 24 };
  expect(await answer('apis get roses')).toMatchObject(roses);
  await answer('apis update roses --name My.Roses --max-lifetime 90d');
  expect((await run('apis get My.Roses')).stdout).toMatch(/^maxLifetime +90 days$/m);
  await answer('apis update roses --clear maxLifetimeMs');
  expect((await answer('keys create roses')).key).toMatch(/^rose_\w{39}$/);
  await answer('apis update roses --clear defaultPrefix defaultBytes');
  expect(await answer('apis get roses')).not.toHaveProperty('defaultBytes');
  expect((await run('apis update roses')).status).toBe(64);
  expect(await printed('apis list')).toMatch(/^garden +20\S+Z +Garden$/m);
  expect((await run('apis create Garden --id garden')).status).toBe(1);
  expect((await answer('apis delete garden --yes')).propagation.state).toBe('complete');
  expect((await run('apis get garden')).status).toBe(1);
});

test('a root key acts until it is disabled', async () => {
  const made = await answer('root-keys create reader --permission api.*.read_api root.*.read_root_key');
  const env = { KEYFENCE_ROOT_KEY: made.key };
  await answer('apis list', 0, env);
  expect((await run('keys create shop', env)).status).toBe(77);
  await answer(`root-keys disable ${made.rootKeyId}`);
  expect((await run('apis list', env)).status).toBe(77);
  await answer(`root-keys enable ${made.rootKeyId}`);
  expect(await printed('root-keys list', 0, env)).toMatch(
    new RegExp(`^${made.rootKeyId} +enabled .* reader +api`, 'm'),
  );
});

test('shows every verifier and its verdicts', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'seen' });
  await fleet.verdict(key);
  await fleet.until(async () => (await fleet.ok('fleet.listVerifiers')).verifiers.length === 1);
  expect((await answer('fleet')).verifiers).toHaveLength(1);
  const { stdout } = await run('fleet');
  expect(stdout).toMatch(/^verifier +host +version/);
  expect(stdout).toMatch(/^verifier_\S+ /m);
});

test('shows the audit log since a past moment', async () => {
  const { keyId } = await answer('keys create since');
  const since = async (text: string) => (await answer(`audit --since ${text} --key ${keyId}`)).events.length;
  expect(await since('-90m')).toBe(1);
  for (const time of ['90m', '1d', 'yesterday']) expect(await since(time), time).toBe(1);
  expect(await since('-1d')).toBe(1);
  for (const text of ['+90m', '2999-01-01', '-90', 'tomorrow']) {
    const { status, stderr } = await run(`audit --since ${text}`);
    expect(status, text).toBe(64);
    expect(stderr).toContain('-90m, -12h or -30d');
  }
});

test('repeats a given time with its zone', async () => {
  const told = await run('keys create told --expires 2030-12-31', { TZ: 'America/New_York' });
  expect(told.status).toBe(0);
  expect(told.stderr).toMatch(/^--expires: 2031-01-01T00:00:00[+-]\d\d:\d\d \(\S+\)$/m);
  expect((await run('keys create told --expires 2030-12-31 --json')).stderr).toBe('');
  const { status, stderr } = await run('keys create told --expires 2030-02-31');
  expect({ status, stderr }).toMatchObject({
    status: 64,
    stderr: expect.stringContaining('There is no such time'),
  });
});

test('shows who did what and what was refused', async () => {
  const { keyId } = await answer('keys create audited');
  await answer(`keys disable ${keyId}`);
  const [disabled, created] = (await answer(`audit --key ${keyId}`)).events;
  expect(disabled).toMatchObject({
    operation: 'keys.updateKey',
    before: { enabled: true },
    after: { enabled: false },
  });
  expect(created).toMatchObject({ operation: 'keys.createKey' });
  expect(await printed(`audit --key ${keyId}`)).toContain('{"enabled":true} → {"enabled":false}');
  await run('keys get key_unknown', { KEYFENCE_ROOT_KEY: 'nobody' });
  expect((await answer('audit --refused --limit 1')).events[0]).toMatchObject({ outcome: 'UNAUTHORIZED' });
});

describe('a text in place of an API', () => {
  test('finds keys in all APIs', async () => {
    const found: string[] = [];
    for (const [apiId, fields] of [
      ['finds', { name: 'Zoë – Wayne CI' }],
      ['finds-2', { name: 'Batch', externalId: 'wayne-enterprises' }],
    ] as const)
      found.push((await fleet.ok('keys.createKey', { apiId, ...fields })).keyId);
    const { keys } = await answer('keys ls wayne');
    expect(keys.map(({ keyId }: { keyId: string }) => keyId)).toEqual(found);
    expect((await answer('keys ls zoë')).keys).toMatchObject([{ keyId: found[0] }]);
    expect((await run('keys ls wayne --state disabled')).status).toBe(1);
  });

  test('that no key has is told with the counts', async () => {
    const { status, stderr } = await run('keys ls nobody-at-all');
    expect(status).toBe(1);
    expect(stderr).toMatch(/^keyfence: no key matches nobody-at-all; \d.* in /);
    const permissions = ['api.*.read_api', 'api.nobody-at-all.read_key'];
    const { key } = await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions });
    expect((await run('keys ls nobody-at-all', { KEYFENCE_ROOT_KEY: key })).stderr).toBe(
      'keyfence: no key matches nobody-at-all; the root key may list the keys of no API\n',
    );
    expect((await run('keys ls shop --search nobody')).stderr).toMatch(/^None of \d+ keys of shop\./m);
  });
});

test('roles are given by name too', async () => {
  await answer('roles create night-shift --permissions doors.open');
  await answer('roles set night-shift doors.open,doors.close');
  expect(await printed('roles get night-shift')).toMatch(/doors\.close doors\.open|doors\.open doors\.close/);
  const { status, stderr } = await run('roles get day-shift');
  expect([status, stderr]).toEqual([1, 'keyfence: there is no role day-shift\n']);
  await answer('roles delete night-shift --yes');
});

test('endpoints are given by name too', async () => {
  const webhook = (...args: string[]) => commandLine.run(['webhooks', ...args], envOf(fleet));
  await webhook('create', 'https://127.0.0.1.invalid/hook', '--name', 'CRM sync');
  const { keyId } = await answer('keys create shop');
  const listed = async () => (await webhook('deliveries', 'CRM sync')).stdout;
  await fleet.until(async () => (await listed()).includes(`  ${keyId}\n`));
  expect(await listed()).toMatch(/^time +deliveryId +type +result +attempt +answer +next +on\n/);
  expect(await listed()).not.toContain('{');
  expect(await webhook('deliveries', 'CRM')).toMatchObject({
    ...{ status: 1, stderr: 'keyfence: there is no endpoint CRM\n' },
  });
  await webhook('create', 'https://127.0.0.1.invalid/other', '--name', 'CRM sync');
  const { status, stderr } = await webhook('disable', 'CRM sync');
  expect([status, stderr]).toEqual([64, 'keyfence: several endpoints have the name CRM sync: give an id\n']);
});

test('a root key is made from a preset', async () => {
  const { rootKeyId } = await answer('root-keys create reader --preset read-only');
  const { rootKeys } = await answer('root-keys list');
  const made = rootKeys.find((each: { rootKeyId: string }) => each.rootKeyId === rootKeyId);
  expect(made.permissions.toSorted()).toEqual([...(PRESETS['read-only']?.permissions ?? [])].sort());
  expect((await run('root-keys create reader')).stderr).toContain('give --permission or --preset');
  expect((await run('root-keys create reader --preset ci --permission *')).status).toBe(64);
});

describe('errors', () => {
  test.each([
    ['there is no such key', 'keys get key_none', {}, 1],
    ['an unknown option', 'keys get key_none --all', {}, 64],
    ['a value that is out of range', 'keys create shop --byte-length 15', {}, 64],
    ['a value that the server refuses', 'keys create shop --prefix no-dashes', {}, 64],
    ['nothing to change', 'keys update key_none', {}, 64],
    ['nobody is there', 'apis list', { KEYFENCE_URL: 'http://127.0.0.1:2' }, 69],
    ['an unknown root key', 'apis list', { KEYFENCE_ROOT_KEY: 'unknown' }, 77],
    ['no root key', 'apis list', { KEYFENCE_ROOT_KEY: '' }, 77],
    ['a URL that is none', 'apis list', { KEYFENCE_URL: 'nowhere' }, 78],
  ])('%s has its exit status and no standard output', async (_, args, env, status) => {
    const ended = await start(args.split(' '), envOf(fleet, env)).ended;
    expect(ended).toMatchObject({ status, stdout: '' });
    expect(ended.stderr).not.toBe('');
    expect(ended.stderr).not.toMatch(/\n\s+at /);
  });

  test('are JSON with code and request id for scripts', async () => {
    const { stderr } = await run('keys get key_none --json');
    expect(JSON.parse(stderr)).toEqual({
      error: { code: 'NOT_FOUND', message: 'key key_none not found', requestId: expect.any(String) },
    });
  });

  test('of the line are JSON where it asks for it', async () => {
    for (const [line, message] of [
      ['keys get key_none --al --json', "unknown option '--al'"],
      ['--json keys credits key_none take 1', 'set, increment, decrement'],
      ['keys lst --json', 'Did you mean one of list, ls'],
    ] as const) {
      const { status, stderr } = await run(line);
      const error = { code: 'USAGE', message: expect.stringContaining(message) };
      expect([status, JSON.parse(stderr)], line).toEqual([64, { error }]);
    }
  });

  test('of settings are JSON where it asks for it', async () => {
    for (const line of ['apis list --json', 'doctor --json']) {
      const { status, stderr } = await run(line, { KEYFENCE_URL: 'nonsense' });
      const message = expect.stringContaining('KEYFENCE_URL: is not allowed');
      expect([status, JSON.parse(stderr)]).toEqual([78, { error: { code: 'CONFIG', message } }]);
    }
  });

  test('name a stranger that listens there', async () => {
    const { status, stderr } = await run('apis list', { KEYFENCE_URL: fleet.verifiers[0]?.adminAddress });
    expect(status).toBe(78);
    expect(stderr).toContain('not as a control plane does');
  });
});

describe('secrets', () => {
  test('refuse a KEYFENCE_URL of the wrong process', async () => {
    const [controlPlane, verifier] = [
      fleet.controlPlanes[0]?.address ?? '',
      fleet.verifiers[0]?.address ?? '',
    ];
    for (const command of ['keys get key_x', 'keys list nowhere', 'apis list', 'keys disable key_x']) {
      const { status, stderr } = await run(command, { KEYFENCE_URL: verifier });
      expect(status, command).toBe(78);
      expect(stderr).toContain(
        `${verifier} is not a control plane; it answers as a verifier does: set KEYFENCE_URL to`,
      );
    }
    const { status, stderr } = await run('keys verify', {
      KEYFENCE_VERIFIER_URL: controlPlane,
      KEYFENCE_KEY: 'a',
    });
    expect(status).toBe(78);
    expect(stderr).toContain(
      'is not a verifier; it answers as a control plane does: set KEYFENCE_VERIFIER_URL to',
    );
    expect((await run('keys get key_x')).status).toBe(1);
  });

  test('come from the first line of a file', async () => {
    const file = join(fleet.directory, 'root-key');
    writeFileSync(file, `${ROOT_KEY}\nan-older-one\n`);
    await answer('apis list', 0, { KEYFENCE_ROOT_KEY: '', KEYFENCE_ROOT_KEY_FILE: file });
  });

  test('are refused as arguments and not repeated', async () => {
    const key = generateKey(16, 'shop');
    for (const args of [
      `keys get ${key}`,
      `keys get x --root-key=${key}`,
      `keys verify ${key}`,
      `keys self ${key}`,
    ]) {
      const { status, stdout, stderr } = await run(args);
      expect(status, args).toBe(64);
      expect(stdout + stderr, args).not.toContain(key);
    }
  });
});

test("a key's name cannot drive the terminal", async () => {
  const name = '\u001b[2Jgone\u009b31m\u202etxt';
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'odd', name });
  for (const args of [`keys get ${keyId}`, 'keys list odd', `keys get ${keyId} --json`]) {
    const { stdout } = await run(args);
    expect(stdout).toContain('gone');
    for (const character of ['\u001b', '\u009b', '\u202e']) expect(stdout).not.toContain(character);
  }
  expect((await answer(`keys get ${keyId}`)).name).toBe(name);
});

test('ends quietly when its reader has enough', async () => {
  for (let i = 0; i < 3; i++) await fleet.ok('keys.createKey', { apiId: 'piped' });
  const { child, ended } = start(['keys', 'export', 'piped'], envOf(fleet));
  child.stdout?.destroy();
  expect(await ended).toMatchObject({ status: 0, stderr: '' });
});
