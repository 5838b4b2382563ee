import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';
import { Receiver } from './receiver.ts';

const ROUNDS = 5;
const KEYS = 4;
/** Events that come before the next kill. */
const COMES = 60;
/** Changes of a key whose events have not come yet. */
const AHEAD = 30;
let fleet: Fleet;
let receiver: Receiver;
const controlPlanes: Process[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1 });
  await fleet.controlPlanes.shift()?.stop();
  receiver = await Receiver.start();
  const env = {
    REDIS_URL: fleet.redisUrl,
    ROOT_KEY,
    LEASE_MS: '2000',
    WEBHOOK_NETWORKS: '127.0.0.0/8',
  };
  // A proxy of the environment is none for webhooks: nothing listens there.
  const proxied = {
    HTTP_PROXY: 'http://127.0.0.1:1',
    HTTPS_PROXY: 'http://127.0.0.1:1',
    NODE_USE_ENV_PROXY: '1',
  };
  for (let i = 0; i < 2; i++) {
    const controlPlane = new Process('control-plane/main.ts', { ...env, ...proxied });
    await controlPlane.start();
    controlPlanes.push(controlPlane);
  }
});
afterAll(async () => {
  await Promise.all(controlPlanes.map((each) => each.stop('SIGKILL')));
  await receiver.stop();
  await fleet.stop();
});

/** A call at one of the control planes; undefined = nobody knows whether it did anything. */
const call = (at: number, operation: string, input: object): Promise<Answer | undefined> =>
  fleet
    .post(`${controlPlanes[at]?.address}/v1/${operation}`, input, { authorization: `Bearer ${ROOT_KEY}` })
    .catch(() => undefined);

async function answered(operation: string, input: object): Promise<Answer> {
  let answer: Answer | undefined;
  await fleet.until(async () => {
    answer = await call(0, operation, input);
    return answer?.status === 200;
  });
  return answer ?? expect.unreachable();
}

test('delivers every change in order, despite kills', async () => {
  const { secret } = (await answered('webhooks.createEndpoint', { url: receiver.url })).body;
  receiver.secret = secret;
  const keyIds: string[] = [];
  for (let i = 0; i < KEYS; i++)
    keyIds.push((await answered('keys.createKey', { apiId: 'shop' })).body.keyId);
  const named = (keyId: string) => {
    const updates = receiver.received.filter(
      ({ data }) => data.keyId === keyId && data.after?.name !== undefined,
    );
    const unique = updates.filter((event, i) => updates.findIndex(({ id }) => id === event.id) === i);
    return unique.map(({ data }) => data.after.name as string);
  };
  const acknowledged = new Map<string, string[]>(keyIds.map((keyId) => [keyId, []]));
  let isOver = false;
  const change = async (keyId: string) => {
    for (let n = 0; !isOver; n++) {
      const name = String(n);
      const answer = await call(n % 2, 'keys.updateKey', { keyId, name, enabled: n % 3 > 0 });
      if (answer?.status === 200) acknowledged.get(keyId)?.push(name);
      // Not many more than have come: every one is looked for at the end.
      const isAhead = () => (acknowledged.get(keyId)?.length ?? 0) >= named(keyId).length + AHEAD;
      await fleet.until(() => isOver || !isAhead());
    }
  };
  const changes = keyIds.map(change);
  for (let round = 0; round < ROUNDS; round++) {
    const before = receiver.received.length;
    await fleet.until(() => receiver.received.length > before + COMES, `round ${round}: nothing comes`);
    // The moment differs from round to round: an event has just come, and others are on their way.
    const killed = round === 2 ? controlPlanes : controlPlanes.slice(round % 2).slice(0, 1);
    const ends = killed.map((each) => each.stop('SIGKILL'));
    if (round % 2 === 1) {
      const { process } = fleet.redis;
      const end = new Promise((resolve) => process.once('exit', resolve));
      process.kill('SIGKILL');
      await end;
      await fleet.startRedis();
    }
    await Promise.all(ends);
    for (const each of killed) await each.start();
  }
  isOver = true;
  await Promise.all(changes);
  for (const [keyId, names] of acknowledged) {
    expect(names.length).toBeGreaterThan(10);
    await fleet.until(
      () => names.every((name) => named(keyId).includes(name)),
      `an event of ${keyId} is missing`,
    );
    // A call without an answer may have had its effect, and its event, twice or not at all; order holds for all.
    expect(named(keyId)).toEqual([...named(keyId)].sort((a, b) => Number(a) - Number(b)));
  }
  const disabled = receiver.received.filter(
    ({ type, data }) => type === 'key.disabled' && data.outcome === 'OK',
  );
  expect(disabled.length).toBeGreaterThan(10);
  expect(disabled.filter(({ data }) => data.propagation.state !== 'complete')).toEqual([]);
  expect(receiver.unsigned).toBe(0);
});
