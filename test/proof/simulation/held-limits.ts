import { pause } from '../../../shared/process/clock.ts';
import { DEFAULT_LIMIT } from '../../../shared/protocol/records/limit.ts';
import { DEFAULT_REQUIREMENTS, questionAbout } from '../../../verifier/core/question.ts';
import type { Verdict } from '../../../verifier/core/verdict.ts';
import type { VerifierProcess, World } from './world.ts';

/** Time within which what came back can be taken: that for which a refusal is remembered, a recall, and some round trips. */
export const TAKEN_AGAIN_MS = 1500;
const FOR_MS = 60_000;
const RETRY_MS = 20;

/** The beginning of a window into which nothing slides, by the clock of Redis; undefined = the windows are too short. */
export function emptyWindowMs({ plan: { rate, heldLimits }, timeline }: World): number | undefined {
  if (!heldLimits || rate === undefined || rate.duration < 2 * TAKEN_AGAIN_MS) return undefined;
  return (Math.floor(timeline.nowMs / rate.duration) + 3) * rate.duration;
}

/** Time for broken connections to be noticed, which takes the time-out of a command. */
export const WOKEN_MS = 2500;

/** Asks the verifiers about all keys, and takes nothing, so that broken connections are noticed. */
export async function wake({ verifiers, keys }: World): Promise<void> {
  const questions = verifiers.flatMap((verifier) =>
    keys.map(({ secret }) => until(verifier, secret, 0, () => true)),
  );
  await Promise.all(questions);
}

/**
 * Holds most of a limit at one verifier and takes the rest, is refused at another one, gives everything back, and takes it there. Resolves
 * when that is done. Call it when nothing fails any more, at the beginning of an empty window.
 */
export async function takeAgain({ plan, verifiers, keys }: World): Promise<void> {
  const [first, other] = [verifiers[0], verifiers.at(-1)];
  if (!first || !other) return;
  const verdict = await Promise.any(
    keys.map(async (key) => {
      const looked = await until(first, key.secret, 0, ({ code }) => code !== 'RATE_LIMITED');
      if (looked?.code !== 'VALID') throw new Error(looked?.code);
      return { key, limit: looked.spending?.limits?.[0]?.limit.limit ?? 0 };
    }),
  ).catch(() => undefined);
  if (!verdict || verdict.limit < 4) return;
  const { secret } = verdict.key;
  const limit = verdict.limit - 1;
  const held = await until(first, secret, limit, isValid, limit);
  // With this, Redis hears what is held.
  await until(first, secret, 1, isValid);
  await until(other, secret, 2, ({ code }) => code === 'RATE_LIMITED');
  await first.verifier.meter.holds.release(held.hold?.id ?? '', { [DEFAULT_LIMIT]: 0 });
  // All that is there, which is less than it asks for.
  if (plan.atLeast)
    await until(other, secret, limit + 1, ({ hold }) => hold?.ratelimits?.[0]?.cost === limit, 2);
  else await until(other, secret, limit, isValid);
}

const isValid = ({ code }: Verdict) => code === 'VALID';

async function until(
  { machine, verifier }: VerifierProcess,
  secret: string,
  cost: number,
  isAnswer: (verdict: Verdict) => boolean,
  least?: number,
): Promise<Verdict> {
  const isHeld = least !== undefined;
  const hold = isHeld ? { forMs: FOR_MS, names: [DEFAULT_LIMIT] } : undefined;
  const requirements = {
    ...DEFAULT_REQUIREMENTS,
    cost: 0,
    limits: [{ name: DEFAULT_LIMIT, cost, isHeld, least }],
  };
  const question = questionAbout(secret, { requirements, hold });
  for (;;) {
    const verdict = await Promise.resolve(verifier.decide(question) ?? verifier.lookUp(question)).catch(
      () => undefined,
    );
    if (verdict && isAnswer(verdict)) return verdict;
    await pause(machine, RETRY_MS);
  }
}
