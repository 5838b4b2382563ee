import { createHash, createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { scratch } from '../../../harness/scratch.ts';

const PEPPER = 'the pepper of the old system';
const ALL = 'sha512,sha1,hmacSha256';
const directory = scratch('test');
const pepperFile = join(directory, 'pepper');
let fleet: Fleet;
beforeAll(async () => {
  writeFileSync(pepperFile, `${PEPPER}\n`);
  const env = { FOREIGN_KEYS: 'true', LOG_LEVEL: 'trace', STATUS_PERIOD_MS: '100' };
  fleet = await Fleet.start({ env: { ...env, FOREIGN_DIGESTS: ALL, FOREIGN_PEPPER_FILE: pepperFile } });
  await fleet.addVerifier(env);
});
afterAll(() => fleet.stop());

const digests = {
  sha512: (secret: string) => createHash('sha512').update(secret),
  sha1: (secret: string) => createHash('sha1').update(secret),
  hmacSha256: (secret: string) => createHmac('sha256', PEPPER).update(secret),
};
type Kind = keyof typeof digests;
const kinds = Object.keys(digests) as Kind[];
const hex = (kind: Kind, secret: string) => digests[kind](secret).digest('hex');
const importKeys = async (apiId: string, keys: readonly unknown[]) =>
  (await fleet.ok('keys.importKeys', { apiId, keys })).results;

describe.each(kinds)('a key imported by its %s', (kind) => {
  const secret = (name: string) => `sk_live_${kind}_${name}`;

  test('is accepted where that is looked for', async () => {
    const keys = [
      { [kind]: hex(kind, secret('hex')), name: 'hex' },
      { [kind]: hex(kind, secret('upper')).toUpperCase() },
      { [kind]: digests[kind](secret('base64')).digest('base64url') },
    ];
    const results = await importKeys(kind, keys);
    expect(results.map(({ result }: { result: string }) => result)).toEqual(keys.map(() => 'created'));
    for (const name of ['hex', 'upper', 'base64']) {
      expect(await fleet.verdict(secret(name), { at: 0 })).toBe('VALID');
      // From memory now.
      expect(await fleet.verdict(secret(name), { at: 0 })).toBe('VALID');
      expect(await fleet.verdict(secret(name), { at: 1 })).toBe('NOT_FOUND');
    }
    expect((await importKeys(kind, keys))[0]).toEqual({ result: 'exists', keyId: results[0].keyId });
    const api = await fleet.ok('apis.getApi', { apiId: kind });
    expect(api).toMatchObject({ foreignKeys: true, foreignDigests: [kind] });
  });

  test('is disabled and deleted like any other', async () => {
    const [{ keyId }] = await importKeys(kind, [{ [kind]: hex(kind, secret('off')) }]);
    expect(await fleet.verdict(secret('off'))).toBe('VALID');
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(propagation.state).toBe('complete');
    expect(await fleet.verdict(secret('off'))).toBe('DISABLED');
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    expect(await fleet.verdict(secret('off'))).toBe('VALID');
    await fleet.ok('keys.deleteKey', { keyId });
    expect(await fleet.verdict(secret('off'))).toBe('NOT_FOUND');
  });

  test('spends credits and obeys limits and roles', async () => {
    await fleet.ok('permissions.createRole', { name: `role-${kind}`, permissions: ['read'] });
    const limited = { remaining: 2, ratelimit: { limit: 50, duration: 3_600_000 }, roles: [`role-${kind}`] };
    await importKeys(kind, [{ [kind]: hex(kind, secret('spent')), ...limited }]);
    const ask = async () =>
      (await fleet.verify(secret('spent'), { authorization: { permissions: 'read' } })).body.code;
    expect([await ask(), await ask(), await ask()]).toEqual(['VALID', 'VALID', 'USAGE_EXCEEDED']);
  });

  test('is no key whose secret is the digest', async () => {
    const digest = hex(kind, secret('known'));
    await importKeys(kind, [{ [kind]: digest }]);
    expect(await fleet.verdict(secret('known'))).toBe('VALID');
    for (const text of [digest, `${kind}:${digest}`, `${kind} ${digest}`])
      expect((await fleet.verify(text)).body.code).toBe('NOT_FOUND');
  });

  test('cannot have a secret in our own format', async () => {
    const ours = generateKey(16);
    const [refused] = await importKeys(kind, [{ [kind]: hex(kind, ours), foreign: false }]);
    expect(refused.message).toMatch(`${kind}: only for keys of a foreign format`);
    // The control plane cannot see what the secret is. Nobody looks for it by another digest.
    await importKeys(kind, [{ [kind]: hex(kind, ours) }]);
    expect(await fleet.verdict(ours)).toBe('NOT_FOUND');
  });
});

test('secrets are told by the digests without a pepper', async () => {
  for (const kind of ['sha512', 'sha1'] as const) {
    const secret = `sk_live_told_${kind}`;
    const [{ keyId }] = await importKeys('told', [{ [kind]: hex(kind, secret) }]);
    expect((await fleet.ok('keys.whoami', { key: secret })).keyId).toBe(keyId);
    expect(await fleet.ok('keys.explain', { key: secret })).toMatchObject({ keyId, code: 'VALID' });
    const misplaced = await fleet.admin('keys.createKey', { apiId: 'told', externalId: secret });
    expect(misplaced.status).toBe(400);
  }
});

test('findings name the digests that verifiers lack', async () => {
  await importKeys('told', [{ sha512: hex('sha512', 'x1') }, { sha1: hex('sha1', 'x2') }]);
  const change = async () => {
    const { findings } = await fleet.ok('fleet.listFindings');
    return findings.find(({ check }: { check: string }) => check === 'fleet').change ?? '';
  };
  await fleet.verdict('x1', { at: 0 });
  expect(await change()).not.toContain('the API told has');
  await fleet.ok('keys.createKey', { apiId: 'told' }).then(({ key }) => fleet.verdict(key, { at: 1 }));
  await fleet.until(async () =>
    /the API told has keys of a foreign format, which verifier_\w+ on \S+ does not accept: set FOREIGN_KEYS=true and FOREIGN_DIGESTS=sha512,sha1 there/.test(
      await change(),
    ),
  );
});

test('a wrong digest is refused alone, with the rule', async () => {
  const sha512 = hex('sha512', 'x');
  const salted = /is a salted hash, by which no verifier can find a key, because each has a salt of its own/;
  const wrong: [object, RegExp][] = [
    [{}, /^sha256: required, or one of sha512, sha1, hmacSha256$/],
    [{ sha512, sha1: hex('sha1', 'x') }, /^sha1: must not be given beside sha512; send one of them$/],
    [{ sha512: hex('hmacSha256', 'x') }, /^sha512: must match pattern/],
    [{ sha1: sha512 }, /^sha1: must match pattern/],
    [{ hmacSha256: hex('sha1', 'x') }, /^hmacSha256: must match pattern/],
    [{ sha512: digests.sha512('x').digest('base64') }, /^sha512: must match pattern/],
    [{ sha512: `${digests.sha512('x').digest('base64url').slice(0, -1)}B` }, /^sha512: must match pattern/],
    [{ sha1: `${digests.sha1('x').digest('base64url').slice(0, -1)}B` }, /^sha1: must match pattern/],
    [{ sha512: 7 }, /^sha512: must be string/],
    [{ sha512: null }, /^sha512: must be string/],
    [{ sha256: '$2b$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy' }, salted],
    [{ sha512: '$6$rounds=5000$salt$hash' }, salted],
    [{ sha256: '$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub' }, salted],
    [{ sha256: 'pbkdf2_sha256$260000$salt$hash' }, salted],
    [{ sha1: 'scrypt:32768:8:1$salt$hash' }, salted],
    [{ bcrypt: '$2b$10$x' }, /^bcrypt: unknown field/],
  ];
  const keys = [...wrong.map(([key]) => key), { sha512 }];
  const { results, refused } = await fleet.ok('keys.importKeys', { apiId: 'wrong', keys });
  expect(refused).toBe(wrong.length);
  for (const [i, [, message]] of wrong.entries())
    expect(results[i]).toMatchObject({ result: 'refused', message: expect.stringMatching(message) });
  expect(results[wrong.length].result).toBe('created');
});

test('neither Redis nor a log has pepper, secret or digest', async () => {
  const secret = 'sk_live_peppered';
  const hidden = [PEPPER, secret];
  for (const kind of kinds) {
    await importKeys(kind, [{ [kind]: hex(kind, secret) }]);
    hidden.push(
      ...(['hex', 'base64url', 'binary'] as const).map((form) => digests[kind](secret).digest(form)),
    );
  }
  expect(await fleet.verdict(secret)).toBe('VALID');
  const stored = [fleet.logged.join('\n')];
  for (const key of await fleet.client.keysBuffer('*'))
    stored.push(key.toString('latin1'), (await fleet.client.dumpBuffer(key))?.toString('latin1') ?? '');
  for (const text of hidden) expect(stored.filter((each) => each.includes(text))).toEqual([]);
});
