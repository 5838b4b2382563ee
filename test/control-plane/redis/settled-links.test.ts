import { expect, test } from 'vitest';
import { Propagator } from '../../../control-plane/core/propagation.ts';
import { Identities } from '../../../control-plane/redis/workspace/identities.ts';

test('a link that is older than the log, with replicas, is known by its record: nothing is written', async () => {
  const writes: unknown[] = [];
  const check = async () => ({
    state: 'TRIMMED',
    laggards: 0,
    followers: 1,
    replicatedSequence: 9,
    names: [],
  });
  const log = { check, write: async (write: unknown) => writes.push(write) };
  const options = {
    ...{ log, clock: { monotonicMs: () => 0 }, durable: async () => true },
    limits: { pending: {}, batch: {}, replicated: true },
  };
  const propagator = new Propagator(options as unknown as ConstructorParameters<typeof Propagator>[0]);
  // One key of the owner, which holds its identity since change 5.
  const redis = {
    hmget: async () => ['hash', '5', 'acme', 'identity_1'],
    zrange: async () => ['identity_1'],
  };
  const identities = new Identities({
    ...{ propagator, nodes: { run: (_key: string, call: (on: typeof redis) => unknown) => call(redis) } },
    ...{ apis: { ids: async () => ['shop'] }, view: { ids: async () => ({ keyIds: ['key_1'] }) } },
  } as unknown as ConstructorParameters<typeof Identities>[0]);
  expect(await identities.linkKeysOf('acme')).toEqual({});
  expect(writes).toEqual([]);
});
