import {
  type ConcurrencyLimit,
  DEFAULT_LIMIT,
  type DefaultLimit,
  LIMIT_MAX,
  type RateLimit,
} from '#shared/protocol/records/limit.ts';

/** The limits of a key, an identity or a role. */
interface LimitsOf {
  readonly ratelimit?: DefaultLimit;
  readonly ratelimits?: readonly RateLimit[];
  readonly concurrency?: readonly ConcurrencyLimit[];
}

/** A limit that applies: the record that has it, and where its uses count. A concurrency limit has no duration. */
export interface AppliedLimit extends Omit<RateLimit, 'async'> {
  readonly of: string;
  readonly ownerId: string;
  /** The API in which its uses count; undefined = in the shared log. */
  readonly space: string | undefined;
}

type Place = Pick<AppliedLimit, 'ownerId' | 'space'>;

/** Orders limits as verifiers do: a concurrency limit is larger than any rate limit. */
const sizeOf = ({ limit, duration }: Pick<RateLimit, 'limit' | 'duration'>): number =>
  duration === 0 ? limit * LIMIT_MAX : limit / duration;

const limitsIn = ({ ratelimit, ratelimits = [], concurrency = [] }: LimitsOf, of: string) => [
  ...(ratelimit ? [{ ...ratelimit, name: DEFAULT_LIMIT, autoApply: true, of }] : []),
  ...ratelimits.map((limit) => ({ ...limit, of })),
  ...concurrency.map((limit) => ({ ...limit, duration: 0, autoApply: true, of })),
];

/**
 * Returns the limits that apply. Of those with one name, that of the key applies, or else that of its identity, or the
 * largest of its roles.
 * @param of.key absent = the limits that all keys of the identity share
 */
export function appliedLimits(of: {
  readonly key?: LimitsOf & { readonly apiId: string; readonly ownerId: string };
  readonly identity: (LimitsOf & { readonly id: string }) | undefined;
  readonly roles: readonly (LimitsOf & { readonly name: string })[];
}): readonly AppliedLimit[] {
  const { key, identity, roles } = of;
  const ofKey: Place | undefined = key && { ownerId: key.ownerId, space: key.apiId };
  const ofIdentity: Place | undefined = identity && { ownerId: identity.id, space: undefined };
  const at = (place: Place | undefined, limits: ReturnType<typeof limitsIn>) =>
    place ? limits.map((limit) => ({ ...limit, ...place })) : [];
  return [
    ...at(ofKey, limitsIn(key ?? {}, 'key')),
    ...at(ofIdentity, limitsIn(identity ?? {}, 'identity')),
    ...roles
      .flatMap((role) => limitsIn(role, `role ${role.name}`))
      .sort((a, b) => sizeOf(b) - sizeOf(a))
      .flatMap((limit) => at((limit.per === 'identity' && ofIdentity) || ofKey, [limit])),
  ].filter(({ name }, i, every) => every.findIndex((each) => each.name === name) === i);
}
