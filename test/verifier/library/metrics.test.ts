import {
  AggregatorRegistry,
  Counter,
  collectDefaultMetrics,
  type OpenMetricsContentType,
  Registry,
} from 'prom-client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createVerifier } from '../../../verifier/library/create-verifier.ts';
import type { LocalKeyVerifier } from '../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../harness/fleet.ts';

let fleet: Fleet;
const opened: LocalKeyVerifier[] = [];

beforeAll(async () => {
  // A lease that no slow machine outlives, since what memory answers is counted.
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000', LEASE_MS: '60000' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
});
afterAll(async () => {
  await Promise.all(opened.map((verifier) => verifier.close()));
  await fleet.stop();
});

async function open(): Promise<LocalKeyVerifier> {
  const verifier = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 });
  opened.push(verifier);
  await verifier.ready();
  return verifier;
}

const namesIn = (text: string) => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
const linesOf = (text: string, name: string) =>
  text.split('\n').filter((line) => line.startsWith(`${name}{`) && !line.endsWith(' 0'));

test('the metrics are those of a verifier process', async () => {
  const verifier = await open();
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  expect((await verifier.verify(key)).code).toBe('VALID');
  expect(verifier.decide(key)?.code).toBe('VALID');
  expect(verifier.decide('no key at all')?.code).toBe('NOT_FOUND');
  expect(verifier.decide('x'.repeat(10_000))?.code).toBe('NOT_FOUND');
  const text = await verifier.metrics();
  expect(linesOf(text, 'keyfence_verdicts_total')).toEqual([
    'keyfence_verdicts_total{code="VALID",source="memory"} 1',
    'keyfence_verdicts_total{code="NOT_FOUND",source="memory"} 2',
    'keyfence_verdicts_total{code="VALID",source="redis"} 1',
  ]);
  expect(text).toContain('keyfence_follower_live{api_id="shop"} 1');
  expect(text).toContain('keyfence_lookup_seconds_count{outcome="decided"} 1');
  const { adminAddress } = fleet.verifiers[0] ?? {};
  const ofProcess = namesIn(await (await fetch(`${adminAddress}/metrics`)).text());
  const ofServer =
    /^(process|nodejs)_|_tokens_|fast_lane|requests_in_flight|upstream|relay|proxy|certificate/;
  expect(namesIn(text).sort()).toEqual(ofProcess.filter((name) => !ofServer.test(name ?? '')).sort());
});

test('tells several verifiers apart in a registry', async () => {
  const register = new Registry();
  collectDefaultMetrics({ register });
  new Counter({ name: 'orders_total', help: 'Orders.', registers: [register] }).inc();
  const [first, second] = [await open(), await open()];
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await first.verify(key);
  await second.verify(key);
  await second.verify(key);
  for (const verifier of [first, second, first]) verifier.registerMetrics(register);
  const verdicts = async () => linesOf(await register.metrics(), 'keyfence_verdicts_total');
  expect(await verdicts()).toEqual([
    'keyfence_verdicts_total{verifier="1",code="VALID",source="redis"} 1',
    'keyfence_verdicts_total{verifier="2",code="VALID",source="memory"} 1',
    'keyfence_verdicts_total{verifier="2",code="VALID",source="redis"} 1',
  ]);
  const text = await register.metrics();
  expect(new Set(namesIn(text)).size).toBe(namesIn(text).length);
  expect(text).toContain('keyfence_lookup_seconds_bucket{verifier="2",le="+Inf",outcome="decided"} 1');
  expect(text).toContain('orders_total 1');
  register.resetMetrics();
  expect(await verdicts()).toHaveLength(3);

  await first.close();
  expect(await verdicts()).toHaveLength(2);
  const third = await open();
  register.clear();
  third.registerMetrics(register);
  await third.verify(key);
  expect(await verdicts()).toContain('keyfence_verdicts_total{verifier="1",code="VALID",source="redis"} 1');
  expect(await second.metrics()).not.toContain('verifier=');
});

test('OpenMetrics and clusters have their own form', async () => {
  const verifier = await open();
  const register = new Registry<OpenMetricsContentType>();
  register.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
  verifier.registerMetrics(register);
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await verifier.verify(key);
  const text = await register.metrics();
  expect(text).toContain('# TYPE keyfence_verdicts counter');
  expect(text).toContain('keyfence_verdicts_total{verifier="1",code="VALID",source="redis"} 1');

  const ofWorker = new Registry();
  verifier.registerMetrics(ofWorker);
  const two = [await ofWorker.getMetricsAsJSON(), await ofWorker.getMetricsAsJSON()];
  const all = await AggregatorRegistry.aggregate(two).metrics();
  expect(all).toContain('keyfence_verdicts_total{verifier="1",code="VALID",source="redis"} 2');
  expect(all).toContain('keyfence_follower_live{verifier="1",api_id="shop"} 1');
  expect(all).toMatch(/keyfence_protocol\{verifier="1"\} [1-9]\n/);
});

test('refuses a bad registry and a taken name', async () => {
  const verifier = await open();
  for (const wrong of [undefined, {}, 'register'])
    expect(() => verifier.registerMetrics(wrong as never)).toThrow(
      /registry: must be a registry of prom-client/,
    );
  const register = new Registry();
  new Counter({ name: 'keyfence_drops_total', help: 'Another.', registers: [register] });
  expect(() => verifier.registerMetrics(register)).toThrow(
    /keyfence_drops_total has already been registered/,
  );
});
