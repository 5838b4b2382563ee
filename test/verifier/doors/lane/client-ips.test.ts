import { afterAll, beforeAll, expect, test } from 'vitest';
import { ClientIps } from '../../../../verifier/doors/http/credentials.ts';
import { TrustedProxies } from '../../../../verifier/doors/http/trusted-proxies.ts';
import { verifierSubject } from '../../../harness/side-by-side.ts';
import { verifyKey } from '../../../harness/wire.ts';

const trusted = new TrustedProxies(['10.0.0.0/8']);
const pairs = ['x-client-ip', 'x-forwarded-for'].map((header) => {
  const subject = (FAST_LANE: boolean) =>
    verifierSubject({ FAST_LANE }, { clientIps: new ClientIps(header, trusted) });
  return { header, lane: subject(true), reference: subject(false) };
});
const subjects = pairs.flatMap(({ lane, reference }) => [lane, reference]);
beforeAll(() => Promise.all(subjects.map((subject) => subject.start())));
afterAll(() => Promise.all(subjects.map((subject) => subject.stop())));

const VALUES = [
  ...[
    '192.0.2.1',
    '192.0.3.1',
    ' 192.0.2.1 ',
    '::ffff:192.0.2.1',
    '2001:db8::1',
    'fe80::1%eth0',
    'unknown',
    '192.0.2.1:80',
  ],
  ...[
    '192.0.2.1, 10.0.0.1',
    '192.0.2.1, 192.0.3.1',
    '192.0.3.1,192.0.2.1',
    '10.0.0.1',
    '192.0.2.1,',
    ',192.0.2.1',
    '',
  ],
];

test.each(pairs)('both read $header of a gateway the same', async ({ header, lane, reference }) => {
  for (const key of ['listed', 'good']) {
    for (const value of VALUES) {
      const line = `${header}: ${value}\r\n`;
      for (const lines of [line, line.toUpperCase().replace(/: .*/s, `: ${value}\r\n`), line + line, '']) {
        const text = `GET /authz/forward-auth HTTP/1.1\r\nHost: a\r\nX-Request-Id: r\r\nAuthorization: Bearer ${key}\r\n${lines}\r\n`;
        const writes = [Buffer.from(text, 'latin1')];
        const [ours, nodes] = await Promise.all([
          lane.hear(writes, 'patient'),
          reference.hear(writes, 'patient'),
        ]);
        expect(ours, text).toEqual(nodes);
        if (key === 'good') expect(ours.answered).toMatch(/^HTTP\/1.1 200 /);
      }
    }
  }
});

const ORIGIN_LINES = [
  ...[
    'https://a.example',
    'https://b.example',
    'null',
    '',
    ' https://a.example ',
    `https://${'a'.repeat(400)}`,
  ].map((value) => `Origin: ${value}`),
  ...[
    'https://a.example/x?y',
    'https://b.example/https://a.example',
    'x',
    `https://a.example/${'x'.repeat(900)}`,
  ].map((value) => `Referer: ${value}`),
];

test('both read Origin and Referer the same', async () => {
  const [{ lane, reference } = expect.unreachable()] = pairs;
  const before = lane.server.lane.answered;
  for (const key of ['paged', 'slow-paged', 'good'])
    for (const first of ['', ...ORIGIN_LINES])
      for (const second of ['', ...ORIGIN_LINES]) {
        const lines = [`Authorization: Bearer ${key.replace('slow', 'remote')}`, first, second].filter(
          Boolean,
        );
        const text = [
          'GET /authz/forward-auth HTTP/1.1',
          'Host: a',
          'X-Request-Id: r',
          ...lines,
          '',
          '',
        ].join('\r\n');
        const writes = [Buffer.from(text, 'latin1')];
        const [ours, nodes] = await Promise.all([
          lane.hear(writes, 'patient'),
          reference.hear(writes, 'patient'),
        ]);
        expect(ours, text).toEqual(nodes);
        const isAlone = second === '' && !/ $|: $/.test(first);
        const passes =
          key === 'good' || /^(Origin: https:..a.example|Referer: https:..a.example.*)$/.test(first);
        if (isAlone) expect([text, ours.answered.slice(9, 12)]).toEqual([text, passes ? '200' : '403']);
      }
  expect(lane.server.lane.answered - before).toBeGreaterThan(3 * 121);
});

test.each(['v1', 'v2'])('both read origin of %s the same', async (generation) => {
  const [{ lane, reference } = expect.unreachable()] = pairs;
  const origins = [
    'https://a.example',
    'https://b.example',
    '',
    'null',
    'é',
    `https://${'a'.repeat(400)}.a.example`,
  ];
  for (const key of ['paged', 'remote-paged', 'good'])
    for (const origin of [...origins, 'x'.repeat(4097), 7, null, undefined]) {
      const bodies = [
        { key, origin },
        { origin, key },
        { key, origin, clientIp: '192.0.2.1', permissions: 'a' },
        { key, tags: ['a'], origin },
      ];
      for (const body of bodies) {
        const text = verifyKey(body, ['X-Request-Id: r', 'Origin: https://a.example']);
        const writes = [Buffer.from(text.replace('/v1/', `/${generation}/`))];
        const [ours, nodes] = await Promise.all([
          lane.hear(writes, 'patient'),
          reference.hear(writes, 'patient'),
        ]);
        expect(ours, text).toEqual(nodes);
      }
    }
  const asked = Buffer.from(verifyKey({ key: 'paged', origin: 'https://a.example' }));
  expect((await lane.hear([asked], 'patient')).answered).toContain('"code":"VALID"');
});

test.each(['v1', 'v2'])('both read clientIp of %s the same', async (generation) => {
  const [{ lane, reference } = expect.unreachable()] = pairs;
  const before = lane.server.lane.answered;
  for (const key of ['listed', 'good'])
    for (const clientIp of [...VALUES, 7, null, undefined]) {
      const bodies = [
        { key, clientIp },
        { clientIp, key },
        { key, clientIp, permissions: 'a' },
      ];
      for (const body of bodies) {
        const text = verifyKey(body, ['X-Request-Id: r']).replace('/v1/', `/${generation}/`);
        const writes = [Buffer.from(text, 'latin1')];
        const [ours, nodes] = await Promise.all([
          lane.hear(writes, 'patient'),
          reference.hear(writes, 'patient'),
        ]);
        expect(ours, text).toEqual(nodes);
      }
    }
  expect(lane.server.lane.answered).toBeGreaterThan(before);
  const { answered } = await lane.hear(
    [Buffer.from(verifyKey({ key: 'listed', clientIp: '192.0.2.9' }))],
    'patient',
  );
  expect(answered).toContain('"code":"VALID"');
});
