import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { clients, ENDPOINTS, QUICKLY_STARTED, run } from '../../bench/clients/programs.ts';
import { Fleet } from '../harness/fleet.ts';
import { metricSum } from '../harness/metrics.ts';
import { lacking } from '../harness/programs.ts';
import { share, turn } from '../harness/share.ts';

const REQUESTS = 200;
/** The part of a client's requests that must not take the slow way. */
const SHARE_MIN = 0.99;

let fleet: Fleet;
let key: string;
beforeAll(async () => {
  // A lease as long as the test: a 503 while a slow machine renews it is no matter of the lane.
  fleet = await Fleet.start({ env: { API_IDS: 'shop', LEASE_MS: '600000' } });
  ({ key } = await fleet.ok('keys.createKey', { apiId: 'shop' }));
  expect(await fleet.verdict(key)).toBe('VALID');
});
afterAll(() => fleet.stop());

/** Each client asks one endpoint a run, the other one at the next commit. */
for (const [i, client] of clients.entries()) {
  const missing = client.missing();
  const why = lacking(missing === undefined ? [] : [missing]);
  describe.skipIf(missing !== undefined)(
    `what ${client.name} asks is answered in the fast lane${why}`,
    () => {
      test.each(share(ENDPOINTS, ENDPOINTS.length, turn + i))('%s', async (endpoint) => {
        const { adminAddress } = fleet.verifiers[0] ?? {};
        const valid = () => metricSum(adminAddress, 'keyfence_verdicts_total', 'code="VALID"');
        const lane = () => metricSum(adminAddress, 'keyfence_fast_lane_requests_total');
        const before = [await valid(), await lane()] as const;
        const base = fleet.verifiers[0]?.address ?? '';
        const task = { endpoint, base, key, count: REQUESTS, directory: fleet.directory };
        await run(client, task, QUICKLY_STARTED);
        expect((await valid()) - before[0]).toBe(REQUESTS);
        expect((await lane()) - before[1]).toBeGreaterThanOrEqual(SHARE_MIN * REQUESTS);
      });
    },
  );
}
