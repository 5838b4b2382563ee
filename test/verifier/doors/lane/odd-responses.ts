import fc from 'fast-check';

const oneOf = (...values: string[]) => fc.constantFrom(...values);
const mostly = (usual: string, ...others: string[]) =>
  fc.oneof({ weight: 6, arbitrary: fc.constant(usual) }, { weight: 4, arbitrary: oneOf(...others) });

const PHRASES = [
  ...[
    '',
    ' ',
    ' Not Found',
    ' caf\xe9',
    ' \xd0\x9d\xd0\xb5\xd1\x82',
    ' No \xc4\x8d\xc4\x8aSet-Cookie: a',
    ' \xf0\x9f',
  ],
  ...[' a\x01b', ' a\x7f', ' \t', `${' a'.repeat(9000)}`, ' \0', '\n', ' a\rb'],
];
const STATUSES = [
  '201',
  '204',
  '304',
  '404',
  '503',
  '599',
  '999',
  '099',
  '000',
  '100',
  '101',
  '103',
  '2000',
  '20',
  'abc',
];
const LINES = [
  ...[
    'Content-Length: 4',
    'Content-Length: 9',
    'Content-Length: -1',
    'Content-Length: 1e3',
    'Content-Length: 4, 4',
  ],
  ...['Transfer-Encoding: chunked', 'Transfer-Encoding: gzip', 'Transfer-Encoding: chunked, chunked'],
  ...[
    'Connection: close',
    'Connection: keep-alive, X-A',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Upgrade: h2c',
  ],
  ...['Keep-Alive: timeout=0', 'Keep-Alive: timeout=-1', 'Keep-Alive: timeout=1e99', 'Trailer: X-Sum'],
  ...[
    'X-A: \xe9\xff',
    'X-A:',
    'X-A: a\x01',
    'X-\xe9: a',
    ': a',
    'X A: b',
    ' folded',
    '__proto__: a',
    'Set-Cookie: a',
  ],
  ...[
    'Date: never',
    'Server-Timing: a',
    'X-Request-Id: \x80',
    'Content-Encoding: br',
    `X-B: ${'b'.repeat(20_000)}`,
  ],
];
const BODIES = [
  '',
  'abcd',
  'abcdefghi',
  '4\r\nabcd\r\n0\r\n\r\n',
  '4\r\nabcd\r\n',
  'zz\r\n',
  'ffffffffffffffffff\r\na',
];
const TRAILED = [
  '4\r\nabcd\r\n0\r\nX-Sum: 1\r\n\r\n',
  '0\r\nX-Sum: \xe9\x01\r\n\r\n',
  '0\r\nContent-Length: 1\r\n\r\n',
];

/** In place of a piece: the connection is closed, or reset. */
export const CLOSE = '<close>';
export const RESET = '<reset>';

/** Responses that no HTTP server should send, in pieces, as latin1. */
export const oddResponse: fc.Arbitrary<string[]> = fc
  .record({
    version: mostly('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/1.9', 'http/1.1', 'ICY', '220', ''),
    status: mostly('200', ...STATUSES),
    phrase: mostly(' OK', ...PHRASES),
    lines: fc.array(oneOf(...LINES), { maxLength: 4 }),
    lineEnd: mostly('\r\n', '\n', '\r'),
    body: mostly('abcd', ...BODIES, ...TRAILED),
    before: mostly(
      '',
      'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n',
      'HTTP/1.1 100 Continue\r\n\r\n',
      '\r\n\r\n',
      'x',
    ),
    after: mostly('', 'more', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', CLOSE, RESET),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 3 }),
  })
  .map(({ version, status, phrase, lines, lineEnd, body, before, after, cuts }) => {
    const head = [`${version} ${status}${phrase}`, ...lines].join(lineEnd);
    const text = `${before}${head}${lineEnd}${lineEnd}${body}`;
    const ends = [...cuts.map((cut) => Math.floor(cut * text.length)), text.length].toSorted((a, b) => a - b);
    return [...ends.map((end, i) => text.slice(ends[i - 1] ?? 0, end)), after].filter(
      (piece) => piece !== '',
    );
  });
