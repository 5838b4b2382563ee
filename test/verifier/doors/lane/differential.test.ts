import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CLIENT_SHAPES } from '../../../harness/client-shapes.ts';
import { conversation, cutAt } from '../../../harness/raw-requests.ts';
import { share } from '../../../harness/share.ts';
import { verifierSubject } from '../../../harness/side-by-side.ts';
import { OFFERS, SHAPES } from '../../../harness/smuggling-shapes.ts';
import { verifyKey } from '../../../harness/wire.ts';

/** Conversations to generate; more = a longer search. A failure prints the seed and path that find it again. */
const RUNS = Number(process.env['DIFFERENTIAL_RUNS'] ?? 250);
const SEED = process.env['DIFFERENTIAL_SEED'];

const lane = verifierSubject({ FAST_LANE: true, BODY_BYTES_MAX: 1024 });
const reference = verifierSubject({ FAST_LANE: false, BODY_BYTES_MAX: 1024 });

beforeAll(() => Promise.all([lane.start(), reference.start()]));
afterAll(() => Promise.all([lane.stop(), reference.stop()]));

/** The same, asked of the second generation of the interface. */
const asV2 = (text: string) => text.replaceAll('/v1/keys.verifyKey', '/v2/keys.verifyKey');

/** Says the same to both, and checks that nobody could tell them apart. */
async function same(writes: readonly Buffer[], manner: 'patient' | 'hurried' = 'patient'): Promise<void> {
  const [ours, nodes] = await Promise.all([lane.hear(writes, manner), reference.hear(writes, manner)]);
  expect(ours).toEqual(nodes);
}

const COMMON = verifyKey({ key: 'good' }, ['X-Request-Id: before']);
const NEXT = verifyKey({ key: 'disabled', apiId: 'payments' }, ['X-Request-Id: after']);

test.each(Object.entries(SHAPES))('%s is read as by Node, wherever it stands', async (name, shape) => {
  for (const text of [shape, COMMON + shape, asV2(shape)]) await same([Buffer.from(text, 'latin1')]);
  if (OFFERS.includes(name)) return;
  for (const text of [shape + NEXT, COMMON + shape + NEXT, shape + shape])
    await same([Buffer.from(text, 'latin1')]);
});

test.each(OFFERS)('answers what comes together with %s, in order', async (offer) => {
  const { answered, asked } = await lane.hear([Buffer.from(SHAPES[offer] + NEXT)], 'patient');
  expect(answered.match(/"code":"\w+"/g)).toEqual(['"code":"VALID"', '"code":"DISABLED"']);
  expect(asked).toEqual(['disabled of payments', 'good of undefined', 'rich of undefined']);
});

const FETCH =
  'host: localhost:3001\r\nconnection: keep-alive\r\ncontent-type: application/json\r\naccept: */*\r\naccept-language: *\r\nsec-fetch-mode: cors\r\nuser-agent: node\r\naccept-encoding: gzip, deflate\r\ncontent-length: 14';
const GO =
  'Host: localhost:3001\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 14\r\nContent-Type: application/json\r\nAccept-Encoding: gzip';
const NGINX =
  'X-Original-Method: GET\r\nX-Original-URI: /a?b\r\nHost: keyfence\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nAuthorization: Bearer good';
const CADDY =
  'Host: localhost:3001\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nX-Api-Key: good\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: api\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Uri: /a?b\r\nAccept-Encoding: gzip';
test.each([
  ['fetch of Node', `POST /v1/keys.verifyKey HTTP/1.1\r\n${FETCH}\r\n\r\n{"key":"good"}`],
  ['fetch of Node, second generation', `POST /v2/keys.verifyKey HTTP/1.1\r\n${FETCH}\r\n\r\n{"key":"good"}`],
  ['Go', `POST /v1/keys.verifyKey HTTP/1.1\r\n${GO}\r\n\r\n{"key":"good"}`],
  ['nginx', `GET /authz/api/payments/auth-request HTTP/1.1\r\n${NGINX}\r\n\r\n`],
  ['Caddy', `GET /authz/forward-auth?b HTTP/1.1\r\n${CADDY}\r\n\r\n`],
])('what %s sends is answered by the lane itself', async (_client, text) => {
  const before = { ...lane.server.lane };
  await same([Buffer.from(text + text), Buffer.from(text)]);
  // One more is the probe.
  expect(lane.server.lane).toEqual({ ...before, answered: before.answered + 4 });
});

test.each(Object.entries(CLIENT_SHAPES))(
  'the lane answers %s in any number of writes',
  async (_client, [head, body]) => {
    const before = { ...lane.server.lane };
    const whole = Buffer.from(head + body);
    const ways = [[whole], cutAt(whole, [head.length]), cutAt(whole, Array.from(whole.keys()))];
    for (const writes of ways) await same(writes);
    for (const writes of ways) await same(writes, 'hurried');
    // One more is the probe, where the connection is still open.
    const isLast = /HTTP\/1.0(?!.*keep-alive)|close/is.test(head);
    const answered = before.answered + 2 * ways.length + (isLast ? 0 : ways.length);
    expect(lane.server.lane).toEqual({ ...before, answered });
    // A second one on the same connection.
    await same([...cutAt(whole, [head.length]), ...cutAt(whole, [head.length])]);
    if (isLast) await same([Buffer.concat([whole, whole])]);
    expect(lane.server.lane.handedOver).toBe(before.handedOver);
  },
);

