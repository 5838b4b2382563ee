import fc from 'fast-check';

/** Names that the scripted answers know; `bug` apart, at which the lane asks twice. */
const KEYS = [
  'good',
  'rich',
  'disabled',
  'expired',
  'other',
  'nobody',
  'remote-good',
  'slow-good',
  'down',
  'poor',
  'empty',
  'remote-poor',
];
const API_IDS = ['payments', 'billing', 'a-_Z9', 'x'.repeat(64), 'x'.repeat(65), '', 'a b'];

const oneOf = (...values: string[]) => fc.constantFrom(...values);
/** Almost always the first, so that most requests stay common in most respects. */
const mostly = (usual: string, ...others: string[]) =>
  fc.oneof({ weight: 12, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: oneOf(...others) });

const key = fc.oneof(
  { weight: 8, arbitrary: oneOf(...KEYS) },
  {
    weight: 1,
    arbitrary: oneOf('', 'k'.repeat(512), 'k'.repeat(513), 'clé', '\\u0067ood', '\\ud800', 'a\\"b', ' good'),
  },
);

const body = fc
  .record({
    key,
    apiId: fc.option(mostly('payments', ...API_IDS), { freq: 3 }),
    remaining: fc.option(
      mostly(
        '{"cost":2}',
        '{"cost":0}',
        '{ "cost" : 3}',
        '{"cost":4}',
        '{}',
        '{"cost":-1}',
        '{"cost":1.5}',
        '{"cost":"1"}',
        '{"a":1}',
        'null',
        '3',
      ),
      { freq: 3 },
    ),
    authorization: fc.option(
      mostly(
        '{"permissions":"a"}',
        '{"permissions":"a AND (b.c OR d)"}',
        '{"permissions":"a AND d"}',
        '{ "permissions" : {"or":["d",{"and":["a","b.c"]}]}}',
        '{"permissions":{"and":[]}}',
        '{"permissions":{"and":["a"],"or":["a"]}}',
        '{"permissions":"a AND"}',
        '{"permissions":["a"]}',
        '{"permissions":null}',
        '{"permissions":"a","b":1}',
        '{}',
        'null',
      ),
      { freq: 3 },
    ),
    apiFirst: fc.boolean(),
    afterColon: mostly('', ' ', '  ', '\t'),
    afterComma: mostly('', ' ', '\n'),
    around: mostly('', ' ', '\r\n', '\ufeff'),
    end: mostly('}', '', '}}', ',}', ',"a":1}', ',"key":"rich"}', '}\0'),
  })
  .map(({ key, apiId, remaining, authorization, apiFirst, afterColon, afterComma, around, end }) => {
    const fields = [`"key":${afterColon}"${key}"`];
    if (apiId !== null) fields.push(`"apiId":${afterColon}"${apiId}"`);
    if (remaining !== null) fields.push(`"remaining":${afterColon}${remaining}`);
    if (authorization !== null) fields.push(`"authorization":${afterColon}${authorization}`);
    if (apiFirst) fields.reverse();
    return `${around}{${fields.join(`,${afterComma}`)}${end}${around}`;
  });

/** `N` is to become the length. */
const lengthHeader = mostly(
  'Content-Length: N',
  'content-length:N',
  'Content-Length: 0N',
  'Content-Length: N ',
  'A: b',
);

const otherHeaders = fc.subarray(
  [
    'Accept: */*',
    'User-Agent: curl/7.88.1',
    'accept-encoding: gzip, deflate, br',
    'Authorization: Bearer sk_something',
    'Cookie: a=b; c="d"',
    'Content-Encoding: gzip',
    'TE: trailers',
    'X-Forwarded-For: ::1',
    'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    'Priority: u=1',
  ],
  { maxLength: 4 },
);
const keylessHeaders = otherHeaders.map((lines) => lines.filter((line) => !line.startsWith('Authorization')));
/** Lines with which a request is no longer common, or only just. */
const oddHeaders = fc.subarray(
  [
    'Connection: keep-alive',
    'connection: Keep-Alive',
    'Connection: close',
    'Connection: keep-alive, x',
    'Connection: keep-alive, TE',
    'Connection: TE',
    'Connection: TE, close',
    'Content-Length: 0',
    'Keep-Alive: 300',
    'X-Request-Id: mine',
    'x-request-id: not mine',
    'Expect: 100-continue',
    'Upgrade: h2c',
    'Transfer-Encoding: identity',
    'Proxy-Connection: close',
    'Empty:',
    'Tabbed:\tvalue',
    'Latin: \u00e9',
    "!#$%&'*+.^_`|~: token",
  ],
  { maxLength: 2 },
);

