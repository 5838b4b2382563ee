import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SigningEndpoint } from '../../../../control-plane/subjects/webhooks/endpoints.ts';
import {
  AddressRules,
  EventPoster,
  urlFault,
} from '../../../../control-plane/subjects/webhooks/event-poster.ts';

import { systemClock } from '../../../../shared/process/clock.ts';
import { NameResolver } from '../../../../shared/process/name-resolver.ts';
import { makeCertificate } from '../../../harness/certificates.ts';
import { scratch } from '../../../harness/scratch.ts';
import { Receiver } from './receiver.ts';
import { SteppedClock } from './stepped-clock.ts';

const { resolve } = new NameResolver(systemClock);
const PRIVATE = [
  ...['127.0.0.1', '127.255.255.254', '0.0.0.0', '10.0.0.1', '172.16.0.1', '172.31.255.255', '192.168.1.1'],
  ...[
    '169.254.169.254',
    '100.64.0.1',
    '192.0.0.192',
    '192.0.2.1',
    '198.18.0.1',
    '198.51.100.7',
    '203.0.113.9',
  ],
  ...['224.0.0.1', '239.1.1.1', '240.0.0.1', '255.255.255.255'],
  ...['::', '::1', '::ffff:127.0.0.1', '::ffff:7f00:1', '::127.0.0.1', '64:ff9b::a9fe:a9fe', '100::1'],
  ...['fe80::1', 'fe80::1%eth0', 'fec0::1', 'fc00::1', 'fd00:ec2::254', 'ff02::1', '2001:db8::1'],
  ...['2001::1', '2001:10::1', '2002:7f00:1::', '3fff::1', '5f00::1', '4000::1', 'not an address', ''],
];
const PUBLIC = [
  '1.1.1.1',
  '8.8.8.8',
  '172.15.0.1',
  '172.32.0.1',
  '2606:4700::1111',
  '2a00:1450::8',
  '::ffff:8.8.8.8',
];

test('only addresses everybody can reach are public', () => {
  const rules = new AddressRules([]);
  expect(PRIVATE.filter((address) => rules.allows(address))).toEqual([]);
  expect(PUBLIC.filter((address) => !rules.allows(address))).toEqual([]);
  const own = new AddressRules(['10.1.0.0/16', 'fd00::/8']);
  expect(['10.1.2.3', 'fd00::7', '::ffff:10.1.0.1'].every((address) => own.allows(address))).toBe(true);
  expect(['10.2.0.1', '127.0.0.1'].some((address) => own.allows(address))).toBe(false);
});

