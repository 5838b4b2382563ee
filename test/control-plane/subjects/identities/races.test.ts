import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys } from '#shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '#shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';
import { PATIENT } from '../../../harness/waiting.ts';

/** A customer is stopped while another control plane takes in keys of theirs, and perhaps dies at it. */
const KEYS = 400;
const ROUNDS = 5;

let fleet: Fleet;
let importer: Process;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: PATIENT });
  importer = new Process('control-plane/main.ts', { REDIS_URL: fleet.redisUrl, ROOT_KEY });
  await importer.start();
});
afterAll(async () => {
  await importer.stop('SIGKILL');
  await fleet.stop();
});

const verdicts = (secrets: readonly string[], at: number) =>
  Promise.all(secrets.map(async (key) => (await fleet.verifyOnce(key, { at })).body.code));
const keysThere = () => fleet.client.zcard(apiKeys('shop').index);
/** Kills the control plane that takes keys in as soon as so many are there. */
async function killAt(keys: number): Promise<void> {
  while ((await keysThere()) < keys);
  await importer.stop('SIGKILL');
}

test.each(['imports on', 'is killed'])('a stopped customer has no accepted key: it %s', async (fate) => {
  const headers = { authorization: `Bearer ${ROOT_KEY}` };
  let refused = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const externalId = `${fate} ${round}`;
    const secrets = Array.from({ length: KEYS }, () => generateKey(16));
    const keys = secrets.map((secret) => ({ sha256: hashSecret(secret), foreign: false, externalId }));
    const url = `${importer.address}/v1/keys.importKeys`;
    const before = await keysThere();
    const imported = fleet.post(url, { apiId: 'shop', keys }, headers).catch(() => undefined);
    const killed = fate === 'is killed' ? killAt(before + KEYS) : undefined;
    // A little longer in each round.
    for (let i = 0; i < 3 * round; i++) await keysThere();
    const stopped = await fleet.ok('identities.createIdentity', { externalId, enabled: false });
    expect(stopped.propagation.state).toBe('complete');
    await killed;
    for (let look = 0; look < 2; look++)
      for (const at of [0, 1]) expect(await verdicts(secrets, at)).not.toContain('VALID');
    await imported;
    for (const at of [0, 1]) {
      const codes = await verdicts(secrets, at);
      expect(codes).not.toContain('VALID');
      refused += codes.filter((code) => code === 'DISABLED').length;
    }
    if (fate === 'is killed') await importer.start();
  }
  // Or else nothing was put to the test.
  expect(refused).toBeGreaterThan(KEYS);
});