/** A request of verifyKey, well-formed more often than not, as latin1. */
const question = fc
  .record({
    line: mostly(
      'POST /v1/keys.verifyKey HTTP/1.1',
      'POST /v2/keys.verifyKey HTTP/1.1',
      'POST /v1/keys.verifyKey HTTP/1.0',
      'POST /v1/keys.verifyKey HTTP/1.0\r\nConnection: keep-alive',
      'POST /v1/keys.verifyKey?a=b HTTP/1.1',
      'post /v1/keys.verifyKey HTTP/1.1',
      'POST  /v1/keys.verifyKey HTTP/1.1',
      'GET /v1/keys.verifyKey HTTP/1.1',
      'GET / HTTP/1.1',
    ),
    host: mostly('Host: a', 'host:a', 'HOST:  a ', 'Host:', 'X-Host: a'),
    type: mostly(
      'Content-Type: application/json',
      'content-type:application/json; charset=utf-8',
      'Content-Type: APPLICATION/json;charset=UTF-8',
      'Content-Type: application/json;',
      'Content-Type: text/plain',
      'Accept: application/json',
    ),
    length: lengthHeader,
    others: otherHeaders,
    odd: fc.oneof({ weight: 6, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: oddHeaders }),
    turn: fc.nat({ max: 12 }),
    body,
  })
  .map(({ line, host, type, length, others, odd, turn, body }) => {
    const bytes = Buffer.from(body).toString('latin1');
    const lines = [host, type, length.replace('N', String(bytes.length)), ...others, ...odd];
    const at = turn % lines.length;
    return `${[line, ...lines.slice(at), ...lines.slice(0, at)].join('\r\n')}\r\n\r\n${bytes}`;
  });

const ofGateway = fc
  .record({
    method: mostly('GET', 'HEAD', 'POST', 'OPTIONS'),
    target: oneOf(
      '/authz/auth-request',
      '/authz/forward-auth',
      '/authz/forward-auth?a=b&api_key=rich',
      '/authz/api/payments/auth-request',
      '/authz/api/billing/forward-auth',
      '/authz/ext-authz/orders/1?a',
      '/authz/api/payments/require/a%20AND%20(b.c%20or%20d)/forward-auth',
      '/authz/require/d/auth-request',
      '/authz/require/a/ext-authz/orders/1?a',
      '/authz/require/a%20AND/auth-request',
      '/authz/require/%zz/forward-auth',
      '/authz/nothing',
    ),
    host: mostly('Host: a', 'host:a', 'X-Host: a'),
    key: oneOf(...KEYS),
    scheme: mostly(
      'Authorization: Bearer ',
      'x-api-key:',
      'Authorization: Basic ',
      'authorization:bearer   ',
    ),
    also: fc.option(oneOf('X-Api-Key: good', 'X-Api-Key: rich', 'Authorization: Basic a'), { freq: 8 }),
    others: keylessHeaders,
    version: mostly('HTTP/1.1', 'HTTP/1.0', 'HTTP/1.0\r\nConnection: keep-alive'),
    odd: fc.oneof({ weight: 6, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: oddHeaders }),
  })
  .map(({ method, target, version, host, key, scheme, also, others, odd }) => {
    const lines = [host, ...others, scheme + key, ...(also === null ? [] : [also]), ...odd];
    return `${[`${method} ${target} ${version}`, ...lines].join('\r\n')}\r\n\r\n`;
  });

/** A request for one of `targets` behind a proxy, well-formed more often than not, as latin1. */
export const ofClient = (targets: readonly string[]): fc.Arbitrary<string> =>
  fc
    .record({
      method: fc.oneof(
        { weight: 12, arbitrary: oneOf('GET', 'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE') },
        { weight: 1, arbitrary: oneOf('OPTIONS', 'PURGE', 'TRACE', 'get') },
      ),
      target: oneOf(...targets),
      query: mostly('', '?', '?a=%20b&c', '?api_key=good', '?a&api_key=rich&b', '#a', '?a b'),
      version: mostly('HTTP/1.1', 'HTTP/1.0'),
      host: mostly('Host: a', 'host:a', 'HOST:  a ', 'Host:', 'X-Host: a', 'Host: a\r\nhost: b'),
      key: fc.oneof(
        { weight: 6, arbitrary: oneOf('good', 'rich') },
        { weight: 1, arbitrary: oneOf(...KEYS) },
      ),
      scheme: mostly('Authorization: Bearer ', 'x-api-key:', 'Authorization: Basic ', 'X_Api_Key: '),
      length: lengthHeader,
      body: fc.option(mostly('{"a":1}', '', '\0\xff', '0\r\n\r\n', 'b'.repeat(1024), 'b'.repeat(9000)), {
        freq: 2,
      }),
      others: keylessHeaders,
      ours: fc.subarray(
        [
          ...['X-Forwarded-For: 10.0.0.9', 'X-Key-Id: admin', 'x_key_role: admin', 'X-Request-Id: mine'],
          ...['Connection: X-Hop', 'X-Hop: 1', 'Connection: X-Api-Key, Host', 'Proxy-Authorization: Basic a'],
        ],
        { maxLength: 2 },
      ),
      odd: fc.oneof({ weight: 6, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: oddHeaders }),
      turn: fc.nat({ max: 12 }),
    })
    .map(({ method, target, query, version, host, key, scheme, length, body, others, ours, odd, turn }) => {
      const lines = [host, scheme + key, ...others, ...ours, ...odd];
      if (body !== null) lines.push(length.replace('N', String(body.length)));
      const at = turn % lines.length;
      const head = [`${method} ${target}${query} ${version}`, ...lines.slice(at), ...lines.slice(0, at)];
      return `${head.join('\r\n')}\r\n\r\n${body ?? ''}`;
    });

