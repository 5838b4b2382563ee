import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../shared/rules/key-format.ts';
import { lacking } from '../harness/programs.ts';
import { gatewayNames } from './gateways.ts';
import { showing, World } from './world.ts';

let world: World;
let key: string;
beforeAll(async () => {
  world = await World.start();
  ({ key } = await world.validKey());
});
afterAll(() => world.stop());

/** Answers of each gateway, and the number of requests that the API saw. */
async function asked(shown = key) {
  const answers = gatewayNames.map(async (name) => {
    const { status, headers } = await world.ask(name, showing(shown));
    return [name, { status, retryAfter: headers['retry-after'] }];
  });
  return { ...Object.fromEntries(await Promise.all(answers)), requests: world.upstream.take().length };
}

const refusal = { status: 503, retryAfter: '1' };
const closed = { ...all(refusal), requests: 0 };
const passage = { status: 200, retryAfter: undefined };
const open = { ...all(passage), requests: gatewayNames.length };

const none = lacking(gatewayNames.length > 0 ? [] : ['nginx']);

describe.skipIf(none)(
  `without a verdict the client gets 503 with Retry-After and the API is not asked${none}`,
  () => {
    test('while Redis is away and the key is unknown', async () => {
      world.fleet.redis.process.kill('SIGSTOP');
      try {
        expect(await asked(generateKey(16))).toEqual(closed);
        await eachPasses();
      } finally {
        world.fleet.redis.process.kill('SIGCONT');
      }
    });

    test('while the verifier hangs, until it goes on', async () => {
      world.verifier.signal('SIGSTOP');
      try {
        for (let i = 0; i < 8; i++) expect(await asked()).toEqual(closed);
      } finally {
        world.verifier.signal('SIGCONT');
      }
      await eachPasses();
    });

    test('while the verifier is gone, until it is back', async () => {
      await world.verifier.stop('SIGKILL');
      for (let i = 0; i < 3; i++) expect(await asked()).toEqual(closed);
      await world.verifier.start();
      await eachPasses();
    });
  },
);

async function eachPasses(): Promise<void> {
  await world.fleet.until(
    async () => isDeepStrictEqual(await asked(), open),
    'not every gateway lets it pass',
  );
}

function all(answer: object): object {
  return Object.fromEntries(gatewayNames.map((name) => [name, answer]));
}
