import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { envOf, start } from '../../clients/cli/keyfence.ts';

/** Two control planes write opposite changes of one record while Redis is busy, and both become complete. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1 });
  await fleet.addControlPlane();
});
afterAll(() => fleet.stop());

const call = (at: number, operation: string, input: object): Promise<Answer> =>
  fleet.post(`${fleet.controlPlanes[at]?.address}/v1/${operation}`, input, {
    authorization: `Bearer ${ROOT_KEY}`,
  });

/** Sends both while Redis takes no writes, so that it makes one right after the other. Returns them in that order. */
async function atOnce(operation: string, inputs: readonly [object, object]) {
  await fleet.client.client('PAUSE', 300, 'WRITE');
  const answers = await Promise.all(inputs.map((input, at) => call(at, operation, input)));
  for (const { status, body } of answers) expect(status, JSON.stringify(body)).toBe(200);
  const both = inputs.map((input, i) => ({ input, propagation: answers[i]?.body.propagation }));
  const [first, second] = both.sort((a, b) => a.propagation.sequence - b.propagation.sequence);
  if (!first || !second) throw new Error('a change is missing');
  return [first, second] as const;
}

describe('a change that a later one overtook before it was answered', () => {
  test.each([
    ['keys.updateKey', 'keys.createKey', { apiId: 'shop' }, { enabled: false }, { enabled: true }],
    [
      'identities.updateIdentity',
      'identities.createIdentity',
      { externalId: 'ada' },
      { enabled: false },
      { enabled: true },
    ],
    [
      'permissions.setRolePermissions',
      'permissions.createRole',
      { name: 'staff' },
      { permissions: ['a'] },
      { permissions: ['b'] },
    ],
  ])('is told so by %s', async (operation, create, input, one, other) => {
    const { keyId, identityId, roleId } = await fleet.ok(create, input);
    const ref = JSON.parse(JSON.stringify({ keyId, identityId, roleId }));
    const [first, second] = await atOnce(operation, [
      { ...ref, ...one },
      { ...ref, ...other },
    ]);
    expect(first.propagation).toMatchObject({ overtakenBy: second.propagation.sequence });
    expect(second.propagation).not.toHaveProperty('overtakenBy');
  });

  test('says nothing where the later change left its fields as they are', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const [first, second] = await atOnce('keys.updateKey', [
      { keyId, enabled: false },
      { keyId, name: 'Ada' },
    ]);
    for (const { propagation } of [first, second]) expect(propagation).not.toHaveProperty('overtakenBy');
  });

  test('ends the command line with status 1, and says so', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    // What both send reaches the control planes together.
    const both = Promise.withResolvers<void>();
    let arrived = 0;
    const relays = await Promise.all(
      [0, 1].map(async (at) => {
        const relay = createServer(async (incoming, response) => {
          if (++arrived === 2) {
            await fleet.client.client('PAUSE', 300, 'WRITE');
            both.resolve();
          }
          await both.promise;
          const { address = '' } = fleet.controlPlanes[at] ?? {};
          const answer = await request(address + incoming.url, {
            ...{ method: 'POST', headers: incoming.headers, body: incoming },
          });
          response.writeHead(answer.statusCode, answer.headers);
          answer.body.pipe(response);
        });
        await once(relay.listen(0, '127.0.0.1'), 'listening');
        return relay;
      }),
    );
    const runs = relays.map((relay, at) => {
      const { port } = relay.address() as AddressInfo;
      const verb = at === 0 ? 'disable' : 'enable';
      const KEYFENCE_URL = `http://127.0.0.1:${port}`;
      return start(['keys', verb, keyId], envOf(fleet, { KEYFENCE_URL })).ended;
    });
    const ended = await Promise.all(runs);
    const sequences = ended.map(({ stdout }) => Number(/change (\d+)/.exec(stdout)?.[1]));
    const first = sequences.indexOf(Math.min(...sequences));
    expect(ended.map(({ status }) => status)).toEqual(first === 0 ? [1, 0] : [0, 1]);
    for (const relay of relays) relay.close().closeAllConnections();
    expect(ended[first]?.stderr).toContain(`Change ${Math.max(...sequences)} came after it`);
  });
});
