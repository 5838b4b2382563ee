import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createVerifier } from '../../../verifier/library/create-verifier.ts';
import type { GuardOptions } from '../../../verifier/library/guards/guard-options.ts';
import type { KeyVerifier } from '../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../harness/fleet.ts';
import { Upstream } from '../../harness/upstream.ts';
import { FRAMEWORKS } from '../../verifier/library/guards/apps.ts';

/** Addresses of this machine, from which clients connect; the last one is a proxy of ours. */
const [INSIDE, OUTSIDE, PROXY] = ['127.0.0.77', '127.0.0.99', '127.0.0.50'];
let fleet: Fleet;
let key: string;
const closing: (() => unknown)[] = [];
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  key = (await fleet.ok('keys.createKey', { apiId: 'shop', allowedIps: [INSIDE] })).key;
});
afterAll(async () => {
  for (const close of closing) await close();
  await fleet.stop();
});

/** The status for a client at an address, with these further header lines; asked again while nobody can tell. */
async function statusFrom(url: string, localAddress: string, lines: readonly string[] = []): Promise<number> {
  const headers = ['Host', 'x', 'Authorization', `Bearer ${key}`, ...lines];
  const once = () =>
    new Promise<number>((resolve, reject) => {
      const sent = request(url, { localAddress, agent: false, headers }, (response) =>
        resolve(response.resume().statusCode ?? 0),
      );
      sent.on('error', reject).end();
    });
  let status = 503;
  await fleet.until(async () => {
    status = await once();
    return status !== 503;
  });
  return status;
}

const CLAIMS = [
  ['X-Forwarded-For', INSIDE],
  ['X-Real-IP', INSIDE],
  ['X-Client-IP', INSIDE],
  ['Forwarded', `for=${INSIDE}`],
  ['X-Forwarded-For', INSIDE, 'X-Forwarded-For', INSIDE],
];

describe.each(['true', 'false'])('proxy mode, with the fast lane: %s', (FAST_LANE) => {
  let url: string;
  beforeAll(async () => {
    const upstream = await Upstream.start();
    closing.push(() => upstream.close());
    const env = { UPSTREAM_URL: upstream.address, PROXY_PORT: '0', TRUSTED_PROXIES: PROXY, FAST_LANE };
    url = `${(await fleet.addVerifier(env)).proxyAddress}/orders`;
  });

  test('knows the client from its connection', async () => {
    expect(await statusFrom(url, INSIDE)).toBe(200);
    expect(await statusFrom(url, OUTSIDE)).toBe(403);
    for (const claim of CLAIMS) expect(await statusFrom(url, OUTSIDE, claim), `${claim}`).toBe(403);
  });

  test('believes only what trusted proxies say', async () => {
    const viaProxy = (value: string) => statusFrom(url, PROXY, ['X-Forwarded-For', value]);
    expect(await viaProxy(INSIDE)).toBe(200);
    expect(await viaProxy(`${OUTSIDE}, ${INSIDE}`)).toBe(200);
    expect(await viaProxy(`${INSIDE}, ${PROXY}`)).toBe(200);
    expect(await viaProxy(`${INSIDE}, ${OUTSIDE}`)).toBe(403);
    expect(await viaProxy(`${INSIDE}, ${OUTSIDE}, ${PROXY}`)).toBe(403);
    expect(await viaProxy(`${INSIDE}, unknown`)).toBe(403);
    expect(await statusFrom(url, PROXY)).toBe(403);
  });
});

describe.each(['fastify', 'express', 'hono'] as const)('a guard of %s', (name) => {
  let verifier: KeyVerifier;
  beforeAll(async () => {
    verifier = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 });
    closing.push(() => verifier.close());
    await verifier.ready();
  });
  const open = async (options: GuardOptions) => {
    const app = await FRAMEWORKS[name]({ apiId: '*', ...options });
    closing.push(() => app.close());
    return `${app.address}/orders`;
  };

  test('knows the client, here and by a sidecar', async () => {
    const sidecar = await fleet.addVerifier();
    for (const way of [{ verifier }, { url: sidecar.address }, { verifier, cost: () => 0 }]) {
      const url = await open(way);
      expect(await statusFrom(url, INSIDE)).toBe(200);
      expect(await statusFrom(url, OUTSIDE)).toBe(403);
      for (const claim of CLAIMS) expect(await statusFrom(url, OUTSIDE, claim), `${claim}`).toBe(403);
    }
  });

  test('believes the application, or refuses', async () => {
    const said = await open({ verifier, clientIp: () => INSIDE });
    expect(await statusFrom(said, OUTSIDE)).toBe(200);
    for (const clientIp of [() => undefined, () => 'unknown', () => `${INSIDE}:80`])
      expect(await statusFrom(await open({ verifier, clientIp }), INSIDE)).toBe(403);
    await expect(open({ verifier, clientIp: INSIDE as never })).rejects.toThrow(
      'clientIp: must be a function',
    );
  });
});
