import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RECALL_MS } from '../../shared/metering/exchange.ts';
import { generateKey } from '../../shared/rules/key-format.ts';
import { engineSettings } from '../../verifier/engine.ts';
import { lacking } from '../harness/programs.ts';
import { describeGateways, Gateway, gatewayNames } from './gateways.ts';
import { Relay } from './relay.ts';
import { showing, World } from './world.ts';

const ROOT = join(import.meta.dirname, '..', '..');

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

describeGateways((name) => {
  test('waits longer than a look-up may take', async () => {
    const relays = [await Relay.start(world.around.VERIFIER), await Relay.start(world.around.VERIFIER_GRPC)];
    const [VERIFIER = '', VERIFIER_GRPC = ''] = relays.map(({ host }) => host);
    const directory = mkdtempSync(join(tmpdir(), 'kf-'));
    const gateway = await Gateway.start(name, directory, { ...world.around, VERIFIER, VERIFIER_GRPC });
    const statusAfter = async (delayMs: number) => {
      for (const relay of relays) relay.delayMs = delayMs;
      return (await gateway.ask(showing(key))).status;
    };
    try {
      await world.fleet.until(
        async () => (await statusAfter(0)) === 200 && (await statusAfter(LONGEST_LOOKUP_MS)) === 200,
        `${name} does not wait`,
      );
      expect(await statusAfter(LONGEST_LOOKUP_MS * 2)).toBe(503);
    } finally {
      await gateway.stop();
      for (const relay of relays) relay.stop();
      rmSync(directory, { recursive: true });
      world.upstream.take();
    }
  });
});

test('each configuration waits longer than a look-up', () => {
  const files = globSync('deploy/{compose/nginx.conf,gateways/*/*}', { cwd: ROOT });
  const waits = files.flatMap((file) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(WAIT)].map(([line, number, unit]) => [
      `${file}: ${line.trim()}`,
      Number(number) * (unit === 's' ? 1000 : 1),
    ]),
  );
  expect(waits.length).toBeGreaterThan(16);
  expect(waits.filter(([, ms = 0]) => Number(ms) <= LONGEST_LOOKUP_MS)).toEqual([]);
});

/** Longest time from a question to its verdict, with an exchange; the default may become longer, the recipes must then follow. */
const LONGEST_LOOKUP_MS = Math.max(1000, Number(engineSettings.LOOKUP_WAIT_MS.default)) + 2 * RECALL_MS;

/** A wait for the verifier's answer, in every form in which a gateway is told. */
const WAIT =
  /(?:^|[ {])(?:(?:response_header|proxy_read|proxy_send)_timeout|timeout(?: server)?:?|requestTimeout:|responseHeaderTimeout:|local TIMEOUT_MS =) ([\d.]+)(ms|s)?/gm;

async function eachPasses(): Promise<void> {
  await world.fleet.until(
    async () => isDeepStrictEqual(await asked(), open),
    'not every gateway lets it pass',
  );
}

function all(answer: unknown): object {
  return Object.fromEntries(gatewayNames.map((name) => [name, answer]));
}
