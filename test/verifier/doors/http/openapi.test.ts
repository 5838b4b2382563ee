import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { Document, inputsOf, type Operation } from '../../../harness/openapi.ts';

let fleet: Fleet;
let base: string;
let document: Document;
let verifyKey: Operation;

beforeAll(async () => {
  fleet = await Fleet.start();
  base = fleet.verifiers[0]?.address ?? '';
  document = new Document((await fleet.get(`${base}/openapi.json`)).body);
  verifyKey = document.operations[0] as Operation;
});
afterAll(() => fleet.stop());

test('is OpenAPI 3.1 and says how calls end', async () => {
  await document.check();
  expect(document.operations).toHaveLength(17);
  for (const { responses } of document.operations) {
    expect(Object.keys(responses)).toEqual(expect.arrayContaining(['200', '503']));
  }
  expect(Object.keys(verifyKey.responses)).toEqual(
    expect.arrayContaining(['200', '400', '413', '415', '503']),
  );
});

test('every verdict is as documented', async () => {
  const details = { name: 'Ada', externalId: 'ada', meta: { plan: 'pro' }, expires: Date.now() + 1_000_000 };
  const [plain, detailed, disabled, expiring] = await Promise.all([
    fleet.ok('keys.createKey', { apiId: 'documented' }),
    fleet.ok('keys.createKey', { apiId: 'documented', ...details }),
    fleet.ok('keys.createKey', { apiId: 'documented', enabled: false }),
    fleet.ok('keys.createKey', { apiId: 'documented', expires: Date.now() + 3000 }),
  ]);
  const ask = async (key: string, apiId?: string) => {
    const answer = await fleet.verifyOnce(key, apiId === undefined ? {} : { apiId });
    expect(document.faults(verifyKey, answer)).toEqual([]);
    return answer.body.code;
  };
  for (const key of [plain.key, detailed.key, disabled.key, expiring.key]) await fleet.verdict(key);
  expect(await ask(plain.key)).toBe('VALID');
  expect(await ask(detailed.key)).toBe('VALID');
  expect(await ask(disabled.key)).toBe('DISABLED');
  expect(await ask(plain.key, 'other')).toBe('FORBIDDEN');
  expect(await ask('nobody')).toBe('NOT_FOUND');
  await fleet.until(async () => (await ask(expiring.key)) === 'EXPIRED');
});

test('every v2 verdict is as documented', async () => {
  const apiId = 'documented-v2';
  const details = { name: 'Ada', externalId: 'ada', meta: { plan: 'pro' }, permissions: ['a'] };
  const limits = { remaining: 1, ratelimit: { limit: 10, duration: 60_000 } };
  const keys = await Promise.all(
    [{}, { ...details, ...limits }, { enabled: false }].map((fields) =>
      fleet.ok('keys.createKey', { apiId, ...fields }),
    ),
  );
  const operation = document.operations.find(({ operationId }) => operationId === 'verifyKeyV2') as Operation;
  const codes: string[] = [];
  for (const key of [...keys.map(({ key }) => key), keys[1]?.key, 'nobody']) {
    await fleet.verdict(key ?? '', { remaining: { cost: 0 } });
    const answer = await fleet.decided(() =>
      fleet.post(`${base}/v2/keys.verifyKey`, { key, permissions: 'a' }),
    );
    expect(document.faults(operation, answer)).toEqual([]);
    codes.push(answer.body.data.code);
  }
  expect(codes).toEqual(['INSUFFICIENT_PERMISSIONS', 'VALID', 'DISABLED', 'USAGE_EXCEEDED', 'NOT_FOUND']);
  const refused = await fleet.post(`${base}/v2/keys.verifyKey`, { key: 'k', apiId });
  expect(refused).toMatchObject({ status: 400, body: { error: { errors: [{ location: 'body.apiId' }] } } });
  expect(document.faults(operation, refused)).toEqual([]);
});

test('every answer to a gateway is as documented', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', permissions: ['a'] });
  await fleet.verdict(key);
  const gateways = document.operations.filter(({ path }) => path.startsWith('/authz/'));
  for (const operation of gateways) {
    const ask = async (apiId: string, headers: Readonly<Record<string, string>>, query = 'a') => {
      const named = operation.path.replace('{apiId}', apiId).replace('{query}', encodeURIComponent(query));
      const path = named.replace('{path}', 'books/1?page=2');
      const answer = await fleet.get(base + path, headers);
      const body = answer.body && typeof answer.body === 'string' ? JSON.parse(answer.body) : answer.body;
      expect(document.faults(operation, { ...answer, body }), operation.path).toEqual([]);
      return answer;
    };
    const passed = await ask('shop', { 'x-api-key': key });
    expect(passed.status).toBe(200);
    const promised = Object.keys(operation.responses['200']?.headers ?? {});
    expect(promised).toHaveLength(4);
    for (const name of promised) expect(passed.headers).toHaveProperty(name.toLowerCase());
    expect((await ask('shop', {})).status).toBe(operation.path.includes('optional') ? 200 : 401);
    expect((await ask('shop', { 'x-api-key': 'nobody' })).status).toBe(401);
    const other = await ask('other', { 'x-api-key': key });
    expect(other.status).toBe(operation.path.includes('{apiId}') ? 403 : 200);
    const lacking = await ask('shop', { 'x-api-key': key }, 'a AND b');
    expect(lacking.status).toBe(operation.path.includes('{query}') ? 403 : 200);
    const wrong = await ask('shop', { 'x-api-key': key }, 'a AND');
    expect(wrong.status).toBe(operation.path.includes('{query}') ? 400 : 200);
    const none = await ask('%1A', { 'x-api-key': key });
    expect(none.status).toBe(operation.path.includes('{apiId}') ? 404 : 200);
  }
});

test('answers any input as documented', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'fuzzed' });
  await fleet.verdict(key);
  await fc.assert(
    fc.asyncProperty(inputsOf(verifyKey, { key: [key], apiId: ['fuzzed'] }), async (input) => {
      const answer = await fleet.post(base + verifyKey.path, input);
      expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(500);
      expect(document.faults(verifyKey, answer)).toEqual([]);
    }),
    { numRuns: 100 },
  );
});
