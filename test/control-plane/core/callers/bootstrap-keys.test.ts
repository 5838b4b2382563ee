import { afterAll, beforeAll, expect, test } from 'vitest';
import { BootstrapKeys } from '../../../../control-plane/core/callers/bootstrap-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';

const OLD = 'the-old-root-key-0123456789abcdef012345';
const NEW = 'the-new-root-key-0123456789abcdef012345';
const [OLD_ID = '', NEW_ID = ''] = [OLD, NEW].flatMap((key) => new BootstrapKeys([key]).ids);

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { ROOT_KEY: `${OLD}\n${NEW}` } });
});
afterAll(() => fleet.stop());

const warnings = () =>
  fleet.logged
    .filter((line) => line.includes('other bootstrap root keys'))
    .map((line) => JSON.parse(line))
    .map(({ level, ours, theirs }) => ({ level, ours, theirs }));
const differing = (at: number) =>
  metric(fleet.controlPlanes[at]?.adminAddress, 'keyfence_bootstrap_root_keys_differing');

test('audits which configured root key has called', async () => {
  await fleet.ok('apis.createApi', { name: 'by the old one', apiId: 'old' }, { rootKey: OLD });
  await fleet.ok('apis.createApi', { name: 'by the new one', apiId: 'new' }, { rootKey: NEW });
  const { events } = await fleet.ok('audit.listEvents', { operation: 'apis.createApi' }, { rootKey: NEW });
  // biome-ignore lint/suspicious/noExplicitAny: events have every shape
  expect(events.map(({ by }: any) => by.rootKeyId)).toEqual([NEW_ID, OLD_ID]);
  expect(OLD_ID).toMatch(/^bootstrap_[0-9a-f]{8}$/);
  expect(NEW_ID).not.toBe(OLD_ID);
  const query = { rootKeyId: OLD_ID };
  expect((await fleet.ok('audit.listEvents', query, { rootKey: NEW })).events).toHaveLength(1);
});

test('notices control planes with other root keys', async () => {
  await fleet.addControlPlane({ ROOT_KEY: `${NEW}\n${OLD}` });
  expect(warnings()).toEqual([]);
  await fleet.addControlPlane({ ROOT_KEY: NEW });
  await fleet.until(async () => (await differing(2)) === 1);
  expect(warnings()).toEqual([{ level: 40, ours: [NEW_ID], theirs: [OLD_ID, NEW_ID].sort() }]);
});