test('URLs with such an address are refused in every spelling', () => {
  const rules = new AddressRules([]);
  const hosts = [
    ...[
      '127.0.0.1',
      '2130706433',
      '0x7f000001',
      '0x7f.1',
      '017700000001',
      '0177.0.0.1',
      '127.1',
      '127.0.0.1.',
    ],
    ...[
      '%31%32%37.0.0.1',
      '①②⑦.0.0.1',
      '[::1]',
      '[::ffff:127.0.0.1]',
      '[::ffff:7f00:1]',
      '[0:0:0:0:0:0:0:1]',
    ],
    ...['169.254.169.254', '2852039166', '[fd00:ec2::254]', '[64:ff9b::169.254.169.254]', '0', '[::]'],
  ];
  for (const host of hosts) expect(urlFault(rules, `https://${host}/`), host).toMatch(/not a public address/);
  expect(urlFault(rules, 'https://127.1/')).toContain(
    'start the control plane with WEBHOOK_NETWORKS=127.0.0.1',
  );
  expect(urlFault(rules, 'https://1.1.1.1/hook')).toBeUndefined();
  expect(urlFault(rules, 'https://hooks.example.com/hook?a=b')).toBeUndefined();
  expect(urlFault(rules, 'http://1.1.1.1/')).toMatch(/http:\/\/ is allowed only/);
  expect(urlFault(new AddressRules(['127.0.0.0/8']), 'http://127.0.0.1:8080/')).toBeUndefined();
  for (const wrong of ['', 'example.com', 'ftp://example.com', 'file:///etc/passwd', 'javascript:1'])
    expect(urlFault(rules, wrong)).toMatch(/https:\/\//);
});

describe('a name', () => {
  let receiver: Receiver;
  const endpoint = (url: string): SigningEndpoint => ({
    ...{ endpointId: 'endpoint_1', url, events: ['*'], enabled: true, createdAt: 1, secret: 'whsec_AAAA' },
  });
  beforeAll(async () => {
    receiver = await Receiver.start();
  });
  afterAll(() => receiver.stop());

  /** Posts to a name that leads to these addresses, one list for each time that somebody asks. */
  async function postTo(answers: readonly string[][], networks: readonly string[], protocol = 'http') {
    let questions = 0;
    const poster = new EventPoster({
      ...{ rules: new AddressRules(networks), clock: systemClock },
      resolve: async () =>
        (answers[questions++] ?? answers.at(-1) ?? []).map((address) => ({
          address,
          family: address.includes(':') ? 6 : 4,
        })),
    });
    const { port } = new URL(receiver.url);
    const url = `${protocol}://hooks.example.com:${port}/hook`;
    const results = [await poster.post(endpoint(url), 'event_1', '{"type":"t"}')];
    const before = receiver.received.length;
    await poster.close();
    return { results, questions, before };
  }

  test('that leads to a private address is refused', async () => {
    for (const address of ['127.0.0.1', '10.0.0.1', '::1', '::ffff:127.0.0.1', '169.254.169.254'])
      for (const protocol of ['http', 'https']) {
        const { results } = await postTo([[address]], [], protocol);
        expect(results[0]).toMatchObject({ isDelivered: false });
        expect(results[0]?.error).toContain(`${address} is not a public address`);
      }
    expect(receiver.received).toEqual([]);
  });

  test('that leads to a private address among public ones is refused as well', async () => {
    const { results } = await postTo([['1.1.1.1', '127.0.0.1']], [], 'https');
    expect(results[0]?.error).toContain('127.0.0.1 is not a public address');
  });

  test('is resolved once for a connection, which goes to what was checked', async () => {
    // Whoever asks a second time gets another address: nobody does.
    const { results, questions } = await postTo([['127.0.0.1'], ['10.0.0.1']], ['127.0.0.0/8']);
    expect(results[0]).toMatchObject({ isDelivered: true, status: 204 });
    expect(questions).toBe(1);
  });

  test('without an address is no delivery', async () => {
    const { results } = await postTo([[]], []);
    expect(results[0]?.error).toContain('hooks.example.com has no address');
  });

  test('that leads to a public address needs https', async () => {
    const { results } = await postTo([['1.1.1.1']], []);
    expect(results[0]?.error).toContain('http:// is allowed only for addresses in WEBHOOK_NETWORKS');
  });

  test('needs a certificate that fits, inside too', async () => {
    const { certFile, keyFile } = makeCertificate(scratch('test'), 'hooks');
    const files = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
    const server = createServer(files, (_request, response) => response.end('secret'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const poster = new EventPoster({
      ...{ rules: new AddressRules(['127.0.0.0/8']), clock: systemClock, resolve },
    });
    const result = await poster.post(endpoint(`https://127.0.0.1:${port}/`), 'event_1', '{}');
    expect(result).toMatchObject({ isDelivered: false });
    expect(result.status).toBeUndefined();
    expect(result.error).toMatch(/self-signed|certificate|altnames/i);
    await poster.close();
    server.close();
  });

  test('whose endpoint does not answer is given 10 s', async () => {
    const clock = new SteppedClock();
    receiver.answers = ['hang'];
    const poster = new EventPoster({ rules: new AddressRules(['127.0.0.0/8']), clock, resolve });
    const attempt = poster.post(endpoint(receiver.url), 'event_1', '{}');
    let result: object | undefined;
    void attempt.then((value) => {
      result = value;
    });
    await clock.pass(9999);
    expect(result).toBeUndefined();
    await clock.pass(1);
    expect(await attempt).toMatchObject({ isDelivered: false, error: 'no complete response within 10 s' });
    await poster.close();
  });

  test('whose name server is silent leaves the look-ups of the system to others, and fails', async () => {
    const silent = createSocket('udp4').bind(0, '127.0.0.1');
    await once(silent, 'listening');
    const names = new NameResolver(systemClock, { servers: [`127.0.0.1:${silent.address().port}`] });
    const poster = new EventPoster({
      ...{ rules: new AddressRules(['127.0.0.0/8']), clock: systemClock, resolve: names.resolve },
    });
    const asked = once(silent, 'message');
    const attempt = poster.post(endpoint('https://hooks.example.com/'), 'event_1', '{}');
    await asked;
    expect(process.getActiveResourcesInfo()).not.toContain('GetAddrInfoReqWrap');
    expect(await attempt).toMatchObject({ isDelivered: false });
    expect((await attempt).error).toContain('the name servers do not answer for hooks.example.com');
    await poster.close();
    silent.close();
  });

  test('that others share does not make their endpoints wait', async () => {
    const server = createHttpServer(({ url }, response) => {
      if (url !== '/slow') response.end();
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const { port } = server.address() as AddressInfo;
    const poster = new EventPoster({
      ...{ rules: new AddressRules(['127.0.0.0/8']), clock: systemClock, resolve },
    });
    const post = (endpointId: string, path: string) =>
      poster.post({ ...endpoint(`http://localhost:${port}${path}`), endpointId }, 'event_1', '{}');
    const slow = ['a', 'b'].flatMap((id) => Array.from({ length: 10 }, () => post(id, '/slow')));
    expect(await post('c', '/')).toMatchObject({ isDelivered: true });
    await poster.close();
    expect((await Promise.all(slow)).some(({ isDelivered }) => isDelivered)).toBe(false);
    server.close();
  });
});
