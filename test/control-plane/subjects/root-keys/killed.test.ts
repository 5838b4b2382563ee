import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';

const ROUNDS = 12;
const VERIFIERS = 2;
let fleet: Fleet;
const verifiers: Process[] = [];
let key: string;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  key = (await fleet.ok('keys.createKey', { apiId: 'shop' })).key;
  for (let i = 0; i < VERIFIERS; i++) {
    const env = { REDIS_URL: fleet.redisUrl, VERIFY_ROOT_KEYS: 'required' };
    const verifier = new Process('verifier/main.ts', env);
    verifiers.push(verifier);
    await verifier.start();
  }
});
afterAll(async () => {
  await Promise.all(verifiers.map((verifier) => verifier.stop('SIGKILL')));
  await fleet.stop();
});

/** A status of each verifier for a root key, asked again where there is no verdict. */
const statusesOf = (rootKey: string): Promise<number[]> =>
  Promise.all(
    verifiers.map(async ({ address }) => {
      for (;;) {
        const headers = { authorization: `Bearer ${rootKey}` };
        const { status } = await fleet.post(`${address}/v1/keys.verifyKey`, { key }, headers);
        if (status !== 503) return status;
      }
    }),
  );

test('killed control planes break no promise', async () => {
  const made = await Promise.all(
    Array.from({ length: 4 }, (_, i) =>
      fleet.ok('rootKeys.createRootKey', { name: `n${i}`, permissions: ['api.shop.verify_key'] }),
    ),
  );
  for (let round = 0; round < ROUNDS; round++) {
    const controlPlane = new Process('control-plane/main.ts', {
      REDIS_URL: fleet.redisUrl,
      ROOT_KEY,
    });
    await controlPlane.start();
    await fleet.until(async () => (await fleet.get(`${controlPlane.adminAddress}/readyz`)).status === 200);
    const change = (rootKeyId: string, enabled: boolean): Promise<Answer | undefined> =>
      fleet
        .post(
          `${controlPlane.address}/v1/rootKeys.updateRootKey`,
          { rootKeyId, enabled },
          { authorization: `Bearer ${ROOT_KEY}` },
        )
        .catch(() => undefined);
    const changes = made.map(({ rootKeyId }) => change(rootKeyId, round % 2 === 1));
    // At another moment of the changes in each round.
    await Promise.race([changes[round % made.length], statusesOf(ROOT_KEY)]);
    controlPlane.signal('SIGKILL');
    const answers = await Promise.all(changes);
    for (const [i, answer] of answers.entries()) {
      if (answer?.status !== 200 || answer.body.propagation.state !== 'complete') continue;
      const { key: rootKey } = made[i] ?? expect.unreachable();
      for (const status of await statusesOf(rootKey)) expect(status).toBe(round % 2 === 1 ? 200 : 401);
    }
    await controlPlane.stop('SIGKILL').catch(() => undefined);
  }
  // Whatever was left half done, verifiers say what control planes say once one has started.
  await fleet.addControlPlane();
  const { rootKeys } = await fleet.ok('rootKeys.listRootKeys');
  for (const { key: rootKey, rootKeyId } of made) {
    const { enabled } = rootKeys.find((each: { rootKeyId: string }) => each.rootKeyId === rootKeyId);
    await fleet.until(async () =>
      (await statusesOf(rootKey)).every((status) => status === (enabled ? 200 : 401)),
    );
  }
});
