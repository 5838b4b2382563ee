import { describe, expect, test } from 'vitest';
import { configFaults } from '../../../../../control-plane/config.ts';
import {
  attributesOf,
  parsePersonRules,
  permissionsOf,
  personOf,
} from '../../../../../control-plane/core/callers/person.ts';
import {
  API_ACTIONS,
  Permissions,
  PRESETS,
} from '../../../../../control-plane/core/callers/root-permissions.ts';
import { controlPlaneConfig } from '../../../../harness/config.ts';

const ENV = {
  ROOT_KEY: 'a-root-key-0123456789-0123456789-0123',
  ...{ PUBLIC_URL: 'https://keyfence.example', OIDC_ISSUER: 'https://id.example/realm' },
  ...{ OIDC_CLIENT_ID: 'keyfence', OIDC_CLIENT_SECRET: 'secret', OIDC_PERMISSIONS: 'groups=a everything' },
};
const faultsOf = (changes: Readonly<Record<string, string>>) =>
  configFaults(controlPlaneConfig({ ...ENV, ...changes }));

describe('a control plane does not start', () => {
  test.each([
    ...['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET', 'OIDC_PERMISSIONS', 'PUBLIC_URL'].map(
      (name): [string, Record<string, string>, RegExp] => [
        `without ${name}`,
        { [name]: '' },
        RegExp(`^${name}: required`),
      ],
    ),
    [
      'with an issuer without TLS',
      { OIDC_ISSUER: 'http://id.example' },
      /^OIDC_ISSUER: must begin with https/,
    ],
    [
      'with an address without TLS',
      { PUBLIC_URL: 'http://keyfence.example' },
      /^PUBLIC_URL: must begin with https/,
    ],
    [
      'with an issuer of every organisation',
      { OIDC_ISSUER: 'https://login.microsoftonline.com/common/v2.0' },
      /^OIDC_ISSUER: must name your tenant/,
    ],
    ['without the scope openid', { OIDC_SCOPE: 'profile email' }, /^OIDC_SCOPE: must contain openid/],
  ])('%s', (_what, changes, fault) => {
    expect(faultsOf({})).toEqual([]);
    expect(faultsOf(changes)).toEqual([expect.stringMatching(fault)]);
  });

  test.each([
    ['groups everything', /OIDC_PERMISSIONS: "groups everything" must be <claim>=<value>/],
    ['groups=a', /must be <claim>=<value>/],
    [
      'groups=API admins everything',
      /"admins" is neither a permission nor one of read-only, support, ci, everything/,
    ],
    ['groups=a api.shop.reed_key', /"api.shop.reed_key" is neither a permission/],
    ['groups=a constructor', /"constructor" is neither a permission/],
    ['groups=* read-only\ngroups= everything', /must be <claim>=<value>/],
  ])('with the line %j', (OIDC_PERMISSIONS, fault) => {
    expect(() => faultsOf({ OIDC_PERMISSIONS })).toThrow(fault);
  });
});

test('starts with none of these or PUBLIC_URL alone', () => {
  const none = { OIDC_ISSUER: '', OIDC_CLIENT_ID: '', OIDC_CLIENT_SECRET: '', OIDC_PERMISSIONS: '' };
  expect(faultsOf(none)).toEqual([]);
  expect(faultsOf({ ...none, PUBLIC_URL: '' })).toEqual([]);
  expect(faultsOf({ OIDC_ISSUER: 'http://localhost:8080', PUBLIC_URL: 'http://[::1]:3000' })).toEqual([]);
});

test('matches a claim as a whole, in its case', () => {
  const rules = parsePersonRules(
    'groups=admins everything\nhttps://x.example/team="key team" api.shop.read_key api.shop.read_api\nlevel=3 api.a.read_key\n\n vip=true api.b.read_key ',
  );
  const permissionsWith = (source: object) => permissionsOf(rules, attributesOf(rules, { ...source }));
  expect(permissionsWith({ groups: ['x', 'admins'] })).toEqual(['*']);
  expect(permissionsWith({ groups: 'admins' })).toEqual(['*']);
  expect(permissionsWith({ 'https://x.example/team': 'key team' })).toEqual([
    'api.shop.read_key',
    'api.shop.read_api',
  ]);
  expect(permissionsWith({ level: 3, vip: true })).toEqual(['api.a.read_key', 'api.b.read_key']);
  for (const groups of [
    'Admins',
    'admins2',
    'x,admins',
    ['admin', 's'],
    { admins: true },
    [['admins']],
    null,
    7,
  ])
    expect(permissionsWith({ groups }), JSON.stringify(groups)).toEqual([]);
  expect(permissionsWith({ roles: ['admins'] })).toEqual([]);
});

test('matches only an address that is verified', () => {
  const rules = parsePersonRules('email=ada@example.com everything');
  const permissionsWith = (verified: object) =>
    permissionsOf(rules, attributesOf(rules, { email: 'ada@example.com', ...verified }));
  for (const email_verified of [true, 'true']) expect(permissionsWith({ email_verified })).toEqual(['*']);
  for (const email_verified of [false, 'false', undefined, null, 1])
    expect(permissionsWith({ email_verified })).toEqual([]);
  for (const email_verified of [false, 'false', undefined])
    expect(
      personOf('https://id.example', '1', { email: 'ada@example.com', email_verified }),
    ).not.toHaveProperty('email');
});

test('one subject at two providers is two persons', () => {
  const [one, two] = ['https://a.example/', 'https://b.example/'].map((issuer) => personOf(issuer, '1', {}));
  expect(one?.personId).not.toBe(two?.personId);
  expect(personOf('https://a.example/', '1', { name: 'x'.repeat(1000) }).name).toHaveLength(200);
});

test('presets below everything make no root keys', () => {
  const { everything, ...others } = PRESETS;
  expect(everything?.permissions).toEqual(['*']);
  for (const { permissions } of Object.values(others)) {
    const has = new Permissions(permissions);
    for (const action of ['create_root_key', 'update_root_key', 'create_role', 'update_webhook'] as const)
      expect(has.allowsRoot(action)).toBe(false);
    expect(API_ACTIONS.filter((action) => /_api$/.test(action) && has.allows('*', action))).toEqual([
      'read_api',
    ]);
  }
});
