import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Document, type Operation } from '../../../harness/openapi.ts';
import { Receiver } from '../../subjects/webhooks/receiver.ts';

/** The examples of the reference: each is taken as it stands, and is answered in the form that the reference shows. */
const FILE = new URL('../../../../control-plane/core/serve/examples.json', import.meta.url);
/** `npm run examples` writes the answers anew. */
const isWriting = process.env['EXAMPLES'] === '1';

/** What stands in examples, by field. */
const SECRET = 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe';
const REQUEST_ID = '0mzc9k4q8r2wfXa1';
const HOOK = 'https://hooks.example.com/keyfence';
const TIME = 1_790_000_000_000;
const CONSTANT: Readonly<Record<string, unknown>> = {
  ...{ key: SECRET, start: SECRET.slice(0, 9), secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' },
  ...{ requestId: REQUEST_ID, sequence: 1, deliveryId: `d${TIME}-0`, address: '203.0.113.7' },
  ...{ host: 'api-1', member: '6.fZ-ZqOqH4V4xXBzU.1', leaseRemainingMs: 9000, waitedMs: 4, durationMs: 12 },
};
const ID = /\b([a-z]+)_(?:[0-9A-Za-z]{20}|[0-9a-f]{40})\b/g;
const exampleId = (kind: string) => `${kind}_0mzc9k4q8r2wfXa1Bc2d`;

/** Order of the calls: an API before its keys, what reads before what changes, what deletes last. */
const ORDER = [
  [/createApi/, /createRole$/, /createIdentity/, /createKey$/, /\.create/, /setOverride/],
  [/\.(get|list|explain|find|whoami)/, /\.(?!delete|end)/, /deleteOverride/, /delete(?!Api)|end/, /./],
].flat();
const rankOf = ({ path }: Operation) => ORDER.findIndex((pattern) => pattern.test(path));

const methodOf = (path: string) => path.slice('/v1/'.length);

describe.each(['/openapi.json', '/openapi-v2.json'])('the examples of %s', (name) => {
  let fleet: Fleet;
  let receiver: Receiver;
  let operations: readonly Operation[];
  let document: Document;
  const answers = new Map<string, Answer>();
  /** What stands in an example → what it is here. */
  const real = new Map<string, string>();

  const sendExample = async ({ path, method, parameters = [], requestBody }: Operation): Promise<Answer> => {
    const example =
      requestBody?.content['application/json']?.example ??
      Object.fromEntries(
        parameters.flatMap(({ name, example }) => (example === undefined ? [] : [[name, example]])),
      );
    const input = JSON.parse(JSON.stringify(example), (_name, value) => real.get(value) ?? value);
    const sequence = real.get(path);
    if (sequence) input.sequence = sequence;
    const url = `${fleet.controlPlanes[0]?.address}${path}`;
    const headers = { authorization: `Bearer ${ROOT_KEY}` };
    return method === 'GET'
      ? fleet.get(`${url}?${new URLSearchParams(input)}`, headers)
      : fleet.post(url, input, headers);
  };

  /** Makes another key, so that there is one to delete. */
  const makeKey = async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Ada' });
    real.set(exampleId('key'), keyId);
  };
  /** Makes what the next example needs. */
  const BEFORE: Readonly<Record<string, () => Promise<unknown>>> = {
    'keys.deleteKey': makeKey,
    'keys.deleteKeys': makeKey,
    'keys.updateRemaining': () =>
      fleet.ok('keys.updateRemaining', { keyId: real.get(exampleId('key')), op: 'set', value: 900 }),
    'identities.deleteIdentity': () =>
      fleet.ok('identities.updateIdentity', { externalId: 'ada', enabled: true }),
    // What waits for the endpoint would be in the answer.
    'webhooks.updateEndpoint': () =>
      fleet.until(async () => (await fleet.ok('webhooks.listEndpoints')).endpoints[0]?.waiting === 0),
  };

  /** Remembers what was made, and makes what later examples need. */
  const AFTER: Readonly<Record<string, (data: Record<string, string>) => Promise<void> | void>> = {
    'keys.createKey': async ({ keyId = '', key = '' }) => {
      real.set(exampleId('key'), keyId).set(SECRET, key);
      const changes = { externalId: 'ada', permissions: ['files.read'], roles: [{ name: 'editor' }] };
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, ...changes });
      real.set('/v1/keys.getPropagation', String(propagation.sequence));
      const ofApi = await fleet.ok('apis.updateApi', { apiId: 'shop', tokenAudiences: null });
      real.set('/v1/apis.getApiPropagation', String(ofApi.propagation.sequence));
      await fleet.verdict(key);
      const refused = await fleet.verify(key, { authorization: { permissions: 'files.write' } });
      real.set(REQUEST_ID, refused.body.requestId);
      await fleet.until(async () => (await fleet.ok('keys.listRefusals', { keyId })).refusals.length > 0);
      await fleet.until(async () => (await fleet.ok('keys.getKey', { keyId })).lastUsedAt !== undefined);
      await fleet.until(
        async () => (await fleet.ok('fleet.listVerifiers')).verifiers[0]?.sharedLog !== undefined,
      );
    },
    'permissions.createRole': async ({ roleId = '' }) => {
      real.set(exampleId('role'), roleId);
      const { propagation } = await fleet.ok('permissions.setRolePermissions', {
        roleId,
        permissions: ['articles.write'],
      });
      real.set('/v1/permissions.getRolePropagation', String(propagation.sequence));
    },
    'identities.createIdentity': async ({ identityId = '' }) => {
      real.set(exampleId('identity'), identityId);
      const { propagation } = await fleet.ok('identities.updateIdentity', {
        identityId,
        meta: { plan: 'pro' },
      });
      real.set('/v1/identities.getIdentityPropagation', String(propagation.sequence));
    },
    'rootKeys.createRootKey': ({ rootKeyId = '' }) => void real.set(exampleId('root'), rootKeyId),
    'webhooks.createEndpoint': async ({ endpointId = '' }) => {
      real.set(exampleId('endpoint'), endpointId);
      await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Grace' });
      await fleet.until(async () => {
        const { deliveries } = await fleet.ok('webhooks.listDeliveries', { endpointId });
        real.set(`d${TIME}-0`, deliveries[0]?.deliveryId ?? '');
        return deliveries[0]?.result === 'delivered';
      });
    },
    'rootKeys.listSessions': async () => {
      const [session] = (await fleet.ok('rootKeys.listSessions')).sessions;
      real.set(exampleId('session'), session.sessionId);
    },
  };

  beforeAll(async () => {
    receiver = await Receiver.start();
    real.set(HOOK, receiver.url);
    const periods = { STATUS_PERIOD_MS: '100', USAGE_PERIOD_MS: '100', WEBHOOK_NETWORKS: '127.0.0.0/8' };
    fleet = await Fleet.start({ env: periods });
    const base = fleet.controlPlanes[0]?.address ?? '';
    document = new Document((await fleet.get(base + name)).body);
    operations = document.operations.toSorted((a, b) => rankOf(a) - rankOf(b));
    await fleet.post(`${base}/dashboard/session`, { rootKey: ROOT_KEY });
    for (const operation of operations) {
      const { path } = operation;
      const method = methodOf(path);
      await BEFORE[method]?.();
      const answer = await sendExample(operation);
      answers.set(path, answer);
      const after = AFTER[method];
      if (answer.status === 200) await after?.({ ...answer.body, ...answer.body.data });
    }
  });
  afterAll(async () => {
    await fleet.stop();
    await receiver.stop();
  });

  test('are requests that succeed', () => {
    for (const [path, { status, body }] of answers)
      expect(status, `${path} ${JSON.stringify(body)}`).toBe(200);
    expect(answers.size).toBe(operations.length);
  });

  test('show each answer as it is and as its schema', () => {
    if (isWriting) {
      const shown = JSON.parse(readFileSync(FILE, 'utf8')) as Record<string, unknown>;
      for (const [path, { body }] of answers) shown[path] = exampleOf(body, receiver.url);
      const sorted = Object.fromEntries(Object.entries(shown).sort(([a], [b]) => (a < b ? -1 : 1)));
      writeFileSync(FILE, `${JSON.stringify(sorted, null, 2)}\n`);
      return;
    }
    for (const operation of operations) {
      const { path, responses } = operation;
      const { example } = responses['200']?.content?.['application/json'] ?? {};
      expect(formOf(example), path).toEqual(formOf(exampleOf(answers.get(path)?.body, receiver.url)));
      const answer = { status: 200, headers: { 'content-type': 'application/json' }, body: example };
      expect(document.faults(operation, answer), path).toEqual([]);
    }
  });
});