test.each([
  '"authorization":{"permissions":"a"}}',
  '"authorization": {"permissions": "a AND (b.c OR d)"} }',
  '"authorization":{"permissions":{"or":["d",{"and":["a","b.c"]}]}}}\r\n',
  '"remaining":{"cost":0},"authorization":{"permissions":"d"}}',
  '"authorization":{"permissions":"d"},"authorization":{"permissions":"a"}}',
  '"authorization":{"permissions":"a"},"apiId":"payments"}',
  '"authorization":{"permissions":"a"},"key":"disabled"}',
  '"authorization":{"permissions":"a"},"tags":["b"]}',
  '"authorization":{"permissions":"a"}',
  '"authorization":{"permissions":"a"}}}',
  '"authorization":{"permissions":"a AND"}}',
  '"authorization":{"permissions":"\u00e9"}}',
  '"remaining":{"cost":1e99}}',
  '"__proto__":{"permissions":"d"}}',
  '"ratelimits":[]}',
])('after a key, %s is read as by the reference', async (end) => {
  const ask = (start: string) => Buffer.from(verifyKey(`${start},${end}`));
  for (const api of ['', ',"apiId":"payments"'])
    for (const key of ['permitted', 'good', 'permitted', 'disabled', 'stripped'])
      await same([ask(`{"key":"${key}"${api}`), ask(`{"key":"good"`), ask(`{ "key":"${key}"`)]);
});

test.each([
  '"permissions":"a"}',
  '"permissions":"a AND (b.c OR d)","credits":{"cost":0}}',
  '"permissions":{"or":["a"]}}',
  '"credits":{"cost":1},"migrationId":"m"}',
  '"credits":{}}',
  '"migrationId":7}',
  '"ratelimits":[]}',
  '"apiId":"payments"}',
  '"authorization":{"permissions":"a"}}',
  '"remaining":{"cost":1}}',
  '"tags":["a"]}',
])('v2 reads, after a key, %s as its reference', async (end) => {
  const ask = (start: string) => Buffer.from(asV2(verifyKey(`${start},${end}`)));
  for (const key of ['permitted', 'good', 'rich', 'disabled', 'none', 'down', 'slow-good', 'permitted'])
    await same([
      ask(`{"key":"${key}"`),
      Buffer.from(verifyKey(`{"key":"${key}",${end}`)),
      ask(`{ "key":"${key}"`),
    ]);
});

test('tells a broken request from a slow one', async () => {
  const [head, body] = CLIENT_SHAPES['LWP, at first, verifyKey'] ?? [];
  for (const text of [
    COMMON,
    SHAPES['a gateway that asks about an API'],
    `${NEXT}${head}${body}`,
    asV2(COMMON),
  ]) {
    const bytes = Buffer.from(text ?? '');
    for (const manner of ['patient', 'hurried'] as const) {
      for (const end of share(Array.from(bytes.keys()).slice(1), 12))
        await same([bytes.subarray(0, end)], manner);
    }
  }
});

test('it makes no difference where the network cuts', async () => {
  const texts = [
    COMMON + NEXT,
    verifyKey({ key: 'slow-good' }) + NEXT + verifyKey({ key: 'down' }),
    SHAPES['chunked'],
    SHAPES['HTTP/1.0 that keeps alive'] + NEXT,
    SHAPES['a gateway with a length'] + verifyKey({ key: 'slow-good' }, ['Connection: TE, close']) + NEXT,
    SHAPES['length 1 4'],
    SHAPES['two lengths'] + NEXT,
    SHAPES['chunked after a blank before the colon'],
  ];
  for (const text of texts) {
    const bytes = Buffer.from(text ?? '', 'latin1');
    for (const manner of ['patient', 'hurried'] as const) {
      for (const at of share(Array.from(bytes.keys()).slice(1), 12)) await same(cutAt(bytes, [at]), manner);
      await same(cutAt(bytes, Array.from(bytes.keys())), manner);
    }
  }
});

test(
  `${RUNS} conversations, well-formed and damaged, go the same way`,
  async () => {
    const before = { ...lane.server.lane };
    await fc.assert(
      fc.asyncProperty(conversation, ([writes, manner]) => same(writes, manner)),
      { numRuns: RUNS, ...(SEED === undefined ? {} : { seed: Number(SEED) }) },
    );
    // The comparison is worth nothing where one of the ways is hardly used.
    const { answered, delegated, handedOver } = lane.server.lane;
    expect(answered - before.answered).toBeGreaterThan(RUNS / 4);
    expect(delegated - before.delegated).toBeGreaterThan(RUNS / 10);
    expect(handedOver - before.handedOver).toBeGreaterThan(RUNS / 4);
  },
  60_000 + 20 * RUNS,
);
