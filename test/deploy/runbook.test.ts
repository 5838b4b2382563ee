import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { request } from 'undici';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { operations } from '../../control-plane/operations.ts';
import { operationsV2 } from '../../control-plane/unkey-v2/index.ts';
import { refusedSince } from '../../deploy/refused-since.ts';
import { KEY_FIELDS } from '../../shared/protocol/records/key-record.ts';
import { ERRORS } from '../../shared/rules/errors.ts';
import { Balancer, noBalancer } from '../harness/balancer.ts';
import { bareEnv, SHELLS } from '../harness/bare-machine.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { Load } from '../harness/load.ts';
import { Process } from '../harness/processes.ts';
import { RedisNode } from '../harness/redis-nodes.ts';
import { PATIENT as POD_PATIENT, type RedisPod, RedisPods } from './redis-pods.ts';

const DEPLOY = join(import.meta.dirname, '../../deploy');
/** So long that no call fails when a shared machine stalls for seconds. */
const PATIENT = {
  LEASE_MS: '30000',
  LOOKUP_WAIT_MS: '10000',
};
const PAGES = ['README', 'operations', 'incidents', 'monitoring', 'alerts'];
const runbook = PAGES.map((page) => readFileSync(join(DEPLOY, `${page}.md`), 'utf8')).join('\n');
/** The shell commands of a section, block by block, as they are written. */
const blocksOf = (heading: string) => {
  const section = runbook.split(/^#+ /m).find((text) => text.startsWith(`${heading}\n`)) ?? '';
  return [...section.matchAll(/^ *```sh\n([\s\S]*?)^ *```/gm)].map(([, block = '']) => block);
};
const commandsOf = (heading: string) => blocksOf(heading)[0] ?? '';
/** Runs such commands as somebody would on a machine that has only what the page asks for, in each of its shells. */
function runEverywhere(commands: string, env: NodeJS.ProcessEnv): string[] {
  return SHELLS.filter(({ missing }) => !missing).map(({ name, options }) =>
    execFileSync(name, [...options, commands], {
      cwd: join(DEPLOY, '..'),
      encoding: 'utf8',
      env: bareEnv(env),
      stdio: 'pipe',
    }),
  );
}

describe('the runbook', () => {
  test('quotes log lines that processes write', () => {
    const quoted = [...runbook.matchAll(/`((?:an?|no|this|unhandled|webhooks are) [^`]+)`/g)];
    const lines = new Set(quoted.map(([, line = '']) => line.replace(/\s+/g, ' ')));
    expect(lines.size).toBeGreaterThan(6);
    const files = globSync('{control-plane,verifier,shared}/**/*.ts', { cwd: join(DEPLOY, '..') });
    const code = files.map((file) => readFileSync(join(DEPLOY, '..', file), 'utf8')).join('\n');
    expect([...lines].filter((line) => !code.includes(line))).toEqual([]);
  });

  test('says of every alert, by its runbook_url and in the order of the alphabet, what to do, and of no other', () => {
    const alerts = readFileSync(join(DEPLOY, 'monitoring/alerts.yaml'), 'utf8');
    const rules = [...alerts.matchAll(/- alert: (\w+)(?:(?!- alert:)[\s\S])*?runbook_url: (\S+)/g)];
    const page = readFileSync(join(DEPLOY, 'alerts.md'), 'utf8');
    const sections = [...page.matchAll(/^## (Keyfence\w+)\n(?=.{40,})/gm)].map(([, name = '']) => name);
    expect(sections.length).toBeGreaterThan(30);
    expect(sections).toEqual(sections.toSorted());
    expect(rules.map(([, name, url]) => [name, url]).sort()).toEqual(
      sections.map((name) => [name, `deploy/alerts.md#${name.toLowerCase()}`]),
    );
    expect(alerts.match(/- alert: /g)).toHaveLength(sections.length);
  });

  test('has a command that makes the address of each runbook', () => {
    const [command = ''] = commandsOf('Alerts').split(' >');
    for (const rules of runEverywhere(command, { PAGES: 'https://wiki.example/keyfence' })) {
      const urls = rules.match(/runbook_url: .*/g) ?? [];
      expect(urls.length).toBeGreaterThan(30);
      for (const url of urls)
        expect(url).toMatch(/^runbook_url: https:\/\/wiki\.example\/keyfence\/alerts\.md#keyfence\w+$/);
    }
  });

  test('names only settings and errors that exist', () => {
    const pages = ['settings.md', 'metrics.md'].flatMap((page) => [
      `control-plane/${page}`,
      `verifier/${page}`,
    ]);
    pages.push('shared/settings.md', 'deploy/redis/README.md');
    const known = pages.map((page) => readFileSync(join(DEPLOY, '..', page), 'utf8'));
    known.push(...Object.keys(ERRORS).map((code) => `\`${code}\``));
    const named = new Set(runbook.match(/`(?:[A-Z]+_[A-Z_]+|keyfence_\w+)`/g));
    expect(named.size).toBeGreaterThan(10);
    expect([...named].filter((name) => !known.some((text) => text.includes(name)))).toEqual([]);
  });
});

test('the logs say last what a restore must refuse', async () => {
  const line = (time: number, operation: string, on: object, after?: object, outcome = 'OK') =>
    JSON.stringify({
      level: 30,
      audit: { time, operation, outcome, on, ...(after ? { after } : {}) },
      msg: 'audit',
    });
  const off = { enabled: false };
  const on = { enabled: true };
  const lines = [
    line(-300_000, 'keys.updateKey', { keyId: 'key_before', apiId: 'a' }, off),
    line(9, 'keys.updateKey', { keyId: 'key_under_way', apiId: 'a' }, off),
    line(11, 'keys.createKey', { keyId: 'key_new', apiId: 'a' }, off),
    line(12, 'keys.updateKey', { keyId: 'key_off', apiId: 'a' }, off),
    line(14, 'keys.updateKey', { keyId: 'key_again', apiId: 'a' }, on),
    line(13, 'keys.updateKey', { keyId: 'key_again', apiId: 'a' }, off),
    line(15, 'keys.updateKey', { keyId: 'key_off', apiId: 'a' }, { name: 'x' }),
    line(16, 'keys.deleteKey', { keyId: 'key_gone', apiId: 'a' }),
    line(17, 'keys.updateKey', { keyId: 'key_refused' }, off, 'INSUFFICIENT_PERMISSIONS'),
    line(18, 'keys.updateKey', { keyId: 'key_unknown' }, off, 'SERVICE_UNAVAILABLE'),
    line(19, 'apis.deleteApi', { apiId: 'b' }),
    line(20, 'rootKeys.updateRootKey', { rootKeyId: 'root_1' }, off),
    line(21, 'keys.updateKeys', { keyId: 'key_many_1', apiId: 'a' }, off),
    line(21, 'keys.updateKeys', { keyId: 'key_many_2', apiId: 'a' }, off),
    line(21, 'keys.updateKeys', { keyId: 'key_many_3', apiId: 'a' }, off, 'SERVICE_UNAVAILABLE'),
    line(21, 'keys.updateKeys', { apiId: 'a', externalId: 'ada' }, { ...off, updated: 2 }),
    line(22, 'keys.updateKey', { keyId: 'key_many_2', apiId: 'a' }, on),
    line(23, 'keys.deleteKeys', { keyId: 'key_many_4', apiId: 'a' }),
    line(23, 'keys.deleteKeys', { apiId: 'a' }, { deleted: 1 }),
    line(24, 'apis.deleteKeys', { keyId: 'key_all', apiId: 'c' }),
    line(24, 'apis.deleteKeys', { apiId: 'c' }, { deleted: 1 }),
    line(25, 'leaks.report', { keyId: 'key_leaked', apiId: 'a' }, { ...off, leak: {} }),
    line(25, 'leaks.report', { keyId: 'key_only_told', apiId: 'a' }, { leak: {} }),
    line(25, 'leaks.report', { rootKeyId: 'root_leaked' }, { ...off, leak: {} }),
    line(26, 'rules.disableUnused', { keyId: 'key_unused', apiId: 'a' }, { ...off, unused: {} }),
    'not JSON',
    '{"cut',
  ];
  expect(await refusedSince(Readable.from(lines), 10)).toEqual([
    'keys.updateKey {"keyId":"key_under_way","enabled":false}',
    'keys.updateKey {"keyId":"key_off","enabled":false}',
    'keys.deleteKey {"keyId":"key_gone"}',
    'keys.updateKey {"keyId":"key_unknown","enabled":false}',
    'keys.updateKey {"keyId":"key_many_1","enabled":false}',
    'keys.updateKey {"keyId":"key_many_3","enabled":false}',
    'keys.deleteKey {"keyId":"key_many_4"}',
    'keys.deleteKey {"keyId":"key_all"}',
    'keys.updateKey {"keyId":"key_leaked","enabled":false}',
    'keys.updateKey {"keyId":"key_unused","enabled":false}',
    'rootKeys.updateRootKey {"rootKeyId":"root_1","enabled":false}',
    'rootKeys.updateRootKey {"rootKeyId":"root_leaked","enabled":false}',
    'apis.deleteApi {"apiId":"b"}',
  ]);
});

/** One line of a control plane's log, about a call that arrived after `since` 10. */
const auditLine = (operation: string, on: object, effect: object = {}, sequence?: number, outcome = 'OK') =>
  JSON.stringify({ audit: { time: 20 + (sequence ?? 0), operation, outcome, on, sequence, ...effect } });
const listedSince = (...lines: readonly string[]) => refusedSince(Readable.from(lines), 10);

test('a restore lists all that narrows access', async () => {
  const after = (fields: object) => ({ after: fields });
  const listed = await listedSince(
    // The customer had no identity, or had one; was enabled again; was deleted; was deleted and made again.
    auditLine(
      'identities.createIdentity',
      { identityId: 'identity_1', externalId: 'c9' },
      after({ enabled: false, ratelimits: null }),
      1,
    ),
    auditLine('identities.updateIdentity', { identityId: 'identity_2' }, after({ enabled: false }), 2),
    auditLine('identities.updateIdentity', { identityId: 'identity_3' }, after({ enabled: false }), 3),
    auditLine('identities.updateIdentity', { identityId: 'identity_3' }, after({ enabled: true }), 4),
    auditLine('identities.deleteIdentity', { identityId: 'identity_4' }, {}, 5),
    auditLine('identities.deleteIdentity', { identityId: 'identity_5' }, {}, 6),
    auditLine(
      'identities.createIdentity',
      { identityId: 'identity_5', externalId: 'c5' },
      after({ enabled: true, concurrency: [{ name: 'jobs', limit: 1 }] }),
      7,
    ),
    auditLine(
      'identities.updateCredits',
      { identityId: 'identity_2' },
      after({ credits: { op: 'increment', value: 5 } }),
      8,
    ),
    auditLine(
      'identities.updateCredits',
      { identityId: 'identity_2' },
      after({ credits: { op: 'set', value: 0 } }),
      9,
    ),
    // Roles: one lost a permission and got a limit, one was made, one deleted.
    auditLine('permissions.setRolePermissions', { roleId: 'role_1' }, after({ permissions: ['a', 'b'] }), 10),
    auditLine('permissions.setRolePermissions', { roleId: 'role_1' }, after({ permissions: ['a'] }), 11),
    auditLine('permissions.setRoleLimits', { roleId: 'role_1' }, after({ ratelimits: null }), 12),
    auditLine('permissions.createRole', { roleId: 'role_2' }, after({ name: 'new', permissions: null })),
    auditLine(
      'permissions.setRoleLimits',
      { roleId: 'role_2' },
      after({ concurrency: [{ name: 'j', limit: 2 }] }),
      13,
    ),
    auditLine('permissions.deleteRole', { roleId: 'role_3' }, {}, 14),
    auditLine('permissions.deletePermission', { permissionId: 'b' }, after({ roles: ['role_1'] }), 15),
    auditLine('keys.removeRoles', { keyId: 'key_1' }, after({ roles: ['role_1', 'role_2', 'role_3'] }), 16),
    auditLine('keys.removePermissions', { keyId: 'key_1' }, after({ permissions: null }), 17),
    auditLine(
      'keys.updateKey',
      { keyId: 'key_1' },
      after({
        allowedIps: ['192.0.2.1'],
        allowedOrigins: ['https://a.example'],
        ratelimit: { limit: 1, duration: 1000 },
      }),
      18,
    ),
    auditLine('keys.rerollKey', { keyId: 'key_2' }, after({ expires: 99, rerolledTo: 'key_3' }), 19),
    auditLine('rootKeys.endSession', { rootKeyId: 'root_1' }, after({ sessionId: 'session_1' })),
    auditLine(
      'ratelimit.setOverride',
      {},
      after({ namespace: 'n', identifier: 'i', limit: 9, duration: 1 }),
      20,
    ),
    auditLine(
      'ratelimit.setOverride',
      {},
      after({ namespace: 'n', identifier: 'i', limit: 3, duration: 1 }),
      21,
    ),
    auditLine('apis.updateApi', { apiId: 'a' }, after({ maxLifetimeMs: 60_000 })),
    auditLine('webhooks.deleteEndpoint', { endpointId: 'endpoint_1' }),
  );
  expect(listed).toEqual([
    'permissions.setRolePermissions {"roleId":"role_1","permissions":["a"]}',
    'permissions.setRoleLimits {"roleId":"role_1","ratelimits":[]}',
    'permissions.createRole {"name":"new","concurrency":[{"name":"j","limit":2}]}',
    'permissions.setRoleLimits {"roleId":"role_2","concurrency":[{"name":"j","limit":2}]}',
    'permissions.deleteRole {"roleId":"role_3"}',
    'identities.createIdentity {"externalId":"c9","enabled":false}',
    'identities.updateIdentity {"identityId":"identity_1","enabled":false}',
    'identities.updateIdentity {"identityId":"identity_2","enabled":false}',
    'identities.updateCredits {"identityId":"identity_2","op":"set","value":0}',
    'identities.deleteIdentity {"identityId":"identity_4"}',
    'identities.deleteIdentity {"identityId":"identity_5"}',
    'identities.createIdentity {"externalId":"c5"}',
    'identities.updateIdentity {"identityId":"identity_5","concurrency":[{"name":"jobs","limit":1}]}',
    'keys.updateKey {"keyId":"key_1","permissions":[],"allowedIps":["192.0.2.1"],"allowedOrigins":["https://a.example"],"ratelimit":{"limit":1,"duration":1000}}',
    'keys.updateKey {"keyId":"key_1","roles":[{"id":"role_1"},{"name":"new"}]}',
    'keys.updateKey {"keyId":"key_2","expires":99}',
    'webhooks.deleteEndpoint {"endpointId":"endpoint_1"}',
    'permissions.deletePermission {"permissionId":"b"}',
    'apis.updateApi {"apiId":"a","maxLifetimeMs":60000}',
    'ratelimit.setOverride {"namespace":"n","identifier":"i","limit":3,"duration":1}',
    'rootKeys.endSession {"sessionId":"session_1"}',
  ]);
});

test('a restore names what a person must decide', async () => {
  const of = (keyId: string) => ({ keyId, apiId: 'a' });
  const limit = (ratelimit: object) => ({ after: { ratelimit } });
  const at = (time: number) => new Date(time).toISOString();
  const listed = await listedSince(
    auditLine('keys.updateKey', of('key_1'), limit({ limit: 1 }), 1, 'SERVICE_UNAVAILABLE'),
    auditLine('keys.updateKey', of('key_1'), limit({ limit: 2 }), undefined, 'SERVICE_UNAVAILABLE'),
    auditLine('keys.setPermissions', of('key_2'), { after: { permissions: ['a', 'b'] } }, undefined),
    auditLine('keys.setPermissions', of('key_2'), { after: { permissions: ['b', 'c'] } }, undefined),
    auditLine('keys.updateKey', of('key_3'), {}, undefined, 'INTERNAL_SERVER_ERROR'),
    auditLine('keys.becomeStrange', {}),
  );
  expect(listed).toEqual([
    '# one of these was last: keys.updateKey {"keyId":"key_1","ratelimit":{"limit":1}}',
    '# one of these was last: keys.updateKey {"keyId":"key_1","ratelimit":{"limit":2}}',
    'keys.updateKey {"keyId":"key_2","permissions":["b"]}',
    `# keys.updateKey {"keyId":"key_3"} at ${at(20)}: it may have been done; see what it was to change`,
    `# keys.becomeStrange at ${at(20)}: see what it changed`,
  ]);
});

test('a restore knows every call and field', async () => {
  const changes = [...operations, ...operationsV2].filter(({ kind }) => kind === 'change');
  expect(changes.length).toBeGreaterThan(30);
  const subjects: Readonly<Record<string, string>> = {
    ...{
      apis: 'apiId',
      identities: 'identityId',
      keys: 'keyId',
      permissions: 'roleId',
      rootKeys: 'rootKeyId',
    },
    webhooks: 'endpointId',
  };
  for (const { name } of changes) {
    const on = { [subjects[name.split('.')[0] ?? ''] ?? 'none']: 'x' };
    expect((await listedSince(auditLine(name, on))).filter((text) => text.startsWith('#'))).toEqual([]);
  }
  const granting = ['name', 'meta', 'environment', 'apiIds'];
  for (const field of Object.keys(KEY_FIELDS).filter((name) => !granting.includes(name))) {
    const value = field === 'expires' ? 5 : field === 'enabled' ? false : ['x'];
    expect(
      await listedSince(auditLine('keys.updateKey', { keyId: 'x' }, { after: { [field]: value } })),
    ).toHaveLength(1);
  }
});

test('a restore leaves out nothing to be refused', async () => {
  const line = (time: number, keyId: string, after: object, sequence?: number, outcome = 'OK') =>
    JSON.stringify({
      audit: { time, operation: 'keys.updateKey', outcome, on: { keyId, apiId: 'a' }, after, sequence },
    });
  const [off, on] = [{ enabled: false }, { enabled: true }];
  const lines = [
    line(11, 'key_failed', off, 4),
    line(12, 'key_failed', on, undefined, 'SERVICE_UNAVAILABLE'),
    // Under way at once: the enable arrived later, and was written first.
    line(11, 'key_raced', off, 6),
    line(12, 'key_raced', on, 5),
    line(11, 'key_on', off, 7),
    line(12, 'key_on', on, 8),
    // Two in the same millisecond.
    line(11, 'key_both', off, 9),
    line(11, 'key_both', on, 10),
    line(11, 'key_unknown', off, undefined, 'SERVICE_UNAVAILABLE'),
    line(11, 'key_unknown', on, undefined, 'OK'),
    line(11, 'key_ends', { expires: 50 }, 11),
    line(12, 'key_ends', { expires: 70 }, 12),
    line(13, 'key_ends', { expires: 60, ...off }, 13),
    line(11, 'key_lasts', { expires: 50 }, 14),
    line(12, 'key_lasts', { expires: null }, 15),
    line(13, 'key_lasts', { name: 'x' }, 16),
  ];
  const listed = [
    'keys.updateKey {"keyId":"key_failed","enabled":false}',
    'keys.updateKey {"keyId":"key_raced","enabled":false}',
    'keys.updateKey {"keyId":"key_unknown","enabled":false}',
    'keys.updateKey {"keyId":"key_ends","enabled":false,"expires":60}',
  ];
  expect(await refusedSince(Readable.from(lines), 10)).toEqual(listed);
  const backwards = await refusedSince(Readable.from([...lines].reverse()), 10);
  expect(backwards.sort()).toEqual(listed.sort());
});

describe('a list of refusals since a backup', () => {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-logs-'));
  afterAll(() => rmSync(directory, { recursive: true }));
  const COPY = join(directory, '2026-01-01T00:00:00Z.rdb');
  const disabled = (time: string, keyId: string) =>
    JSON.stringify({
      level: 30,
      audit: {
        ...{ time: Date.parse(time), operation: 'keys.updateKey', outcome: 'OK' },
        ...{ on: { keyId, apiId: 'a' }, after: { enabled: false } },
      },
    });
  const before = disabled('2025-12-31T00:00:00Z', 'key_before');
  const after = disabled('2026-01-02T00:00:00Z', 'key_off');
  const logged = (...logs: readonly string[]) => {
    const LOGS = mkdtempSync(join(directory, 'logs-'));
    for (const [i, log] of logs.entries()) writeFileSync(join(LOGS, `control-plane-${i}.log`), log);
    return { LOGS, COPY };
  };
  const list = blocksOf('Restore')[1] ?? '';

  // As journalctl, `kubectl logs --timestamps --prefix` and docker compose write.
  test.each([
    '',
    'Jan 02 00:00:01 host-1 node[4242]: ',
    '[pod/keyfence-control-plane-7d/control-plane] 2026-01-02T00:00:01.1Z ',
    'control-plane-1  | ',
  ])('is the same whatever stands before the lines: %j', (prefix) => {
    const env = logged(`${prefix}${before}\n${prefix}${after}\n`, `${prefix}not JSON\n`);
    const listed = runEverywhere(list, env);
    expect(new Set(listed)).toEqual(new Set(['keys.updateKey {"keyId":"key_off","enabled":false}\n']));
  });

  test.each([
    ['are no logs', 'hello\n', '', 'No line audits a call'],
    ['are empty', '', '', 'No line audits a call'],
    ['begin after the backup', after, 'key_off', 'No audited call is older'],
    [
      'have their lines in another field',
      `${JSON.stringify({ MESSAGE: after })}\n`,
      '',
      'No line audits a call',
    ],
  ])('fails if the logs %s', (_, log, listed, reason) => {
    const result = spawnSync('sh', ['-c', list], {
      ...{ cwd: join(DEPLOY, '..'), encoding: 'utf8' as const, env: bareEnv(logged(log)) },
    });
    expect(result.status).toBe(1);
    expect(result.stdout).toContain(listed);
    expect(result.stderr).toContain(reason);
  });

  test('says how far the logs reach', () => {
    const options = {
      cwd: join(DEPLOY, '..'),
      encoding: 'utf8' as const,
      env: bareEnv(logged(`x\n${after}\n${before}`)),
    };
    const { status, stderr } = spawnSync('sh', ['-c', list], options);
    expect(status).toBe(0);
    expect(stderr).toContain(
      'read 3 lines, of which 2 audit calls, from 2025-12-31T00:00:00.000Z to 2026-01-02T00:00:00.000Z',
    );
  });

  // journald cuts lines at 48 KB.
  test('names lines that are cut', async () => {
    const cut = `host node[1]: ${after.slice(0, -20)}`;
    const listed = await refusedSince(Readable.from([before, cut]), Date.parse('2026-01-01'));
    expect(listed).toEqual([`# this line is cut: see what it changed: ${cut}`]);
  });
});

describe('on real processes', () => {
  let directory: string;
  let redis: RedisNode;
  const stops: (() => Promise<unknown>)[] = [];
  const file = (name: string, text: string) => {
    const path = join(directory, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  };

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'keyfence-runbook-'));
  });
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
    rmSync(directory, { recursive: true, force: true });
  });
  const startRedis = async (...options: string[]) => {
    redis = await RedisNode.start(join(directory, 'redis'), options);
    stops.push(() => redis.stop());
  };
  const start = async (main: 'control-plane/main.ts' | 'verifier/main.ts', env: Record<string, string>) => {
    const process = new Process(main, {
      REDIS_URL: redis.url,
      LOOKUP_WAIT_MS: '5000',
      LEASE_MS: '2000',
      ...env,
    });
    stops.push(() => process.stop('SIGKILL'));
    await process.start();
    return process;
  };
  const call = async (at: { address: string }, operation: string, body: object, rootKey: string) => {
    const answer = await request(`${at.address}/v1/${operation}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    // biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
    return { status: answer.statusCode, body: (await answer.body.json()) as any };
  };
  const verdict = async (verifier: Process, key: string) => {
    const { status, body } = await call(verifier, 'keys.verifyKey', { key }, '');
    return status === 200 ? body.code : status;
  };

  test.skipIf(noBalancer)(
    `root key and Redis passwords are rotated without a failed call${noBalancer}`,
    async () => {
      const [oldKey, newKey] = ['old', 'new'].map((word) => `${word}-root-key-${'0123456789'.repeat(3)}`) as [
        string,
        string,
      ];
      await startRedis();
      const user = (name: string, ...rules: string[]) => redis.command('ACL', 'SETUSER', name, ...rules);
      for (const name of ['control-plane', 'verifier']) await user(name, 'on', '>old', '~*', '&*', '+@all');

      const rootKeys = file('root-key', `${oldKey}\n`);
      const password = file('redis-password', 'old\n');
      const as = (name: string) => ({ REDIS_USERNAME: name, REDIS_PASSWORD_FILE: password, ...PATIENT });
      const controlPlanes = await Promise.all(
        [0, 1].map(() => start('control-plane/main.ts', { ...as('control-plane'), ROOT_KEY_FILE: rootKeys })),
      );
      const verifiers = await Promise.all([0, 1].map(() => start('verifier/main.ts', as('verifier'))));
      const admin = await Balancer.start(directory, controlPlanes);
      stops.push(() => admin.stop());
      const gateway = await Balancer.start(directory, verifiers);
      stops.push(() => gateway.stop());
      const { key, keyId } = (await call(admin, 'keys.createKey', { apiId: 'shop' }, oldKey)).body;

      let rootKey = oldKey;
      const manage = () => ({
        path: '/v1/keys.updateKey',
        body: { keyId, name: 'x' },
        headers: { authorization: `Bearer ${rootKey}` },
      });
      const managing = new Load(admin.address, manage, { callers: 3 });
      const verifying = new Load(gateway.address, () => ({ path: '/v1/keys.verifyKey', body: { key } }), {
        callers: 3,
      });
      const restart = async (processes: readonly Process[], balancer: Balancer) => {
        for (const process of processes) {
          await process.stop('SIGTERM');
          await process.start();
          await balancer.untilUp(processes.length);
        }
      };

      file('root-key', `${oldKey}\n${newKey}\n`);
      await restart(controlPlanes, admin);
      rootKey = newKey;
      await managing.more(20);
      // The end of one rotation and the beginning of the other share their restarts.
      file('root-key', `${newKey}\n`);
      for (const name of ['control-plane', 'verifier']) await user(name, '>new');
      file('redis-password', 'new\n');
      await restart(controlPlanes, admin);
      expect((await call(admin, 'keys.updateKey', { keyId }, oldKey)).status).toBe(401);
      await restart(verifiers, gateway);
      for (const name of ['control-plane', 'verifier']) await user(name, '<old');
      await Promise.all([managing.more(20), verifying.more(20)]);
      await Promise.all([managing.stop(), verifying.stop()]);

      expect(managing.outcomes).toEqual({ 200: expect.any(Number) });
      expect(verifying.outcomes).toEqual({ VALID: expect.any(Number) });
      const disabled = await call(admin, 'keys.updateKey', { keyId, enabled: false }, newKey);
      expect(disabled.body.propagation).toMatchObject({ state: 'complete', by: 'acks' });
      for (const verifier of verifiers) expect(await verdict(verifier, key)).toBe('DISABLED');
    },
  );
});

// macOS has one loopback address.
const noGroup = process.platform === 'linux' ? '' : ' (skipped: needs Linux, for loopback addresses)';
test.skipIf(noGroup)(`a restore lets in nobody who was refused${noGroup}`, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-restore-'));
  const [BACKUP, LOGS] = [join(directory, 'backup'), join(directory, 'logs')];
  for (const folder of [BACKUP, LOGS]) mkdirSync(folder);
  const group = await RedisPods.start({ tls: true, sharesDisk: true });
  const fleet = await Fleet.start({
    ...{ redisUrl: 'unused', verifiers: 0 },
    env: { ...group.env('control-plane'), HISTORY_FILE: join(directory, 'history') },
  });
  const addVerifier = (isReady = true) => fleet.addVerifier(group.env('verifier'), isReady);
  const patiently = (operation: string, input: object) =>
    vi.waitFor(() => fleet.ok(operation, input), POD_PATIENT);
  /** Not synchronous: the control plane is in this process. */
  const run = async (commands: string, env: NodeJS.ProcessEnv) =>
    (await promisify(execFile)('sh', ['-ec', commands], { cwd: join(DEPLOY, '..'), env: bareEnv(env) }))
      .stdout;
  let asking: Load | undefined;
  try {
    await group.untilReady();
    await addVerifier();
    // Each key is refused in another way after the backup.
    const created = async (fields: object = {}) =>
      (await patiently('keys.createKey', { apiId: 'shop', ...fields })) as { key: string; keyId: string };
    const { roleId } = await patiently('permissions.createRole', { name: 'editor', permissions: ['write'] });
    await patiently('identities.createIdentity', { externalId: 'c10' });
    const [kept, off, gone, moved, fast] = [
      await created(),
      await created(),
      await created(),
      await created(),
      await created(),
    ];
    const [ofNew, ofOld] = [await created({ externalId: 'c9' }), await created({ externalId: 'c10' })];
    const [editor, lister] = [
      await created({ roles: ['editor'] }),
      await created({ permissions: ['write'] }),
    ];
    const verdictOf = (key: { key: string; keyId: string }, at = 0) =>
      fleet.verdict(key.key, {
        at,
        ...([editor, lister].includes(key) ? { authorization: { permissions: 'write' } } : {}),
      });
    const keys = [kept, off, gone, moved, fast, ofNew, ofOld, editor, lister];
    for (const key of keys) expect(await verdictOf(key)).toBe('VALID');
    const env = (pod: RedisPod | undefined) => ({
      ...pod?.redis.env,
      BACKUP,
      REDIS_HOST: pod?.redis.host ?? '',
    });
    // It is named after the whole second in which it began, and the log has to begin before.
    const madeMs = Date.now();
    await fleet.until(() => Date.now() >= madeMs + 1000);
    await run(blocksOf('Backup')[0] ?? '', env(group.pods[1]));
    const COPY = join(BACKUP, readdirSync(BACKUP)[0] ?? '');

    const changes: [string, object][] = [
      ['keys.updateKey', { keyId: off.keyId, enabled: false }],
      ['keys.deleteKey', { keyId: gone.keyId }],
      ['keys.updateKey', { keyId: moved.keyId, allowedIps: ['192.0.2.1'] }],
      ['keys.updateKey', { keyId: fast.keyId, ratelimit: { limit: 1, duration: 3_600_000 } }],
      ['identities.createIdentity', { externalId: 'c9', enabled: false }],
      ['identities.updateIdentity', { externalId: 'c10', enabled: false }],
      ['permissions.setRolePermissions', { roleId, permissions: ['read'] }],
      ['keys.removePermissions', { keyId: lister.keyId, permissions: ['write'] }],
    ];
    for (const [operation, body] of changes) {
      const { propagation } = await patiently(operation, body);
      expect(propagation).toMatchObject({ state: 'complete', durable: true });
    }
    await addVerifier();
    const refusedAs = ['VALID', 'DISABLED', 'NOT_FOUND', 'FORBIDDEN', 'VALID', 'DISABLED', 'DISABLED'];
    refusedAs.push('INSUFFICIENT_PERMISSIONS', 'INSUFFICIENT_PERMISSIONS');
    const verdicts = async (at: number) => {
      const found = [];
      for (const key of keys) found.push(await verdictOf(key, at));
      return found;
    };
    expect(await verdicts(1)).toEqual(refusedAs);
    await fleet.until(() => JSON.parse(readFileSync(join(directory, 'history'), 'utf8')).shop?.sequence >= 5);

    const ask = () => ({ path: '/v1/keys.verifyKey', body: { key: off.key } });
    asking = new Load(fleet.verifiers[1]?.address ?? '', ask, { callers: 1 });
    const servers = group.pods.flatMap(({ redis, sentinel }) => [sentinel, redis]);
    await Promise.all(servers.map((server) => server.end()));
    const [restore, list, admit] = blocksOf('Restore');
    const joinGroup = /`(sh \S+restore\.sh join)`/.exec(runbook)?.[1] ?? '';
    for (const [i, pod] of group.pods.entries())
      await run((i === 0 ? restore : joinGroup) ?? '', { ...env(pod), COPY });
    for (const pod of group.pods)
      await expect(
        run(pod === group.pods[0] ? joinGroup : (restore ?? ''), { ...env(pod), COPY }),
      ).rejects.toThrow();
    await Promise.all(group.pods.map((pod) => pod.create()));
    await group.untilReady();
    expect(await group.roles()).toEqual(['master', 'slave', 'slave']);

    writeFileSync(join(LOGS, 'control-planes.log'), fleet.logged.join(''));
    const listed = await run(list ?? '', { LOGS, COPY });
    const calls = listed.trim().split('\n');
    expect(calls.filter((line) => line.startsWith('#'))).toEqual([]);
    for (const line of calls) {
      const [operation = '', body = ''] = line.split(/ (.*)/s);
      await vi.waitFor(async () => {
        expect([200, 404, 409]).toContain((await fleet.admin(operation, JSON.parse(body))).status);
      }, POD_PATIENT);
    }
    expect((await fleet.verifyOnce(kept.key, { at: 1 })).status).toBe(503);
    const controlPlane = { KEYFENCE_URL: fleet.controlPlanes[0]?.address ?? '', KEYFENCE_ROOT_KEY: ROOT_KEY };
    for (const pod of group.pods) await run(admit ?? '', { ...env(pod), ...controlPlane });

    await addVerifier();
    expect(await verdicts(1)).toEqual(refusedAs);
    expect(await verdicts(2)).toEqual(refusedAs.with(keys.indexOf(fast), 'RATE_LIMITED'));
    await asking.stop();
    expect(Object.keys(asking.outcomes).filter((each) => each !== 'DISABLED' && each !== '503')).toEqual([]);
  } finally {
    await asking?.stop();
    await fleet.stop();
    await group.stop();
    rmSync(directory, { recursive: true });
  }
});
