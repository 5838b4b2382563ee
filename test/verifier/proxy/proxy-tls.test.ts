import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Client } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { loadConfig } from '#shared/process/load-config.ts';
import { followCertificate } from '../../../verifier/doors/http/tls.ts';
import { createProxy, type ProxyListener, proxySettings } from '../../../verifier/proxy/proxy.ts';
import { makeCertificate } from '../../harness/certificates.ts';
import { limits, ScriptedAnswers } from '../../harness/scripted-answers.ts';
import { Upstream } from '../../harness/upstream.ts';

const before = getCACertificates('default');
const log = {
  info: () => undefined,
  warn: () => undefined,
  error: (fields: unknown) => expect.fail(JSON.stringify(fields)),
};

let directory: string;
let proxy: ProxyListener | undefined;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'keyfence-tls-'));
});
afterEach(async () => {
  await proxy?.close(0);
  setDefaultCACertificates(before);
  rmSync(directory, { recursive: true });
});

async function start(url: string, certificate?: ReturnType<typeof followCertificate>): Promise<string> {
  proxy = await createProxy(new URL(url), {
    verifier: new ScriptedAnswers(),
    authz: { sources: ['x-api-key'], withMeta: false, allowPreflight: false, needsApi: false },
    config: loadConfig(proxySettings, {}),
    limits,
    clock: systemClock,
    log,
    certificate,
  });
  return proxy.listen('127.0.0.1', 0);
}

async function ask(address: string, headers: Record<string, string>, ca?: string): Promise<number> {
  const client = new Client(address, ca ? { connect: { ca } } : {});
  const { statusCode, body } = await client.request({
    method: 'GET',
    path: '/',
    headers: { 'x-api-key': 'good', ...headers },
  });
  await body.dump();
  await client.close();
  return statusCode;
}

test('a TLS API needs a certificate of its own host', async () => {
  const apis: Server[] = [];
  const behind = async (names: string) => {
    const { keyFile, cert } = makeCertificate(directory, `api-${apis.length}`, names);
    setDefaultCACertificates([...getCACertificates('default'), cert]);
    const pair = { cert, key: readFileSync(keyFile, 'utf8') };
    const api = createServer(pair, (_, response) => response.end('ok'));
    apis.push(api);
    await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
    return `https://localhost:${(api.address() as AddressInfo).port}`;
  };
  let address = await start(await behind('DNS:localhost'));
  expect(await ask(address, { host: 'shop.example' })).toBe(200);
  await proxy?.close(0);
  address = await start(await behind('DNS:evil.example'));
  expect(await ask(address, { host: 'evil.example' })).toBe(502);
  for (const api of apis) api.close();
});

test('a TLS API may be at an address', async () => {
  const answers: Server[] = [];
  for (const [host, names] of [
    ['[::1]', 'IP:::1'],
    ['127.0.0.1', 'IP:127.0.0.1'],
    ['[::1]', 'IP:::2'],
  ] as const) {
    const { keyFile, cert } = makeCertificate(directory, `at-${answers.length}`, names);
    setDefaultCACertificates([...getCACertificates('default'), cert]);
    const pair = { cert, key: readFileSync(keyFile, 'utf8') };
    const api = createServer(pair, (_, response) => response.end('ok'));
    answers.push(api);
    await new Promise<void>((resolve) => api.listen(0, host.replace(/[[\]]/g, ''), resolve));
    const address = await start(`https://${host}:${(api.address() as AddressInfo).port}`);
    const isRight = names !== 'IP:::2';
    expect(await ask(address, { host: 'shop.example' }), names).toBe(isRight ? 200 : 502);
    expect(await ask(address, { host: 'localhost' }), names).toBe(isRight ? 200 : 502);
    await proxy?.close(0);
  }
  for (const api of answers) api.close();
});

test('the API learns of TLS from us alone', async () => {
  const upstream = await Upstream.start();
  const { certFile, keyFile, cert } = makeCertificate(directory, 'own');
  const certificate = followCertificate(
    { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, TLS_CLIENT_CA_FILE: '' },
    systemClock,
    log,
  );
  const address = await start(upstream.address, certificate);
  const said = { 'x-forwarded-proto': 'http', x_forwarded_proto: 'http' };
  expect(await ask(address, said, cert)).toBe(200);
  expect(upstream.seen[0]?.headers).toMatchObject({ 'x-forwarded-proto': 'https' });
  expect(upstream.seen[0]?.headers).not.toHaveProperty('x_forwarded_proto');
  await proxy?.close(0);
  expect(await ask(await start(upstream.address), { 'x-forwarded-proto': 'https' })).toBe(200);
  expect(upstream.seen[1]?.headers).toMatchObject({ 'x-forwarded-proto': 'http' });
  certificate?.close();
  await upstream.close();
});
