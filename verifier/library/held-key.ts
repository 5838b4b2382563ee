import type { HeldKey, HoldOptions, KeyVerifier, Release } from './key-verifier.ts';

/** Returns the rate limits of a hold. */
export const amountsOf = (reserve: NonNullable<HoldOptions['reserve']>) =>
  Object.entries(reserve).map(([name, amount]) => ({
    name,
    ...(typeof amount === 'object' ? amount : { cost: amount }),
  }));

/** Asks about a key with a hold, and returns the verdict with the functions that end the hold. */
export async function holdThrough(
  verifier: Pick<KeyVerifier, 'verify' | 'release'>,
  key: string,
  options: HoldOptions = {},
): Promise<HeldKey> {
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  if ('hold' in options)
    throw new TypeError('hold: unknown option; its parts are credits, atLeast, reserve and forMs');
  const { credits, atLeast, forMs, reserve, ...question } = options;
  const hold = {
    ...(credits !== undefined && { credits }),
    ...(atLeast !== undefined && { atLeast }),
    ...(forMs !== undefined && { forMs }),
    ...(reserve !== undefined && { ratelimits: amountsOf(reserve) }),
  };
  const verdict = await verifier.verify(key, { ...question, hold });
  const id = 'hold' in verdict ? verdict.hold?.id : undefined;
  let releasing: Promise<Release> | undefined;
  return {
    ...verdict,
    release(cost) {
      releasing = id === undefined ? Promise.resolve({ charged: 0 }) : verifier.release(id, cost);
      return releasing;
    },
    async [Symbol.asyncDispose]() {
      const isReleased = await releasing?.then(
        () => true,
        () => false,
      );
      // One that cannot be released now ends by its time, and is charged the same.
      if (id !== undefined && !isReleased) await verifier.release(id).catch(() => undefined);
    },
  };
}
