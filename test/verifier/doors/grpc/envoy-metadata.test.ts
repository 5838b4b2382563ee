import { expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { Entry, type Epoch } from '../../../../shared/protocol/follower/key-cache.ts';
import { Lease } from '../../../../shared/protocol/follower/lease.ts';
import type { EffectivePermissions } from '../../../../shared/protocol/follower/permissions.ts';
import { decodeState } from '../../../../shared/protocol/records/key-record.ts';
import { dynamicMetadata } from '../../../../verifier/doors/grpc/check.ts';
import { grpcSettings } from '../../../../verifier/doors/grpc/server.ts';
import { noPools } from '../../../harness/no-credits.ts';

const lease = new Lease(systemClock);
const epoch: Epoch = { apiId: 'shop', lease, companion: noPools, current: true, used: false, obeyedAtMs: 0 };
const plain = decodeState(['1']);
const entryWith = (fields: object) => new Entry(epoch, 'key_1', { ...plain, ...fields });
const metaOf = (meta: string, names: readonly string[]) =>
  dynamicMetadata({ code: 'VALID', entry: entryWith({ meta }) }, names).fields['meta'];

test('a plain key has its code, its id and its API', () => {
  const { fields } = dynamicMetadata({ code: 'VALID', entry: entryWith({}) }, ['plan']);
  const wanted = { code: 'VALID', keyId: 'key_1', apiId: 'shop' };
  expect(fields).toEqual(
    Object.fromEntries(Object.entries(wanted).map(([name, value]) => [name, { string_value: value }])),
  );
});

test('a key has its roles and identity by name', () => {
  const identity = { enabled: true, id: 'identity_1', externalId: 'acme', meta: '{}', json: '{}' };
  const effectivePermissions: EffectivePermissions = {
    slugSet: new Set(['a', 'b']),
    slugs: ['a', 'b'],
    roles: ['admin'],
    limits: undefined,
    identity: { ...identity, limits: undefined, pool: '', roles: [] },
    companion: noPools,
  };
  const entry = entryWith({ externalId: 'acme', environment: 'live', roles: 'admin' });
  const texts = (...all: string[]) => ({
    list_value: { values: all.map((each) => ({ string_value: each })) },
  });
  expect(dynamicMetadata({ code: 'VALID', entry, effectivePermissions }, []).fields).toMatchObject({
    externalId: { string_value: 'acme' },
    environment: { string_value: 'live' },
    roles: texts('admin'),
    permissions: texts('a', 'b'),
    identity: { struct_value: { fields: { id: { string_value: 'identity_1' } } } },
  });
});

test('has the named short fields of meta only', () => {
  const meta = `{"plan":"pro","seats":3,"trial":false,"long":"${'x'.repeat(257)}","fits":"${'x'.repeat(256)}","list":[1],"none":null,"infinite":1e999,"other":"x"}`;
  const names = ['plan', 'seats', 'trial', 'long', 'fits', 'list', 'none', 'infinite', 'absent', 'toString'];
  expect(metaOf(meta, names)).toEqual({
    struct_value: {
      fields: {
        plan: { string_value: 'pro' },
        seats: { number_value: 3 },
        trial: { bool_value: false },
        fits: { string_value: 'x'.repeat(256) },
      },
    },
  });
  expect(metaOf('{"other":"x"}', names)).toBeUndefined();
  expect(metaOf('{"plan":"pro"}', [])).toBeUndefined();
});

test('METADATA_FIELDS takes up to 16 names', () => {
  const { parse } = grpcSettings.METADATA_FIELDS;
  const names = Array.from({ length: 17 }, (_, i) => `f${i}`);
  expect(parse('plan, seats')).toEqual(['plan', 'seats']);
  expect(parse(names.slice(1).join(','))).toHaveLength(16);
  expect(() => parse(names.join(','))).toThrow('has too many names');
  for (const wrong of ['__proto__', 'a b', '1', 'x'.repeat(65)])
    expect(() => parse(wrong)).toThrow('not allowed');
});
