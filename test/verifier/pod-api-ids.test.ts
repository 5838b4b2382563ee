import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(() => fleet.stop());

test.each([
  ['an annotation of the pod goes before the ConfigMap', { API_IDS: 'a', POD_API_IDS: 'b' }, 'b'],
  ['without one it is what the ConfigMap says', { API_IDS: 'a', POD_API_IDS: '' }, 'a'],
])('%s', async (_, env, only) => {
  for (const apiId of ['a', 'b']) await fleet.admin('apis.createApi', { name: apiId, apiId });
  await fleet.addVerifier(env);
  const keys = {
    a: await fleet.ok('keys.createKey', { apiId: 'a' }),
    b: await fleet.ok('keys.createKey', { apiId: 'b' }),
  };
  for (const [apiId, { key }] of Object.entries(keys))
    expect(await fleet.verdict(key)).toBe(apiId === only ? 'VALID' : 'FORBIDDEN');
  await fleet.verifiers.pop()?.stop();
});
