import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { envOf, start } from './keyfence.ts';

let fleet: Fleet;
beforeAll(async () => {
  const TOKEN_KEY = 'a secret of tokens, long enough for all';
  fleet = await Fleet.start({ env: { TOKEN_KEY, LEASE_MS: '5000', FENCE_WAIT_MS: '500' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
  await fleet.ok('apis.updateApi', { apiId: 'shop', tokens: true, tokenLeewayMs: 0 });
});
afterAll(() => fleet.stop());

const run = (args: readonly string[]) => start(args, envOf(fleet)).ended;
const newKey = async () => {
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await fleet.verdict(key);
  return keyId as string;
};
const newOwner = async () => {
  const externalId = `owner-${++owners}`;
  await fleet.ok('keys.createKey', { apiId: 'shop', externalId });
  return externalId;
};
let owners = 0;

test.each([
  ['a disable', async () => ['keys', 'disable', await newKey()]],
  ['a deletion', async () => ['keys', 'delete', await newKey(), '--yes']],
  ['many', async () => ['keys', 'disable', '--api', 'shop', '--owner', await newOwner()]],
  ['an identity', async () => ['identities', 'disable', await newOwner()]],
  [
    'audiences',
    async () => ['apis', 'update', 'shop', '--token-audiences', 'shop,https://files.example.com'],
  ],
  ['the leeway', async () => ['apis', 'update', 'shop', '--token-leeway-ms', '0']],
])('the command line asks on until tokens have ended: %s', async (_, args) => {
  const { status, stdout, stderr } = await run(await args());
  expect(stderr).toMatch(/Verifiers have applied change \d+\. Waiting until .* for tokens from before\./);
  expect({ status, stdout }).toEqual({ status: 0, stdout: expect.stringContaining('complete, change') });
});

test('who says how long to wait gets the exit status of what is pending', async () => {
  const { status, stdout } = await run(['keys', 'disable', await newKey(), '--wait', '1']);
  expect({ status, stdout }).toMatchObject({
    status: 75,
    stdout: expect.stringContaining('a token from before'),
  });
});
