import { expect, test } from 'vitest';
import { EndpointSender } from '../../../../control-plane/subjects/webhooks/endpoint-sender.ts';
import type { SigningEndpoint } from '../../../../control-plane/subjects/webhooks/endpoints.ts';
import type { AttemptOutcome, WaitingMessage } from '../../../../control-plane/subjects/webhooks/outbox.ts';
import { SteppedClock } from './stepped-clock.ts';

const endpoint: SigningEndpoint = {
  ...{ endpointId: 'endpoint_1', url: 'https://example.com', events: ['*'], enabled: true, createdAt: 1 },
  secret: 'whsec_AAAA',
};

/** A sender whose attempts end as `statusOf` says, with what it sent and recorded. */
function sending(statusOf: (id: string) => number) {
  const clock = new SteppedClock();
  const queue: WaitingMessage[] = [];
  const [sent, outcomes, gone]: [string[], AttemptOutcome[], string[]] = [[], [], []];
  let isSender = true;
  const sender = new EndpointSender(endpoint, {
    outbox: {
      failuresOf: async () => ({ failures: 0, pausedUntilMs: 0, hurriedAtMs: 0 }),
      waiting: async (_id: string, after: string, count: number) =>
        queue.slice(queue.findIndex(({ entryId }) => entryId === after) + 1).slice(0, count),
      bodyOf: async (_id: string, entryId: string) => queue.find((each) => each.entryId === entryId)?.body,
      record: async (_id: string, attempts: readonly AttemptOutcome[]) => void outcomes.push(...attempts),
    } as never,
    poster: {
      post: async (_endpoint: SigningEndpoint, id: string, body: string) => {
        expect(body).toBe(`body of ${id}`);
        sent.push(id);
        const status = statusOf(id);
        return { isDelivered: status === 204, durationMs: 1, status };
      },
    } as never,
    clock,
    log: { debug: () => undefined } as never,
    onAttempt: () => undefined,
    isSender: () => isSender,
    onGone: async (id) => void gone.push(id),
    chance: () => 0.5,
  });
  const add = (id: string, order = id, ageMs = 0) => {
    const about = {
      type: 't',
      order,
      body: `body of ${id}`,
      queuedAtMs: clock.nowMs - ageMs,
      attempts: 0,
      nextAtMs: 0,
    };
    queue.push({ entryId: `${queue.length + 1}-0`, id, ...about });
    sender.wake();
  };
  return {
    ...{ clock, sender, add, sent, outcomes, gone },
    lose: () => {
      isSender = false;
    },
  };
}

test('a hopeless event holds up no others', async () => {
  const { clock, sender, add, sent } = sending((id) => (id === 'bad' ? 500 : 204));
  void sender.run();
  add('bad');
  // 5 s, 30 s, 2 min, 10 min, 30 min: then it has failed five times in a row.
  await clock.pass(45 * 60_000);
  expect(sender.isPaused).toBe(true);
  const before = sent.length;
  expect(before).toBeGreaterThanOrEqual(5);
  add('good');
  await clock.pass(6 * 60_000);
  expect(sent.slice(before)).toContain('good');
  expect(sender.isPaused).toBe(false);
  sender.stop();
});

test('tries a failing endpoint ever more rarely', async () => {
  let status = 503;
  const { clock, sender, add, sent } = sending(() => status);
  void sender.run();
  for (let i = 0; i < 30; i++) add(`event-${i}`);
  await clock.pass(1000);
  const atFirst = sent.length;
  expect(atFirst).toBeLessThan(30);
  await clock.pass(3_600_000);
  // At most every 5 minutes, after some that come sooner.
  expect(sent.length - atFirst).toBeLessThan(25);
  status = 204;
  await clock.pass(6 * 60_000);
  expect(new Set(sent).size).toBe(30);
  expect(sender.isPaused).toBe(false);
  sender.stop();
});

test('gives up an event after three days', async () => {
  const { clock, sender, add, outcomes } = sending(() => 500);
  void sender.run();
  // It waits since a time when there was no sender.
  add('bad', 'bad', 58 * 3_600_000);
  await clock.pass(3_600_000);
  expect(outcomes.filter(({ result }) => result === 'dead')).toEqual([]);
  await clock.pass(14 * 3_600_000);
  expect(outcomes.at(-1)).toMatchObject({ result: 'dead', message: { id: 'bad' } });
  expect(outcomes.filter(({ result }) => result === 'dead')).toHaveLength(1);
  sender.stop();
});

test('failing events hold up only their own keys', async () => {
  const { clock, sender, add, sent } = sending((id) => (id.startsWith('bad') ? 400 : 204));
  void sender.run();
  for (let i = 0; i < 3000; i++) {
    add(`bad-${i}`);
    add(`good-${i}`);
  }
  add('after-bad', 'bad-0');
  await clock.pass(60_000);
  expect(sent.filter((id) => id.startsWith('good'))).toHaveLength(3000);
  expect(sent).not.toContain('after-bad');
  sender.stop();
});

test('an endpoint that is gone gets nothing more', async () => {
  const one = sending(() => 410);
  void one.sender.run();
  one.add('first');
  await one.clock.pass(1000);
  one.add('second');
  await one.clock.pass(60_000);
  expect([one.sent, one.gone]).toEqual([['first'], ['endpoint_1']]);
  one.sender.stop();
  const two = sending(() => 204);
  two.lose();
  void two.sender.run();
  two.add('first');
  await two.clock.pass(60_000);
  expect(two.sent).toEqual([]);
  two.sender.stop();
});
