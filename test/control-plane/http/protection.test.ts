import { afterEach, beforeEach, expect, test } from 'vitest';
import { protect } from '../../../control-plane/http/guards/load-shedding.ts';
import { deleteKey } from '../../../control-plane/http/operations/keys/delete-key.ts';
import { createServer } from '../../../control-plane/http/server.ts';
import type { Clock } from '../../../shared/lang/clock.ts';
import { createLogger } from '../../../shared/process/log.ts';
import { controlPlaneConfig } from '../../harness/config.ts';
import { ROOT_KEY } from '../../harness/fleet.ts';
import { blockFor } from '../../harness/waiting.ts';

/** A server on a clock that the test moves, while the event loop is kept busy all the time. */
let nowMs = 0;
let shed = 0;
let blocked: NodeJS.Timeout;
const clock: Clock = {
  monotonicMs: () => nowMs,
  wallMs: () => nowMs,
  after: () => ({ cancel: () => undefined }),
};

beforeEach(() => {
  [nowMs, shed] = [0, 0];
  blocked = setInterval(() => blockFor(30), 1);
});
afterEach(() => clearInterval(blocked));

async function server(delayMsMax: number) {
  const log = createLogger('control-plane', 'silent');
  const app = createServer(controlPlaneConfig({ ROOT_KEY }), log);
  protect(app, { delayMsMax, clock, onShed: () => void shed++ });
  app.get('/any', async () => 'done');
  app.get('/vital', { config: { operation: deleteKey } }, async () => 'done');
  const statusOf = async (url: string, laterMs = 0) => {
    nowMs += laterMs;
    await new Promise(setImmediate); // timers are what blocks the loop, and what samples it
    return (await app.inject({ url })).statusCode;
  };
  return { app, statusOf };
}

test('calls are refused when the event loop has lagged for longer than one sample, and counted', async () => {
  const { app, statusOf } = await server(1);
  const giveUpAtMs = performance.now() + 15_000;
  while ((await statusOf('/any', 600)) !== 503) expect(performance.now()).toBeLessThan(giveUpAtMs);

  // One pause is over by the next sample: nothing was seen for two of them.
  expect(await statusOf('/any', 1001)).toBe(200);
  expect(await statusOf('/any', 500)).toBe(200);
  const before = shed;
  expect(await statusOf('/any', 1)).toBe(503);
  expect(await statusOf('/any', 1000)).toBe(503);
  expect(await statusOf('/vital')).toBe(200);
  expect(shed).toBe(before + 2);
  const { headers, body } = await app.inject({ url: '/any' });
  expect(headers['retry-after']).toBe('1');
  expect(JSON.parse(body).error.code).toBe('SERVICE_UNAVAILABLE');
  await app.close();
});

test('calls are never refused where no delay is too much', async () => {
  const { app, statusOf } = await server(0);
  const untilMs = performance.now() + 1200; // two samples, which the server takes by the real clock
  while (performance.now() < untilMs) expect(await statusOf('/any', 600)).toBe(200);
  expect(shed).toBe(0);
  await app.close();
});
