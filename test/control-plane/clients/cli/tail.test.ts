import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { envOf, start } from './keyfence.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { USAGE_PERIOD_MS: '50' } });
});
afterAll(() => fleet.stop());

const keyIn = (apiId: string, fields: object = {}) =>
  fleet.ok('keys.createKey', { apiId, enabled: false, ...fields });
const refused = async (key: string): Promise<string> => (await fleet.verify(key)).body.requestId;

/** A running `keyfence tail`. */
function tail(args: string, env = {}) {
  const { child, ended } = start(['tail', ...args.split(' ')], envOf(fleet, env));
  let text = '';
  let complaints = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    complaints += chunk.toString();
  });
  return {
    lines: () => text.split('\n').slice(0, -1),
    shows: (part: string) => fleet.until(() => text.includes(part), `${part} in:\n${text}`),
    complains: (part: string) => fleet.until(() => complaints.includes(part)),
    async stop() {
      child.kill('SIGINT');
      return ended;
    },
  };
}

test('prints each refusal once, until Ctrl-C', async () => {
  const { key } = await keyIn('shop', { name: 'Ada\u001b[2J', externalId: 'acme' });
  const other = await keyIn('books');
  const requestId = await refused(key);
  const { lines, shows, stop } = tail('--refused');
  await shows('DISABLED');
  const earlier = lines();
  expect(earlier).toHaveLength(1);
  const head = key.slice(0, 4);
  expect(earlier[0]).toMatch(
    new RegExp(
      `^\\d{4}-[-\\dT:.]+Z  DISABLED {16}  the key is disabled  acme  Ada\\\\u001b\\[2J \\(${head}\\S*…\\)  shop  ${requestId}$`,
    ),
  );
  await refused(other.key);
  await shows('books');
  await refused(key);
  await fleet.until(() => lines().length === 3);
  const { status, stderr } = await stop();
  expect({ status, stderr, count: lines().length }).toEqual({
    ...{ status: 0, stderr: 'Earlier:\nFrom now on:\n', count: 3 },
  });
  expect(lines().join('\n')).not.toContain(key);
});

test('of one customer or one verdict, by the name of an API', async () => {
  await fleet.ok('apis.createApi', { apiId: 'named', name: 'The Shop' });
  const [mine, other] = [
    await keyIn('named', { externalId: 'only' }),
    await keyIn('named', { externalId: 'other' }),
  ];
  const { child, ended } = start(
    ['tail', '--api', 'The Shop', '--customer', 'only', '--code', 'disabled'],
    envOf(fleet),
  );
  let text = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  const absent = await refused(other.key);
  const requestId = await refused(mine.key);
  await fleet.until(() => text.includes(requestId), `${requestId} in ${text}`);
  child.kill('SIGINT');
  expect((await ended).status).toBe(0);
  expect(text).not.toContain(absent);
});

test('of one API, as JSON', async () => {
  const { key, keyId } = await keyIn('one');
  await refused((await keyIn('another')).key);
  const { lines, shows, stop } = tail('--refused --api one --json');
  const requestId = await refused(key);
  await shows(requestId);
  expect((await stop()).status).toBe(0);
  const refusals = lines().map((line) => JSON.parse(line));
  expect(refusals).toMatchObject([{ apiId: 'one', keyId, code: 'DISABLED', requestId }]);
});

test('goes on after an outage', async () => {
  const { key } = await keyIn('outage', { name: 'Zoe' });
  const { shows, complains, stop } = tail('--refused --api outage');
  await fleet.redis.stop();
  try {
    await complains('trying again');
  } finally {
    await fleet.startRedis();
  }
  await fleet.decided(() => fleet.verify(key));
  await refused(key);
  await shows('Zoe');
  expect((await stop()).status).toBe(0);
});

test('says where there is nothing to follow', async () => {
  expect(await start(['tail', '--api', 'absent'], envOf(fleet)).ended).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('api absent not found'),
  });
  const { key } = await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions: ['api.shop.read_api'] });
  expect(await start(['tail'], envOf(fleet, { KEYFENCE_ROOT_KEY: key })).ended).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('name one with --api'),
  });
});
