import type { Clock } from '#shared/process/clock.ts';
import type { Follower, KeyReference } from '#shared/protocol/follower/follower.ts';
import type { Followers } from '#shared/protocol/follower/followers.ts';
import { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { Directory, Nearby, Pointer } from '#shared/protocol/follower/source.ts';
import { secretHashFrom } from '#shared/rules/key-format.ts';
import { LookupGivenUp } from './given-up.ts';
import type { NegativeCache } from './look-ups.ts';
import type { LookedUp, Source } from './ports.ts';
import { FORBIDDEN, NOT_FOUND, type Verdict } from './verdict.ts';

/** The place of a secret's key, of which the API that was asked has nothing; undefined = the secret has no key. */
interface Elsewhere {
  readonly elsewhere: Pointer | undefined;
}

/** A server of Redis, as secrets are looked up there. */
interface Server extends Pick<Directory, 'lookUp'> {
  /** Returns true if `read` can find a key of this API by its secret. */
  findsKeysOf(likely: Follower): boolean;
  /** Reads a key into memory; undefined = there is none. */
  read(follower: Follower, reference: KeyReference): Promise<Entry | Elsewhere | undefined>;
  /** Returns the follower of an API; undefined = none reads its keys here. */
  followerOf(apiId: string): Follower | undefined;
}

/**
 * Looks a secret up in one step, in the API that probably has it; else in two: the pointer names the API, and its follower reads
 * the key.
 * @param digests the first is that of the secret
 */
async function lookUpAt(
  server: Server,
  followers: Followers,
  digests: readonly string[],
): Promise<Entry | Elsewhere | undefined> {
  const [secretHash = '', ...others] = digests.map(secretHashFrom);
  const { likely } = followers;
  const first =
    likely && others.length === 0 && server.findsKeysOf(likely)
      ? await server.read(likely, { secretHash })
      : { elsewhere: await server.lookUp(secretHash, ...others) };
  if (first === undefined || first instanceof Entry || first.elsewhere === undefined) return first;
  const { apiId, keyId } = first.elsewhere;
  const follower = server.followerOf(apiId);
  if (follower === undefined) return first;
  followers.likely = follower;
  return server.read(follower, { keyId });
}

/** A replica nearby. It tells only of keys whose APIs are followed already. */
export class ReplicaSource implements Source {
  readonly #followers: Followers;
  readonly #server: Server;
  readonly #counts: { nearby: number };

  /** @param counts of look-ups that it answered */
  constructor(nearby: Nearby, followers: Followers, counts: { nearby: number }) {
    this.#followers = followers;
    this.#counts = counts;
    this.#server = {
      findsKeysOf: () => nearby.findsKeys,
      lookUp: (...secretHashes) => nearby.lookUp(...secretHashes),
      followerOf: (apiId) => followers.present(apiId),
      async read(follower, reference) {
        const place = await follower.readNearby(reference);
        return place === undefined || place instanceof Entry ? place : { elsewhere: place };
      },
    };
  }

  async lookUp(digests: readonly string[]): Promise<LookedUp | undefined> {
    const entry = await lookUpAt(this.#server, this.#followers, digests);
    if (!(entry instanceof Entry)) return undefined;
    this.#counts.nearby++;
    return { kind: 'key', entry };
  }
}

interface PrimaryOptions {
  readonly directory: Pick<Directory, 'lookUp'>;
  readonly followers: Followers;
  /** Remembers secrets without a key here. */
  readonly unknown: NegativeCache;
  readonly clock: Clock;
  /** A later reply says nothing of a secret without a key, milliseconds: the key may exist by now. */
  readonly lateMs: number;
}

/** The primary, which knows every secret. It remembers for a while those that have no key here. */
export class PrimarySource implements Source {
  readonly #options: PrimaryOptions;
  readonly #server: Server;

  constructor(options: PrimaryOptions) {
    const { directory, followers } = options;
    this.#options = options;
    this.#server = {
      findsKeysOf: (likely) => likely.findsKeys,
      lookUp: (...secretHashes) => directory.lookUp(...secretHashes),
      followerOf: (apiId) => (followers.serves(apiId) ? followers.follow(apiId) : undefined),
      read(follower, reference) {
        return follower.fill(reference);
      },
    };
  }

  async lookUp(digests: readonly string[]): Promise<LookedUp> {
    const { followers, unknown, clock } = this.#options;
    const sinceMs = clock.monotonicMs();
    const place = await lookUpAt(this.#server, followers, digests);
    if (place instanceof Entry) return { kind: 'key', entry: place };
    if (place === undefined) return this.#unlessLate(NOT_FOUND, sinceMs);
    // The next secret may be made up too. Asking only for its pointer is cheaper.
    followers.likely = undefined;
    const verdict = place.elsewhere === undefined ? NOT_FOUND : FORBIDDEN;
    unknown.set(digests[0] ?? '', verdict, sinceMs);
    return this.#unlessLate(verdict, sinceMs);
  }

  /** Returns the verdict on a secret without a key here. Throws LookupGivenUp (503) after a late reply. */
  #unlessLate(verdict: Verdict, sinceMs: number): LookedUp {
    const { clock, lateMs } = this.#options;
    if (clock.monotonicMs() - sinceMs <= lateMs) return { kind: 'unknown', verdict };
    throw new LookupGivenUp('slow', 'the answer from Redis came too late');
  }
}
