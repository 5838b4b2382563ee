import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { settings as controlPlane } from '../../../control-plane/config.ts';
import { ConfigError, misspelt } from '../../../shared/process/load-config.ts';
import { configFaults, settings as verifier } from '../../../verifier/config.ts';
import { controlPlaneConfig, verifierConfig } from '../../harness/config.ts';
import { COMPILED } from '../../harness/processes.ts';

const ROOT_KEY = 'a-root-key-that-is-long-enough-0123456789';
let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'keyfence-config-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

const faultsOf = (load: () => unknown): readonly string[] => {
  try {
    load();
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
};

describe.each([
  ['control-plane/main.ts', { ROOT_KEY }],
  ['verifier/main.ts', {}],
])('%s', (file, right) => {
  test('a process with wrong settings names all faults, shows no secret, and exits with status 78', () => {
    const env = {
      PATH: process.env['PATH'] ?? '',
      ...COMPILED,
      ...right,
      PORT: 'http',
      REDIS_URL: 'mysql://user:hunter2@x',
      LOG_LEVEL: 'loud',
    };
    const done = spawnSync(process.execPath, [file], { env, encoding: 'utf8' });
    expect(done.status).toBe(78);
    for (const name of ['PORT', 'REDIS_URL', 'LOG_LEVEL'])
      expect(done.stderr).toMatch(new RegExp(`^ {2}${name}: .*\\(.*\\)$`, 'm'));
    expect(done.stdout + done.stderr).not.toContain('hunter2');
  });

  test('refuses settings that contradict each other', () => {
    const env = {
      PATH: process.env['PATH'] ?? '',
      ...COMPILED,
      ...right,
      REDIS_URL: 'redis://a,redis://b',
      REDIS_PASWORD: 'x',
    };
    const done = spawnSync(process.execPath, [file], { env, encoding: 'utf8' });
    expect(done.status).toBe(78);
    expect(done.stderr).toContain('REDIS_URL: several addresses need REDIS_MODE sentinel or cluster');
    expect(done.stderr).toContain('REDIS_PASWORD: is no setting; did you mean REDIS_PASSWORD?');
  });
});

test('the defaults are valid, and empty is unset', () => {
  expect(verifierConfig({ PORT: '' })).toMatchObject({
    HOST: '127.0.0.1',
    PORT: 3001,
    ADMIN_PORT: 9301,
    CACHE_KEYS_MAX: 100_000,
    API_IDS: [],
  });
  expect(controlPlaneConfig({ ROOT_KEY })).toMatchObject({
    HOST: '127.0.0.1',
    PORT: 3000,
    ADMIN_PORT: 9300,
    LEASE_MS: 10_000,
  });
});

test('requires a root key, and hides a short one', () => {
  expect(faultsOf(() => controlPlaneConfig({}))).toEqual([expect.stringMatching(/^ROOT_KEY: required/)]);
  const [fault] = faultsOf(() => controlPlaneConfig({ ROOT_KEY: `${ROOT_KEY}\nshort` }));
  expect(fault).toMatch(/^ROOT_KEY: every root key needs at least 32 characters/);
  expect(fault).not.toContain('short');
});

test('a secret has one source: variable or file', () => {
  const file = join(directory, 'root-key');
  writeFileSync(file, `${ROOT_KEY}\n`);
  expect(controlPlaneConfig({ ROOT_KEY_FILE: file }).ROOT_KEY).toEqual([ROOT_KEY]);
  expect(faultsOf(() => controlPlaneConfig({ ROOT_KEY, ROOT_KEY_FILE: file }))).toEqual([
    expect.stringMatching(/must not be set together with ROOT_KEY_FILE/),
  ]);
  expect(faultsOf(() => controlPlaneConfig({ ROOT_KEY_FILE: `${file}-none` }))).toEqual([
    expect.stringMatching(/ENOENT/),
  ]);
});

test('a secret file may end its line as in Windows', () => {
  const file = join(directory, 'redis-password');
  for (const [text, secret] of [
    ['hunter2\r\n', 'hunter2'],
    ['hunter2\n', 'hunter2'],
    ['hunter2', 'hunter2'],
    [' hunter2 \r\n', ' hunter2 '],
    ['hunter2\r', 'hunter2\r'],
    ['hunter2\nthe old one\n', 'hunter2'],
  ] as const) {
    writeFileSync(file, text);
    expect(verifierConfig({ REDIS_PASSWORD_FILE: file }).REDIS_PASSWORD).toBe(secret);
  }
});

test('a misspelt setting is named, and no other', () => {
  for (const [found, meant] of [
    ['PROXY_PERMISSION', 'PROXY_PERMISSIONS'],
    ['PROXY_PERMISIONS', 'PROXY_PERMISSIONS'],
    ['CREDENTIAL_SOURCE', 'CREDENTIAL_SOURCES'],
    ['TRUSTED_PROXIEZ', 'TRUSTED_PROXIES'],
    ['proxy_api_id', 'PROXY_API_ID'],
    ['REDIS_PASSWORD_FILES', 'REDIS_PASSWORD_FILE'],
    ['VERIFY_ROOT_KEY', 'VERIFY_ROOT_KEYS'],
  ] as const)
    expect(misspelt(verifier, { [found]: 'x' })).toEqual([`${found}: is no setting; did you mean ${meant}?`]);
  const others = [
    'PATH',
    'API_ID',
    'REDIS_PORT',
    'HTTPS_PROXY',
    'NO_PROXY',
    'PORTS',
    'NODE_OPTIONS',
    'PROXY_URL',
  ];
  expect(misspelt(verifier, Object.fromEntries(others.map((name) => [name, 'x'])))).toEqual([]);
  // Both processes may have the same environment.
  const all = Object.fromEntries(Object.keys({ ...verifier, ...controlPlane }).map((name) => [name, 'x']));
  for (const settings of [verifier, controlPlane]) {
    expect(misspelt(settings, all)).toEqual([]);
    expect(misspelt(settings, { REDIS_PASSWORD_FILE: 'x', ...process.env })).toEqual([]);
  }
});

test('a server address has no password or query', () => {
  expect(verifierConfig({ UPSTREAM_URL: 'https://api:8443/base' }).UPSTREAM_URL?.href).toBe(
    'https://api:8443/base',
  );
  for (const UPSTREAM_URL of [
    'http://hunter2@api',
    'http://:hunter2@api',
    'http://api/?hunter2',
    'http://api/#hunter2',
    'ftp://hunter2',
    'hunter2',
  ]) {
    const [fault, ...more] = faultsOf(() => verifierConfig({ UPSTREAM_URL }));
    expect(fault, UPSTREAM_URL).toMatch(/^UPSTREAM_URL: is not a valid URL/);
    expect([fault, ...more].join()).not.toContain('hunter2');
  }
});

test('refuses a verifier that would ask itself', () => {
  const faults = (env: NodeJS.ProcessEnv) =>
    configFaults(verifierConfig({ PROXY_API_ID: 'shop', ...env })).map((fault) => fault.split(':')[0]);
  for (const [HOST, url] of [
    ['', 'http://127.0.0.1:3001'],
    ['', 'http://localhost:3001/v1'],
    ['localhost', 'http://127.0.0.1:3001'],
    ['0.0.0.0', 'http://127.0.0.1:3001'],
    ['::', 'http://[::1]:3001'],
    ['10.0.0.5', 'http://10.0.0.5:3001'],
    ['::1', 'http://[::1]:3001'],
  ] as const) {
    expect(faults({ HOST, CONTROL_PLANE_URL: url }), url).toEqual(['CONTROL_PLANE_URL']);
    expect(faults({ HOST, UPSTREAM_URL: url }), url).toEqual(['UPSTREAM_URL']);
    const before = url.replace('3001', '3002');
    expect(faults({ PROXY_HOST: HOST, UPSTREAM_URL: before }), url).toEqual(['UPSTREAM_URL']);
  }
  expect(faults({ PORT: '80', CONTROL_PLANE_URL: 'http://127.0.0.1' })).toEqual(['CONTROL_PLANE_URL']);
  expect(faults({ PORT: '443', CONTROL_PLANE_URL: 'https://127.0.0.1' })).toEqual(['CONTROL_PLANE_URL']);
  for (const [HOST, url] of [
    ['', 'http://127.0.0.1:3000'],
    ['', 'http://10.0.0.5:3001'],
    ['', 'http://[::1]:3001'],
    ['10.0.0.5', 'http://127.0.0.1:3001'],
    ['0.0.0.0', 'http://control-plane:3001'],
  ] as const) {
    expect(faults({ HOST, CONTROL_PLANE_URL: url, UPSTREAM_URL: url }), url).toEqual([]);
  }
});

test('refuses digests that cannot be looked for', () => {
  const faults = (env: NodeJS.ProcessEnv) => configFaults(verifierConfig(env));
  const [on, pepper] = [{ FOREIGN_KEYS: 'true' }, { FOREIGN_PEPPER: 'hunter2' }];
  expect(faults({ ...on, ...pepper, FOREIGN_DIGESTS: 'sha512, sha1,hmacSha256' })).toEqual([]);
  expect(faults({ FOREIGN_DIGESTS: 'sha1' })).toEqual(['FOREIGN_DIGESTS: needs FOREIGN_KEYS=true']);
  expect(faults({ ...on, FOREIGN_DIGESTS: 'hmacSha256' })).toEqual([
    'FOREIGN_PEPPER: required for hmacSha256 in FOREIGN_DIGESTS',
  ]);
  expect(faults({ ...on, ...pepper })).toEqual(['FOREIGN_PEPPER: needs hmacSha256 in FOREIGN_DIGESTS']);
  expect(faultsOf(() => verifierConfig({ FOREIGN_DIGESTS: 'sha1,md5' }))[0]).toMatch(
    /^FOREIGN_DIGESTS: "md5" is not allowed \(comma-separated: sha512, sha1, hmacSha256\)/,
  );
  expect(faultsOf(() => verifierConfig({ FOREIGN_PEPPER_FILE: '/nowhere' }))[0]).toMatch(
    /^FOREIGN_PEPPER: FOREIGN_PEPPER_FILE cannot be read: ENOENT/,
  );
});

test('every setting has a rule, a text and limits', () => {
  for (const [name, setting] of Object.entries({ ...controlPlane, ...verifier })) {
    expect(setting.rule, name).not.toBe('');
    expect(setting.help.length, name).toBeGreaterThan(10);
  }
  expect(
    faultsOf(() => verifierConfig({ PORT: '65536', SYNC_PERIOD_MS: '1e3', API_IDS: 'a b' })),
  ).toHaveLength(3);
  expect(verifierConfig({ API_IDS: 'a, b,,a' }).API_IDS).toEqual(['a', 'b']);
});
