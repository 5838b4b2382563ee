import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operations } from '../../../../control-plane/operations.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** What an answer shows, sent back as a change, changes nothing. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
  for (const name of ['reader', 'writer']) await fleet.ok('permissions.createRole', { name });
  for (const apiId of ['shop', 'other']) await fleet.ok('apis.createApi', { apiId, name: apiId });
});
afterAll(() => fleet.stop());

const some = <T>(of: Record<string, fc.Arbitrary<T>>) => fc.record(of, { requiredKeys: [] });
const word = fc.stringMatching(/^[a-z]{1,8}$/);
const text = fc.oneof(word, fc.constantFrom('O’Neill & Söhne', 'null', '0', ' ', '"'));
const whole = (min: number, max: number) => fc.integer({ min, max });
const list = <T>(of: fc.Arbitrary<T>, minLength = 0) => fc.uniqueArray(of, { minLength, maxLength: 3 });
const windows = fc.record(
  { limit: whole(1, 1e6), duration: whole(1000, 86_400_000), async: fc.boolean() },
  { requiredKeys: ['limit', 'duration'] },
);
const quota = fc.record(
  {
    limit: whole(1, 1e6),
    interval: fc.constant('month' as const),
    anchor: some<number>({ day: whole(1, 31), offsetMinutes: whole(-60, 60) }),
    thresholds: fc.constantFrom([80], [50, 90]),
  },
  { requiredKeys: ['limit', 'interval'] },
);
const limit = fc.oneof(windows, quota);
const named = fc
  .uniqueArray(fc.tuple(fc.constantFrom('calls', 'tokens', 'jobs'), limit, fc.boolean()), {
    ...{ maxLength: 2, selector: ([name]: [string, object, boolean]) => name },
  })
  .map((each) => each.map(([name, size, autoApply]) => ({ ...size, name, autoApply })));
const places = fc.constantFrom([], [{ name: 'seats', limit: 3 }]);
const meta = fc.dictionary(word, fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 });
const credits = fc.constantFrom(
  ...[{}, { remaining: 10 }, { remaining: 0, thresholds: [10, 50] }],
  { remaining: 7, refill: { interval: 'daily', amount: 100 } },
  { remaining: 7, refill: { interval: 'monthly', amount: 100, refillDay: 31 } },
);
const roles = list(fc.constantFrom('reader', 'writer'));
const permissions = list(fc.constantFrom('files.read', 'files.*', 'a:b'));
const managedBy = text;
const fieldsOfKey = fc
  .tuple(
    some<unknown>({
      ...{ name: text, externalId: text, meta, environment: word, ratelimit: limit, ratelimits: named },
      ...{ concurrency: places, permissions, roles, managedBy, enabled: fc.boolean() },
      allowedIps: list(fc.constantFrom('192.0.2.0/24', '2001:DB8::/32', '192.0.2.7')),
      allowedOrigins: list(fc.constantFrom('https://app.example.com', 'https://*.example.com')),
      expires: fc.constant(Date.UTC(2100, 0)),
    }),
    credits,
  )
  .map(([fields, more]) => ({ ...fields, ...more }));

interface Kind {
  readonly fields: fc.Arbitrary<object>;
  readonly make: string;
  readonly read: string;
  readonly change: string;
  /** Returns how calls refer to the thing that a call made. */
  readonly refer: (made: Record<string, unknown>) => object;
  /** Fields of a new one. */
  readonly more?: () => object;
}
let made = 0;
const KINDS: Readonly<Record<string, Kind>> = {
  key: {
    fields: fieldsOfKey,
    ...{ make: 'keys.createKey', read: 'keys.getKey', change: 'keys.updateKey' },
    ...{ refer: ({ keyId }) => ({ keyId }), more: () => ({ apiId: 'shop' }) },
  },
  API: {
    fields: some<unknown>({
      ...{ defaultPrefix: word, defaultBytes: whole(16, 255), managedBy },
      ...{ defaultLifetimeMs: whole(60_000, 1e9), maxLifetimeMs: whole(1e9, 1e10) },
      disableUnusedAfterMs: whole(86_400_000, 1e10),
    }),
    ...{ make: 'apis.createApi', read: 'apis.getApi', change: 'apis.updateApi' },
    ...{ refer: ({ apiId }) => ({ apiId }), more: () => ({ name: 'An API' }) },
  },
  role: {
    fields: some<unknown>({
      ...{ description: text, permissions, managedBy, concurrency: places },
      ratelimits: named.map((each) => each.map((limit, i) => (i ? limit : { ...limit, per: 'identity' }))),
    }),
    ...{ make: 'permissions.createRole', read: 'permissions.getRole', change: 'permissions.updateRole' },
    ...{ refer: ({ roleId }) => ({ roleId }), more: () => ({ name: `role-${made++}` }) },
  },
  permission: {
    fields: some<unknown>({ name: text, description: text, managedBy }),
    ...{ make: 'permissions.createPermission', read: 'permissions.getPermission' },
    change: 'permissions.updatePermission',
    refer: ({ permissionId }) => ({ permissionId }),
    more: () => ({ name: 'A permission', slug: `permission-${made++}` }),
  },
  identity: {
    fields: fc
      .tuple(
        some<unknown>({
          ...{ meta, ratelimits: named, concurrency: places, roles, managedBy, enabled: fc.boolean() },
          apiIds: list(fc.constantFrom('shop', 'other'), 1),
        }),
        credits,
      )
      .map(([fields, each]) => (Object.keys(each).length > 0 ? { ...fields, credits: each } : fields)),
    ...{ make: 'identities.createIdentity', read: 'identities.getIdentity' },
    change: 'identities.updateIdentity',
    refer: () => ({ externalId: `customer-${made}` }),
    more: () => ({ externalId: `customer-${++made}` }),
  },
  webhook: {
    fields: some<unknown>({
      ...{ name: text, events: list(fc.constantFrom('key.*', 'api.deleted'), 1), managedBy },
      apiIds: list(fc.constantFrom('shop', 'other'), 1),
    }),
    ...{ make: 'webhooks.createEndpoint', read: 'webhooks.getEndpoint', change: 'webhooks.updateEndpoint' },
    refer: ({ endpointId }) => ({ endpointId }),
    more: () => ({ url: 'https://hooks.example.com/' }),
  },
};

/** The fields of an answer that a change takes. */
function changeable(change: string, answer: Record<string, unknown>) {
  const of = operations.find(({ name }) => name === change)?.request.properties ?? {};
  return Object.fromEntries(Object.entries(answer).filter(([name]) => name in of));
}
/** An answer without what tells of changes. */
const lasting = ({ sequence: _, updatedAt: __, ...fields }: Record<string, unknown>) => fields;

test.each(Object.entries(KINDS))(
  '%s: as shown, sent back, changes nothing',
  async (_name, { fields, make, read, change, refer, more }) => {
    const property = fc.asyncProperty(fields, async (given) => {
      const it = refer(await fleet.ok(make, { ...more?.(), ...given }));
      const shown = await fleet.ok(read, it);
      const sent = changeable(change, shown);
      for (const name of Object.keys(given))
        if (!(name in shown)) expect(Object(given)[name]).toHaveLength(0);
      if (Object.keys(sent).length > 0) await fleet.ok(change, { ...it, ...sent });
      expect(lasting(await fleet.ok(read, it))).toEqual(lasting(shown));
      if (make === 'webhooks.createEndpoint') await fleet.ok('webhooks.deleteEndpoint', it);
    });
    await fc.assert(property, { numRuns: 40 });
  },
);
