import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operations } from '../../../../control-plane/operations.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

/** A client writes null by mistake, such as JSON for NaN. The answer shows that the field is gone. */
interface Schema {
  readonly type?: string;
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
}
const isRemovable = ({ anyOf = [] }: Schema) => anyOf.some(({ type }) => type === 'null');
const removableOf = ({ properties = {} }: Schema) =>
  Object.entries(properties).flatMap(([name, schema]) => (isRemovable(schema) ? [name] : []));

let fleet: Fleet;
/** What each operation is called about. */
const about: Record<string, object> = {};
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 5 });
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId: 'ada' });
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'staff' });
  const { permissionId } = await fleet.ok('permissions.createPermission', { name: 'read' });
  const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url: 'https://hooks.example.com/x' });
  Object.assign(about, {
    'keys.updateKey': { keyId },
    'keys.updateKeys': { apiId: 'shop', keyIds: [keyId] },
    'apis.updateApi': { apiId: 'shop' },
    'identities.updateIdentity': { identityId },
    'permissions.updateRole': { roleId },
    'permissions.updatePermission': { permissionId },
    'webhooks.updateEndpoint': { endpointId },
  });
});
afterAll(() => fleet.stop());

const changes = operations.filter(({ kind, ...rest }) => kind === 'change' && !('adds' in rest));
const cases = changes.flatMap(({ name, request }) =>
  removableOf(request as Schema).map((field) => [name, field] as const),
);

describe('a call that removes a field says so', () => {
  test.each(cases)('%s: %s', async (name, field) => {
    // Without credits, there is nothing to refill.
    if (name === 'keys.updateKey') await fleet.ok(name, { ...about[name], remaining: 5 });
    const body = { ...about[name], [field]: null };
    const answer = await fleet.post(`${fleet.controlPlanes[0]?.address}/v1/${name}`, body, {
      authorization: `Bearer ${ROOT_KEY}`,
    });
    expect(answer.status, JSON.stringify(answer.body)).toBe(200);
    expect(answer.body.removed).toEqual([field]);
  });

  test('also what is inside a field, and nothing else', async () => {
    const ada = { externalId: 'ada' };
    await fleet.ok('identities.updateIdentity', { ...ada, credits: { remaining: 3 } });
    const removed = await fleet.ok('identities.updateIdentity', { ...ada, credits: { refill: null } });
    expect(removed.removed).toEqual(['credits.refill']);
    const meta = { plan: null };
    expect(await fleet.ok('identities.updateIdentity', { ...ada, meta })).not.toHaveProperty('removed');
  });

  test('of every operation whose fields can be removed', () => {
    expect(new Set(cases.map(([name]) => name))).toEqual(new Set(Object.keys(about)));
  });
});
