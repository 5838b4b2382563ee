import { expect, test } from 'vitest';
import type { Pointer } from '../../../shared/protocol/follower/source.ts';
import { generateKey } from '../../../shared/rules/key-format.ts';
import { questionAbout } from '../../../verifier/core/question.ts';
import { Verifier } from '../../../verifier/core/verifier.ts';
import { metered } from '../../../verifier/metering/metering.ts';
import { noCredits } from '../../harness/no-credits.ts';
import { Timeline } from '../../proof/simulation/clock.ts';

const LOOKUP_WAIT_MS = 50;
const UNKNOWN_TTL_MS = 1000;

/** Asks about an unknown key at 0 and, while that look-up is under way, again; Redis replies at `repliedAtMs`. */
async function secondAnswer(repliedAtMs: number): Promise<string> {
  const timeline = new Timeline();
  const reply = Promise.withResolvers<Pointer | undefined>();
  const verifier = new Verifier({
    ...metered(noCredits),
    directory: {
      silentMs: 0,
      open: () => Promise.reject(new Error('no API is followed here')),
      lookUp: () => reply.promise,
    },
    clock: {
      monotonicMs: () => timeline.nowMs,
      wallMs: () => timeline.nowMs,
      after: (ms, run) => timeline.after(ms, run),
    },
    newNonce: () => 'nonce',
    random: () => 0.5,
    limits: {
      ...{ syncPeriodMs: 100, syncDeadlineMs: 100, cacheKeysMax: 10, unknownKeysMax: 10 },
      ...{ unknownTtlMs: UNKNOWN_TTL_MS, lookupsInFlightMax: 2, lookupsQueuedMax: 4 },
      ...{ lookupWaitMs: LOOKUP_WAIT_MS, apisMax: 10, apiIdleMs: 600_000 },
    },
    apiIds: [],
    foreignKeys: false,
    events: () => {
      throw new Error('no API is followed here');
    },
  });
  const question = questionAbout(generateKey(16), {});
  const textOf = (lookUp: Promise<{ code: string }>) =>
    lookUp.then(
      ({ code }) => code,
      (error: Error) => error.message,
    );
  const first = textOf(verifier.lookUp(question));
  await timeline.run(repliedAtMs - 1);
  expect(await first).toBe(`Redis answers, but not this within ${LOOKUP_WAIT_MS} ms`);
  const second = textOf(verifier.lookUp(question));
  await timeline.run(repliedAtMs);
  reply.resolve(undefined);
  return second;
}

test('passes on no late reply about an unknown key', async () => {
  expect(await secondAnswer(UNKNOWN_TTL_MS)).toBe('NOT_FOUND');
  expect(await secondAnswer(UNKNOWN_TTL_MS + 1)).toBe('the answer from Redis came too late');
});
