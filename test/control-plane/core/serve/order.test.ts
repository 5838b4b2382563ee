import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { callCounter } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { blockFor } from '../../../harness/waiting.ts';

/** Calls with two faults each: the answer is to the one whose step comes first. */
let fleet: Fleet;
/** Two root keys in Redis, of which the second may not do what the calls do, and one of the configuration. */
let full: Holder;
let limited: Holder;
const CONFIGURED: Holder = { rootKey: ROOT_KEY, rootKeyId: '' };
/** A key of an API. */
let secret = '';
/** Webhook endpoint that answers when it is told to, so that a call that tests it keeps its turn. */
let release: ((response: ServerResponse) => void) | undefined;
const hook = createServer((_request, response) => release?.(response));
let endpointId = '';
/** The usual control plane, and one that refuses calls while the event loop lags. */
const [USUAL, SHEDDING] = [0, 1];
const CALLS_MAX = 10_000;

interface Holder {
  readonly rootKey: string;
  readonly rootKeyId: string;
}

beforeAll(async () => {
  const env = {
    API_AUTO_CREATE: 'false',
    WEBHOOK_NETWORKS: '127.0.0.0/8',
    FAILURES_PER_MINUTE: '0',
    ROOT_KEY_CALLS_PER_MINUTE: String(CALLS_MAX),
    ROOT_KEY_CALLS_AT_ONCE: '1',
    ROOT_KEY_CALLS_WAITING_MAX: '0',
  };
  fleet = await Fleet.start({ verifiers: 0, env });
  await fleet.addControlPlane({ ...env, EVENT_LOOP_DELAY_MS_MAX: '1' });
  await once(hook.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${Object(hook.address()).port}/`;
  ({ endpointId } = await fleet.ok('webhooks.createEndpoint', { url, events: ['key.expiring'] }));
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  secret = (await fleet.ok('keys.createKey', { apiId: 'shop' })).key;
  const holder = async (...permissions: string[]): Promise<Holder> => {
    const created = await fleet.ok('rootKeys.createRootKey', { name: 'any', permissions });
    return { rootKey: created.key, rootKeyId: created.rootKeyId };
  };
  const usual = ['root.*.update_webhook', 'api.*.read_api'];
  full = await holder(...usual, 'api.*.create_key', 'api.*.read_key', 'api.*.update_key');
  limited = await holder(...usual);
});
afterAll(async () => {
  hook.close();
  hook.closeAllConnections();
  await fleet.stop();
});

/** A call before it is sent. */
interface Draft {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string;
  readonly by: Holder | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly type: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** Text before and after the fields in the body. */
  readonly head: string;
  readonly tail: string;
}

interface Fault {
  /** The code of the answer and the beginning of its message. */
  readonly answer: string;
  readonly change: (draft: Draft) => Partial<Draft>;
}

const field = (name: string, value: () => unknown) => ({
  change: ({ fields }: Draft) => ({ fields: { ...fields, [name]: value() } }),
});
const noPath: Fault = {
  answer: 'NOT_FOUND no such path',
  change: ({ path }) => ({ path: path.replace('.', '.un') }),
};
const otherMethod: Fault = {
  answer: 'METHOD_NOT_ALLOWED this path accepts only',
  change: () => ({ method: 'PUT' }),
};
const noRootKey: Fault = { answer: 'UNAUTHORIZED Authorization', change: () => ({ by: undefined }) };
const wrongRootKey: Fault = {
  answer: 'UNAUTHORIZED Authorization',
  change: () => ({ by: { rootKey: 'wrong', rootKeyId: '' } }),
};
const otherSite: Fault = {
  answer: 'UNAUTHORIZED sessions are for pages of this server only',
  change: () => ({
    by: undefined,
    headers: { 'x-keyfence-csrf': 'any', 'sec-fetch-site': 'cross-site' },
  }),
};
const otherType: Fault = {
  answer: 'UNSUPPORTED_MEDIA_TYPE Content-Type',
  change: () => ({ type: 'text/plain' }),
};
const tooLarge: Fault = {
  answer: 'PAYLOAD_TOO_LARGE body',
  change: () => ({ tail: ' '.repeat(100_000) }),
};
const noJson: Fault = { answer: 'BAD_REQUEST body: is not JSON', change: () => ({ head: '{' }) };
const illFormed: Fault = {
  answer: 'BAD_REQUEST name: must be well-formed Unicode',
  ...field('name', () => '\ud800'),
};
const misplacedKey: Fault = {
  answer: 'BAD_REQUEST externalId: must not be a key',
  ...field('externalId', () => secret),
};
const unknownField: Fault = { answer: 'BAD_REQUEST nmae: unknown', ...field('nmae', () => 'x') };
const noPermission: Fault = {
  answer: 'INSUFFICIENT_PERMISSIONS the root key needs',
  change: () => ({ by: limited }),
};
const noApi: Fault = { answer: 'NOT_FOUND api nowhere not found', ...field('apiId', () => 'nowhere') };

/** Steps that refuse a call for no fault of its own. */
const SHED = 'SERVICE_UNAVAILABLE the control plane is overloaded; try again';
const TOO_MANY = `RATE_LIMITED more than ${CALLS_MAX} calls within a minute`;
const NO_TURN = 'RATE_LIMITED more than 0 calls of this root key are waiting';
const OUTAGE = 'SERVICE_UNAVAILABLE Redis';

/** Faults in the order of the steps that see them. The first two exclude each other, and so do the others. */
const BEFORE_COUNT = [noPath, otherMethod, noRootKey, wrongRootKey, otherSite];
const BODY_AS_SENT = [otherType, tooLarge, noJson, illFormed];
const CHECKED = [misplacedKey, unknownField];
const AFTER_TURN = [noPermission, noApi];
const isExclusive = (one: Fault, other: Fault) =>
  [BEFORE_COUNT.slice(0, 2), BEFORE_COUNT.slice(2)].some((all) => all.includes(one) && all.includes(other)) ||
  (BEFORE_COUNT.slice(2).includes(one) && other === noPermission);

type Call = readonly [method: 'GET' | 'POST', path: string, fields: object];

/** Sends a call with these faults; resolves with the code and the message of the answer. */
async function send(call: Call, faults: readonly Fault[], by: Holder = full, at = USUAL): Promise<string> {
  const [kind, callPath, callFields] = call;
  let draft: Draft = {
    ...{ method: kind, path: callPath, by, type: 'application/json', headers: {} },
    ...{ fields: { ...callFields }, head: '', tail: '' },
  };
  for (const { change } of faults) draft = { ...draft, ...change(draft) };
  const { method, path, type, fields, head, tail, headers } = draft;
  const authorization = draft.by && { authorization: `Bearer ${draft.by.rootKey}` };
  const isQuery = kind === 'GET';
  const query = isQuery ? `?${new URLSearchParams(fields as Record<string, string>)}` : '';
  const answer = await fleet.send(`${fleet.controlPlanes[at]?.address}${path}${query}`, {
    method,
    headers: { ...authorization, ...headers, ...(isQuery ? {} : { 'content-type': type }) },
    ...(isQuery ? {} : { body: head + JSON.stringify(fields) + tail }),
  });
  const { code, type: link = '#OK', message, detail = '' } = answer.body.error ?? {};
  return `${code ?? link.split('#')[1]} ${message ?? detail}`;
}

/** Runs something while each of these root keys has all its calls counted, or has a call that keeps the only turn. */
async function whileOverLimit(run: () => Promise<void>): Promise<void> {
  const counters = [full, limited].flatMap(({ rootKeyId }) =>
    ['GET', 'POST'].map((kind) => callCounter(`${rootKeyId}:${kind}`)),
  );
  for (const counter of counters) await fleet.client.set(counter, CALLS_MAX, 'PX', 600_000);
  await run().finally(() => fleet.client.del(counters));
}
async function whileNoTurn(by: Holder, run: () => Promise<void>, at = USUAL): Promise<void> {
  const arrived = Promise.withResolvers<ServerResponse>();
  release = arrived.resolve;
  const test = fleet.admin('webhooks.test', { endpointId }, { rootKey: by.rootKey, at });
  const response = await arrived.promise;
  // No good answer: that would end a pause of the endpoint, at a Redis that may be away by then.
  await run().finally(() => response.writeHead(500).end());
  expect((await test).status).toBe(200);
}

describe.each<Call>([
  ['POST', '/v1/keys.createKey', { apiId: 'shop' }],
  ['POST', '/v2/keys.createKey', { apiId: 'shop' }],
  ['GET', '/v1/apis.listKeys', { apiId: 'shop' }],
])('%s %s', (...call) => {
  const beforeTurn = call[0] === 'GET' ? CHECKED : [...BODY_AS_SENT, ...CHECKED];
  const inOrder = [...BEFORE_COUNT, ...beforeTurn, ...AFTER_TURN];
  /** Sends the call with each of these faults; each must be answered with `answer`, or with its own. */
  const expectAnswers = async (faults: readonly Fault[], by?: Holder, answer?: string) => {
    for (const fault of faults)
      expect([fault.answer, await send(call, [fault], by)]).toEqual([
        fault.answer,
        expect.stringContaining(answer ?? fault.answer),
      ]);
  };

  test('is answered without a fault', async () => {
    expect(await send(call, [])).toBe('OK ');
  });

  test('answers the first of two faults', async () => {
    const pairs = inOrder.flatMap((first, i) =>
      inOrder
        .slice(i + 1)
        .flatMap((second) => (isExclusive(first, second) ? [] : [[first, second] as const])),
    );
    for (const pair of pairs)
      for (const faults of [pair, pair.toReversed()])
        expect([pair.map(({ answer }) => answer), await send(call, faults)]).toEqual([
          expect.anything(),
          expect.stringContaining(pair[0].answer),
        ]);
  });

  test('is counted right after its root key is known', () =>
    whileOverLimit(async () => {
      await expectAnswers(BEFORE_COUNT);
      await expectAnswers([...beforeTurn, ...AFTER_TURN], full, TOO_MANY);
    }));

  test('waits its turn before permissions are checked', async () => {
    await whileNoTurn(full, async () => {
      await expectAnswers([...BEFORE_COUNT, ...beforeTurn]);
      await expectAnswers([noApi], full, NO_TURN);
      await whileOverLimit(async () => expect(await send(call, [])).toBe(TOO_MANY));
    });
    await whileNoTurn(limited, () => expectAnswers([noPermission], full, NO_TURN));
  });

  test('is refused under load before all else', async () => {
    const expectShed = (faults: readonly Fault[]) =>
      fleet.until(async () => (await send(call, faults, full, SHEDDING)) === SHED, faults[0]?.answer);
    const blocked = setInterval(() => blockFor(30), 1);
    try {
      await expectShed([]);
      for (const fault of inOrder) await expectShed([fault]);
      await whileOverLimit(() => expectShed([]));
    } finally {
      clearInterval(blocked);
    }
  });
});

describe('a call that may stop something', () => {
  const stop: Call = ['POST', '/v1/keys.updateKey', { keyId: 'key_none', enabled: false }];
  const rename: Call = ['POST', '/v1/keys.updateKey', { keyId: 'key_none', name: 'any' }];

  test('over its limit is refused by its parsed body', () =>
    whileOverLimit(async () => {
      for (const fault of BODY_AS_SENT) expect(await send(stop, [fault])).toContain(TOO_MANY);
      for (const fault of [misplacedKey, unknownField]) {
        expect(await send(rename, [fault])).toContain(TOO_MANY);
        expect(await send(stop, [fault])).toContain(fault.answer);
      }
      expect(await send(stop, [])).toBe('NOT_FOUND key key_none not found');
    }));

  test('is refused for its key before its permission', async () => {
    expect(await send(stop, [noPermission])).toBe('NOT_FOUND key key_none not found');
  });

  test('does not wait for others of its root key', () =>
    whileNoTurn(full, async () => {
      expect(await send(rename, [])).toBe(NO_TURN);
      expect(await send(stop, [])).toBe('NOT_FOUND key key_none not found');
    }));
});

test('an outage is the answer of the first step', async () => {
  const call: Call = ['POST', '/v1/keys.createKey', { apiId: 'shop' }];
  const perhapsKey: Fault = { answer: OUTAGE, ...field('externalId', () => 'perhaps an imported key') };
  const expectAnswer = async (by: Holder, answer: string, ...faults: readonly Fault[]) =>
    expect([faults.map((fault) => fault.answer), await send(call, faults, by)]).toEqual([
      expect.anything(),
      expect.stringContaining(answer),
    ]);
  await whileNoTurn(CONFIGURED, async () => {
    fleet.client.disconnect();
    await fleet.redis.stop();
    // To know a root key of the configuration needs no Redis.
    for (const fault of BEFORE_COUNT) await expectAnswer(full, fault.answer, fault);
    for (const fault of [...BODY_AS_SENT, ...CHECKED, ...AFTER_TURN]) await expectAnswer(full, OUTAGE, fault);
    for (const fault of [...BODY_AS_SENT, ...CHECKED]) {
      await expectAnswer(CONFIGURED, fault.answer, fault);
      if (BODY_AS_SENT.includes(fault)) await expectAnswer(CONFIGURED, fault.answer, fault, perhapsKey);
    }
    await expectAnswer(CONFIGURED, OUTAGE, perhapsKey, unknownField);
    await expectAnswer(CONFIGURED, NO_TURN, noApi);
  });
  await expectAnswer(CONFIGURED, OUTAGE, noApi);
});