/** An answer with the values of examples in place of ids, secrets and times, and the last of a long list. */
function exampleOf(body: unknown, hook = ''): unknown {
  const ids = new Map<string, string>();
  const idFor = (id: string, kind: string) => {
    if (!ids.has(id)) {
      const count = [...ids.keys()].filter((other) => other.startsWith(`${kind}_`)).length;
      ids.set(id, exampleId(kind).slice(0, -1) + 'defghijklm'[count]);
    }
    return ids.get(id) ?? '';
  };
  return JSON.parse(JSON.stringify(body), (name, value) => {
    if (name in CONSTANT && typeof value === typeof CONSTANT[name]) return CONSTANT[name];
    if (typeof value === 'number' && value > 1e12) return TIME;
    if (Array.isArray(value) && value.length > 9) return value.slice(-1);
    if (typeof value !== 'string') return value;
    const text = value === hook ? HOOK : value.replace(ID, idFor);
    return text
      .replace(/(?<!\d)1\d{12}(?!\d)/, String(TIME))
      .replace(/^20.+T.+Z$/, new Date(TIME).toISOString());
  });
}

test('verifiers answer as their document shows', async () => {
  const fleet = await Fleet.start({
    env: { TOKEN_KEY: 'a secret of tokens, long enough for all', LEASE_MS: '5000' },
  });
  onTestFinished(() => fleet.stop());
  const fields = { apiId: 'shop', name: 'Ada', meta: { plan: 'pro' }, permissions: ['files.read'] };
  const { key } = await fleet.ok('keys.createKey', fields);
  await fleet.ok('apis.updateApi', { apiId: 'shop', tokens: true });
  await fleet.verdict(key);
  const metered = { name: 'Ada', remaining: 95, ratelimit: { limit: 100, duration: 60_000 } };
  const own = await fleet.ok('keys.createKey', { apiId: 'shop', ...metered });
  const paid = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 10_000 });
  const { hold } = (await fleet.verify(paid.key, { hold: { credits: 5000 } })).body;
  const base = fleet.verifiers[0]?.address ?? '';
  const document = new Document((await fleet.get(`${base}/openapi.json`)).body);
  const asked = document.operations.filter(({ requestBody }) => requestBody?.content['application/json']);
  for (const operation of asked) {
    const { path, requestBody, responses } = operation;
    const { example: request } = requestBody?.content['application/json'] ?? {};
    const input = JSON.parse(JSON.stringify(request), (name, value) =>
      value === SECRET ? key : name === 'hold' && typeof value === 'string' ? hold.id : value,
    );
    const authorization = path.endsWith('getSelf') ? { authorization: `Bearer ${own.key}` } : {};
    const answer = await fleet.decided(() => fleet.post(base + path, input, authorization));
    const body = responses['200']?.content?.['application/json']?.example;
    expect(answer.status, path).toBe(200);
    expect(formOf(body), path).toEqual(formOf(answer.body));
    expect(document.faults(operation, { ...answer, body }), path).toEqual([]);
  }
  expect(asked.map(({ path }) => path)).toEqual(
    expect.arrayContaining(['/v1/keys.verifyKey', '/v2/keys.verifyKey', '/v2/ratelimit.limit']),
  );
});

/** The names and types of all that is in a value. */
function formOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(formOf);
  if (typeof value !== 'object' || value === null) return typeof value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, formOf(part)]));
}