const request = fc.oneof({ weight: 2, arbitrary: question }, { weight: 1, arbitrary: ofGateway });

/** Bytes that break parsers, put in or in place of others. */
const FRAGMENTS = [
  '\r\n',
  '\n',
  '\r',
  '\0',
  ' ',
  '\t',
  '\x0b',
  '\x7f',
  '\x80',
  '\xff',
  ':',
  ',',
  '"',
  '\\',
  '0',
  '1',
  '+',
  '-',
  '\r\n ',
  '\r\n\t',
  '\r\n\r\n',
  '\n\n',
  '\r\nHost: b',
  '\r\nX-Api-Key: rich',
  '\r\nContent-Length: 5',
  '\r\nTransfer-Encoding: chunked',
  '\r\nConnection: close',
  '0\r\n\r\n',
  'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
];

const mutation = fc.record({
  kind: oneOf('insert', 'replace', 'delete', 'repeat line', 'swap case', 'end line'),
  /** Place, as a part of the whole. */
  at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  fragment: oneOf(...FRAGMENTS),
  length: fc.integer({ min: 1, max: 4 }),
});

type Mutation = typeof mutation extends fc.Arbitrary<infer T> ? T : never;

function mutate(text: string, { kind, at, fragment, length }: Mutation) {
  const i = Math.floor(at * text.length);
  const [before, rest] = [text.slice(0, i), text.slice(i)];
  switch (kind) {
    case 'insert':
      return before + fragment + rest;
    case 'replace':
      return before + fragment + rest.slice(length);
    case 'delete':
      return before + rest.slice(length);
    case 'swap case':
      return before + rest.charAt(0).toUpperCase() + rest.slice(1, length).toLowerCase() + rest.slice(length);
    case 'repeat line': {
      const line = text.slice(text.lastIndexOf('\n', i) + 1, text.indexOf('\n', i) + 1);
      return text.slice(0, text.lastIndexOf('\n', i) + 1) + line + text.slice(text.lastIndexOf('\n', i) + 1);
    }
    default: {
      const end = text.indexOf('\r\n', i);
      return end < 0 ? text : text.slice(0, end) + fragment + text.slice(end + 2);
    }
  }
}

/**
 * Some requests one after the other, mostly well-formed, then damaged in up to three places, and cut into writes;
 * and whether the client waits for answers between them. Two to `damaged` are whole.
 */
export const conversationOf = (
  request: fc.Arbitrary<string>,
  damaged = 3,
): fc.Arbitrary<[Buffer[], 'patient' | 'hurried']> =>
  fc
    .record({
      requests: fc.array(request, { minLength: 1, maxLength: 4 }),
      mutations: fc.oneof(
        { weight: 2, arbitrary: fc.constant<Mutation[]>([]) },
        { weight: damaged, arbitrary: fc.array(mutation, { minLength: 1, maxLength: 3 }) },
      ),
      cuts: fc.oneof(
        { weight: 2, arbitrary: fc.constant<number[]>([]) },
        { weight: 1, arbitrary: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 3 }) },
      ),
      manner: fc.constantFrom('patient', 'hurried'),
    })
    .map(({ requests, mutations, cuts, manner }) => {
      const text = mutations.reduce(mutate, requests.join(''));
      const bytes = Buffer.from(text, 'latin1');
      const places = cuts.map((cut) => Math.floor(cut * bytes.length));
      return [cutAt(bytes, places), manner];
    });

/** Conversations of clients and gateways with a verifier. */
export const conversation = conversationOf(request);

/** The same bytes in as many writes as there are places to cut at. */
export function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set([...places, bytes.length])].filter((end) => end > 0).toSorted((a, b) => a - b);
  return ends.map((end, i) => bytes.subarray(ends[i - 1] ?? 0, end));
}
