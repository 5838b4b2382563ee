import type { VerifierLimits } from '../../../verifier/core/verifier.ts';
import type { NetworkManners } from './network.ts';
import { Random } from './random.ts';
import type { RedisLimits } from './redis.ts';

/** Everything that may go wrong besides the network's manners. */
const FAULTS = [
  'link',
  'isolation',
  'pause',
  'crash verifier',
  'crash control plane',
  'restart verifier',
  'wall clock',
  'cut',
  'redis restart',
  'replica stall',
  'failover',
  'lease',
] as const;

/** One of FAULTS. */
export type Fault = (typeof FAULTS)[number];

/** Parameters of one run. Drawn from its seed alone. */
export interface Plan {
  readonly seed: number;
  /** True if one step at Redis finds a key and reads it, as everywhere but in a Cluster. */
  readonly findsKeys: boolean;
  readonly replicas: number;
  /** True if a server stands by that takes the place of a failed primary. */
  readonly hasSpare: boolean;
  readonly verifiers: number;
  readonly controlPlanes: number;
  readonly apiIds: readonly string[];
  readonly keysPerApi: number;
  /** The lease at first, and what a control plane may bring later. */
  readonly leasesMs: readonly number[];
  /** Longest time for which a deposed primary goes on, true milliseconds; fences count with it. */
  readonly deposedMs: number;
  /** Clock rates: no two machines differ by more than 3 %, none from true time either. */
  readonly ratesFrom: number;
  readonly ratesTo: number;
  /** `worst` for fences: verifiers as slow, control planes as fast as can be. */
  readonly rates: 'any' | 'extreme' | 'worst';
  /** Duration of faults and load. */
  readonly activeMs: number;
  readonly writePeriodMs: number;
  /** Of the changes: the share that is written for all keys of an API at once. */
  readonly batches: number;
  /** Of the verifiers: the share that speaks the protocol before the latest. Where there is one, keys may need the latest. */
  readonly olderVerifiers: number;
  readonly verifyPeriodMs: number;
  readonly faults: readonly Fault[];
  readonly faultPeriodMs: number;
  /** Of the changes: the share of which some verifier will not hear, because it is cut off as they are written. */
  readonly isolatedWrites: number;
  /** Of the changes that a SYNC brings: the share that can not be acknowledged. */
  readonly isolatedSyncs: number;
  /** Mean time for which machines are cut off. */
  readonly isolationMs: number;
  readonly manners: NetworkManners;
  readonly redis: RedisLimits;
  readonly limits: VerifierLimits;
  /** Credits that each key has at first; undefined = no key has any. */
  readonly credits: number | undefined;
  /** Rate limit of each key; undefined = no key has one. */
  readonly rate:
    | {
        readonly limit: number;
        readonly duration: number;
        readonly async: boolean;
        /** True if the limit has a name, and applies to questions that do not name it. */
        readonly autoApply: boolean;
      }
    | undefined;
  /** Of the changes: the share that makes a key take another's place. */
  readonly rerolls: number;
  /** Credits up to which each key is refilled, each day of its Redis; undefined = none is. */
  readonly refill?: number;
  /** About the time after which the clock of Redis steps, where there are refills. */
  readonly clockStepMs?: number;
  /** True if keys have roles, which are changed, made and deleted. */
  readonly roles: boolean;
  /** True if keys have owners who are stopped and brought back, all keys at once. */
  readonly identities: boolean;
  /** Credits that each identity has at first; undefined = none has any. */
  readonly sharedCredits?: number;
  /** Concurrency limit of each key, of which questions take places; undefined = no key has one. */
  readonly places?: number;
  /** True if questions hold their part of the rate limit until their work ends. */
  readonly heldLimits?: true;
  /** True if verifiers ask for a root key, which is enabled and disabled. */
  readonly rootKeys?: true;
  /** True if holds take less where there is less. */
  readonly atLeast?: true;
  /** True if the limits of keys are raised and lowered, and calls take off all credits. */
  readonly limitsChange?: true;
  /** Amounts of one limit that two roles give to the keys of an identity, and that two questions define; undefined = no such limits. */
  readonly sharedLimits?: readonly [lower: number, higher: number];
  /** What raises and lowers a limit of `sharedLimits` under load; undefined = nothing does. */
  readonly plansChange?: 'role' | 'key' | 'override';
  /** Of the changes: the share that deletes a key, there or not, once more. */
  readonly deletesAgain?: number;
  /** Verifiers issue tokens, which are switched off and on; others accept one for a leeway after its end, first the first one. */
  readonly tokens?: { readonly atStart: boolean; readonly leewaysMs: readonly [number, number] };
  /** About the time after which something happens to the replica where verifiers look keys up; undefined = there is none. */
  readonly nearbyFaultMs?: number;
}

/** Seeds from here on are of worlds in which the limits of a plan and of an override are raised and lowered. */
export const CHANGING_PLAN_SEEDS = 230_000_000;

/** Seeds from here on are of worlds with tokens in which verifiers are cut off, and then apply one change after the other. */
export const LATE_TOKEN_SEEDS = 220_000_000;

/** Seeds from here on are of worlds in which holds take less where there is less. */
export const AT_LEAST_SEEDS = 210_000_000;

/** Seeds from here on are of worlds in which verifiers look keys up at a replica nearby. */
export const NEARBY_SEEDS = 200_000_000;

/** Seeds from here on are of worlds in which work holds a part of a rate limit. */
export const HELD_LIMIT_SEEDS = 140_000_000;

/** Seeds from here on are of worlds with roles or identities in which verifiers issue tokens. */
export const TOKEN_SEEDS = 130_000_000;

/** Seeds from here on are of worlds in which deletions are repeated. */
export const DELETION_SEEDS = 120_000_000;

/** Seeds from here on are of worlds with identities whose keys share a limit, of which two roles say two amounts. */
export const SHARED_LIMIT_SEEDS = 110_000_000;

/** Seeds from here on are of worlds whose limits change. */
export const CHANGING_LIMIT_SEEDS = 100_000_000;

/** Seeds from here on are of worlds with identities that have credits, which their keys share. */
export const SHARED_CREDIT_SEEDS = 90_000_000;

/** Seeds from here on are of worlds with credits in which work holds what it takes. */
export const HOLD_SEEDS = 80_000_000;

/** The seeds of worlds with credits that are refilled, where the clock of Redis steps. */
export const REFILL_SEEDS = 60_000_000;

/** Faults by which credits may be lost. */
const LOSSY: readonly Fault[] = ['crash verifier', 'restart verifier', 'failover', 'crash control plane'];

/** Tells whether credits may be lost. */
export const isLossy = ({ faults, limits }: Pick<Plan, 'faults' | 'limits'>): boolean =>
  LOSSY.some((fault) => faults.includes(fault)) || limits.apiIdleMs < 600_000;

/** Seeds from here on are of worlds with credits. */
export const CREDIT_SEEDS = 10_000_000;

/** Seeds from here on are of worlds with rate limits, half of them with credits, too. */
export const LIMIT_SEEDS = 20_000_000;

/** Seeds from here on are of worlds with credits in which keys are rerolled. */
export const REROLL_SEEDS = 30_000_000;

/** Seeds from here on are of worlds in which keys have roles. */
export const ROLE_SEEDS = 40_000_000;

/** Seeds from here on are of worlds in which owners of keys have identities, and keys have roles as well. */
export const IDENTITY_SEEDS = 50_000_000;

/** Seeds from here on are of worlds with identities in which verifiers ask for a root key. */
export const ROOT_KEY_SEEDS = 70_000_000;

const AIMED: Readonly<Record<'failovers' | 'lowering' | 'drift', readonly Fault[]>> = {
  failovers: ['failover'],
  lowering: ['isolation', 'lease'],
  drift: [],
};

/** Remainders of the seeds that write batches; the others are as they were before there were any. */
const BATCHED = [5, 6];

/** The remainder of the seeds that have verifiers of the protocol before. */
const UPGRADING = 6;

/** A network that does nothing but take a moment. */
export const CALM: NetworkManners = {
  messageLoss: 0,
  messageDuplication: 0,
  messageDelay: 0,
  slowness: 0,
  slowMsMax: 0,
  desynchronisation: 0,
};

const NO_TIES = { roles: false, identities: false };

/**
 * Each seed has some of the faults often, so that they meet, rather than all of them rarely. Half of the seeds
 * are aimed: at failovers, where the log is short and a spare steps in, at a lease that is lowered, at clocks that drift.
 */
export function planOf(seed: number): Plan {
  if (seed >= CHANGING_PLAN_SEEDS) return planWithChangingPlans(seed);
  if (seed >= LATE_TOKEN_SEEDS) return planWithLateTokens(seed);
  if (seed >= AT_LEAST_SEEDS) return planWithAtLeast(seed);
  if (seed >= NEARBY_SEEDS) return planWithNearby(seed);
  if (seed >= HELD_LIMIT_SEEDS) return planWithHeldLimits(seed);
  if (seed >= TOKEN_SEEDS) return planWithTokens(seed);
  if (seed >= DELETION_SEEDS) return { ...planOf(seed - DELETION_SEEDS), seed, deletesAgain: 0.3 };
  if (seed >= SHARED_LIMIT_SEEDS) return planWithSharedLimits(seed);
  if (seed >= CHANGING_LIMIT_SEEDS) return planWithChangingLimits(seed);
  if (seed >= SHARED_CREDIT_SEEDS) {
    const sharedCredits = new Random(seed).pick([5, 50, 500]);
    return { ...planOf(seed - SHARED_CREDIT_SEEDS + IDENTITY_SEEDS), seed, sharedCredits };
  }
  if (seed >= HOLD_SEEDS) return planWithHolds(seed);
  if (seed >= ROOT_KEY_SEEDS)
    return { ...planOf(seed - ROOT_KEY_SEEDS + IDENTITY_SEEDS), seed, rootKeys: true };
  if (seed >= REFILL_SEEDS) return planWithRefills(seed);
  if (seed >= IDENTITY_SEEDS) {
    const { redis, ...plan } = planWithRoles(seed - IDENTITY_SEEDS + ROLE_SEEDS);
    return { ...plan, seed, identities: true, redis: { ...redis, payloadBytesMax: 260 } };
  }
  if (seed >= ROLE_SEEDS) return planWithRoles(seed);
  if (seed < REROLL_SEEDS) return { ...planWithoutRerolls(seed), rerolls: 0, ...NO_TIES };
  const plan = planWithoutRerolls(seed - REROLL_SEEDS + CREDIT_SEEDS);
  // One change may be one of many keys.
  const redis = { ...plan.redis, logEntries: Math.max(100, plan.redis.logEntries) };
  return { ...plan, seed, redis, rerolls: new Random(seed).pick([0.2, 0.5]), ...NO_TIES };
}

/** By turns: plain keys; keys that expire, roles and identities. Memory is small, so that keys are looked up again and again. */
function planWithNearby(seed: number): Plan {
  const random = new Random(seed);
  const at = seed - NEARBY_SEEDS;
  const plan = planOf(at % 3 === 2 ? at + IDENTITY_SEEDS : at);
  return {
    ...{ ...plan, seed },
    nearbyFaultMs: random.pick([100, 300, 1000]),
    // A replica that lacks a change tells nothing more.
    writePeriodMs: random.pick([300, 1000, 3000]),
    keysPerApi: random.whole(2, 4),
    limits: { ...plan.limits, cacheKeysMax: random.pick([1, 2, 100]) },
  };
}

function planWithRefills(seed: number): Plan {
  const random = new Random(seed);
  const plan = planWithoutRerolls(seed - REFILL_SEEDS + CREDIT_SEEDS);
  return {
    ...{ ...plan, ...NO_TIES, seed, rerolls: 0 },
    refill: random.pick([3, 20, 100]),
    // A refill that a failover takes comes again, and its credits were never accepted.
    faults: plan.faults.filter((fault) => fault !== 'failover'),
    clockStepMs: random.pick([200, 1000, 4000]),
  };
}

function planWithHolds(seed: number): Plan {
  const random = new Random(seed);
  const plan = planWithoutRerolls(seed - HOLD_SEEDS + CREDIT_SEEDS);
  return {
    ...{ ...plan, ...NO_TIES, seed, rerolls: 0, places: random.pick([1, 2, 4]) },
    redis: { ...plan.redis, payloadBytesMax: 250 },
  };
}

/** By turns: places and credits; the same where credits are refilled; a rate limit. */
function planWithChangingLimits(seed: number): Plan {
  const at = seed - CHANGING_LIMIT_SEEDS;
  const base = [HOLD_SEEDS, HOLD_SEEDS, LIMIT_SEEDS][at % 3] ?? HOLD_SEEDS;
  const { redis, ...plan } = planOf(base + at);
  const { refill, clockStepMs, faults } = at % 3 === 1 ? planWithRefills(REFILL_SEEDS + at) : plan;
  // Where the clock of Redis jumps by days, it forgets places: there are enough for all.
  const refills = refill === undefined ? {} : { refill, clockStepMs: clockStepMs ?? 1000, places: 1000 };
  const changes = { ...NO_TIES, rerolls: 0, limitsChange: true } as const;
  return { ...plan, seed, ...changes, ...refills, faults, redis: { ...redis, payloadBytesMax: 400 } };
}

/** In each third world, the limits change. */
function planWithHeldLimits(seed: number): Plan {
  const at = seed - HELD_LIMIT_SEEDS;
  const { rate, redis, ...plan } = planOf(LIMIT_SEEDS + at);
  const random = new Random(seed);
  return {
    ...{ ...plan, ...NO_TIES, seed, rerolls: 0, heldLimits: true },
    rate: rate && {
      ...{ ...rate, autoApply: false },
      limit: random.pick([4, 20, 100]),
      duration: random.pick([1000, 3000, 10_000, 10_000]),
    },
    ...(at % 3 === 2 && { limitsChange: true }),
    verifyPeriodMs: random.pick([3, 10, 100]),
    redis: { ...redis, payloadBytesMax: 400 },
  };
}

/** Two in three have credits besides the held limit. */
function planWithAtLeast(seed: number): Plan {
  const random = new Random(seed);
  const plan = planOf(seed - AT_LEAST_SEEDS + HELD_LIMIT_SEEDS);
  const credits = random.pick([5, 50, 500]);
  return { ...plan, seed, atLeast: true, credits: random.chance(0.5) ? credits : plan.credits };
}

function planWithSharedLimits(seed: number): Plan {
  const random = new Random(seed);
  const { redis, faults, ...plan } = planOf(seed - SHARED_LIMIT_SEEDS + IDENTITY_SEEDS);
  return {
    ...{ ...plan, seed },
    sharedLimits: random.pick([
      [1, 2],
      [4, 6],
      [20, 100],
    ]),
    verifyPeriodMs: random.pick([3, 10]),
    // What a failover forgets of a window is the exception of the promise.
    faults: faults.filter((fault) => fault !== 'failover'),
    redis: { ...redis, payloadBytesMax: 400 },
  };
}

/** By turns: the limit of a role, the roles of keys, an override. Changes are rare, so that slices grow between them. */
function planWithChangingPlans(seed: number): Plan {
  const random = new Random(seed);
  const at = seed - CHANGING_PLAN_SEEDS;
  const { faults, leasesMs, ...plan } = planOf(SHARED_LIMIT_SEEDS + at);
  const [leaseMs = 0] = leasesMs;
  const isCalm = random.chance(0.5);
  return {
    ...{ ...plan, seed, leasesMs, keysPerApi: random.whole(1, 2), verifiers: random.whole(2, 3) },
    plansChange: (['role', 'key', 'override'] as const)[at % 3] ?? 'role',
    sharedLimits: random.pick([
      [4, 30],
      [20, 200],
      [20, 200],
      [100, 1000],
    ]),
    writePeriodMs: random.pick([150, 500, 2000]),
    activeMs: 20 * leaseMs,
    verifyPeriodMs: random.pick([20, 40, 100]),
    // A lease that is lowered is looked at elsewhere.
    faults: faults.filter((fault) => !isCalm && fault !== 'lease' && random.chance(0.5)),
    ...(isCalm && { manners: CALM }),
    limits: { ...plan.limits, cacheKeysMax: 100, apiIdleMs: 600_000 },
  };
}

/** By turns: roles, and identities besides. Leases are longer, because a token ends two seconds before its lease. */
function planWithTokens(seed: number): Plan {
  const at = seed - TOKEN_SEEDS;
  const plan = planOf((at % 2 === 0 ? ROLE_SEEDS : IDENTITY_SEEDS) + at);
  const leasesMs = plan.leasesMs.map((leaseMs) => 3000 + leaseMs);
  const [some, other] = new Random(seed).pick([
    [0, 3000],
    [3000, 0],
    [6000, 1000],
  ] as const);
  return {
    ...{ ...plan, seed, leasesMs },
    activeMs: 3 * Math.max(...leasesMs) + some + other,
    tokens: { atStart: at % 3 > 0, leewaysMs: [some, other] },
    // What is read at a replica needs no SYNC.
    ...(at % 5 === 4 && { nearbyFaultMs: 300, limits: { ...plan.limits, cacheKeysMax: 1 } }),
  };
}

/** Who was cut off for longer than a token's margin has missed several changes, and is asked while it lacks some. */
function planWithLateTokens(seed: number): Plan {
  const { manners, redis, ...plan } = planOf(seed - LATE_TOKEN_SEEDS + TOKEN_SEEDS);
  return {
    ...{ ...plan, seed, writePeriodMs: 300, verifyPeriodMs: 10, isolatedSyncs: 0.05, isolationMs: 3000 },
    manners: { ...manners, messageLoss: 1 },
    redis: { ...redis, logEntries: 10_000, batchEntriesMax: 1 },
  };
}

function planWithRoles(seed: number): Plan {
  const plan = planWithoutRerolls(seed - ROLE_SEEDS);
  // Older verifiers are kept out of an API whose keys have roles; that is looked at elsewhere.
  return {
    ...plan,
    seed,
    rerolls: 0,
    roles: true,
    identities: false,
    olderVerifiers: 0,
    redis: { ...plan.redis, payloadBytesMax: 220 },
  };
}

function planWithoutRerolls(seed: number): Omit<Plan, 'rerolls' | 'roles' | 'identities'> {
  if (seed < CREDIT_SEEDS) return { ...planWithout(seed), credits: undefined, rate: undefined };
  if (seed < LIMIT_SEEDS) return { ...planWithCredits(seed), rate: undefined };
  const random = new Random(seed);
  const plan = planWithCredits(seed - LIMIT_SEEDS + CREDIT_SEEDS);
  const rate = {
    limit: random.pick([1, 4, 20, 100]),
    duration: random.pick([200, 1000, 3000, 10_000]),
    async: random.chance(0.8),
    autoApply: (seed - LIMIT_SEEDS) % 7 === 6,
  };
  return {
    ...{ ...plan, seed, rate },
    // In long windows keys are asked for so rarely that verifiers forget them meanwhile.
    verifyPeriodMs: rate.duration === 10_000 ? 600 : plan.verifyPeriodMs,
    credits: random.chance(0.5) ? plan.credits : undefined,
    // What a failover forgets of a window is the exception of the promise.
    faults: plan.faults.filter((fault) => fault !== 'failover'),
    redis: { ...plan.redis, payloadBytesMax: 250 },
  };
}

function planWithCredits(seed: number): Omit<Plan, 'rate' | 'rerolls' | 'roles' | 'identities'> {
  const random = new Random(seed);
  // Where keys have credits, older verifiers are kept out from the first.
  const plan = { ...planWithout(seed - CREDIT_SEEDS), olderVerifiers: 0 };
  const verifyPeriodMs = random.pick([3, 10]);
  const credits = random.pick([5, 50, 500]);
  if (seed % 3 !== 0) return { ...plan, seed, verifyPeriodMs, credits };
  // Nothing that loses credits: each must be accounted for.
  const faults = plan.faults.filter((fault) => !LOSSY.includes(fault));
  const limits = { ...plan.limits, apiIdleMs: 600_000 };
  return { ...plan, seed, verifyPeriodMs, credits, faults, limits };
}

function planWithout(seed: number): Omit<Plan, 'credits' | 'rate' | 'rerolls' | 'roles' | 'identities'> {
  const random = new Random(seed);
  const some = (probability: number, value: number) => (random.chance(probability) ? value : 0);
  const aim = ({ 0: 'failovers', 1: 'lowering', 2: 'drift' } as const)[seed % 6];
  const replicas = aim === 'failovers' || (!aim && random.chance(0.5)) ? 2 : 0;
  const leaseMs = aim === 'lowering' || aim === 'drift' ? 2000 : random.pick([500, 1000, 2000]);
  const slowest = random.between(0.971, 1);
  const needsReplicas: readonly Fault[] = ['replica stall', 'failover'];
  const leasesMs = [
    leaseMs,
    random.pick(aim === 'lowering' ? [leaseMs / 4] : [leaseMs / 2, leaseMs * 2, leaseMs * 4]),
  ];
  const faults = FAULTS.filter((fault) => {
    if (aim && AIMED[aim].includes(fault)) return true;
    return random.chance(aim ? 0.2 : 0.4) && (replicas > 0 || !needsReplicas.includes(fault));
  });
  const isolated = faults.includes('isolation') ? 0.1 : 0;
  return {
    seed,
    findsKeys: Math.floor(seed / 6) % 2 === 0,
    replicas,
    hasSpare: replicas > 0 && random.chance(aim ? 0.8 : 0.5),
    verifiers: random.whole(1, 3),
    controlPlanes: random.whole(1, 2),
    apiIds: random.chance(0.7) ? ['a'] : ['a', 'b'],
    keysPerApi: random.whole(1, 3),
    leasesMs,
    deposedMs: replicas > 0 ? random.pick([300, 1000]) : 0,
    ratesFrom: slowest,
    ratesTo: slowest * 1.03,
    rates: aim === 'drift' ? 'worst' : random.pick(['any', 'extreme', 'worst']),
    activeMs: random.between(4, 10) * leaseMs,
    writePeriodMs: random.pick([100, 300, 1000]),
    batches: BATCHED.includes(seed % 7) ? 0.3 : 0,
    olderVerifiers: seed % 11 === UPGRADING ? 0.4 : 0,
    verifyPeriodMs: random.pick([15, 40]),
    faults,
    faultPeriodMs: random.pick(aim ? [100, 200] : [100, 300, 1000]),
    // Who drifts must have been in touch just before a change, and alone be cut off by it.
    isolatedWrites: aim === 'drift' ? 0.5 : isolated,
    isolatedSyncs: isolated,
    isolationMs: aim === 'drift' ? leaseMs : 2 * Math.max(...leasesMs),
    manners: {
      messageLoss: random.pick(aim === 'failovers' ? [0, 0.1] : [0, 0.1, 0.5, 1]),
      messageDuplication: some(0.3, 0.2),
      messageDelay: some(0.4, 0.4),
      slowness: some(0.5, random.between(0, 0.2)),
      slowMsMax: random.pick([20, 300, 900]),
      desynchronisation: some(0.25, 0.5),
    },
    redis: {
      logEntries: random.pick(aim === 'failovers' ? [3, 5] : [5, 10_000]),
      creationsKept: aim === 'failovers' ? 3 : 100,
      payloadBytesMax: 120,
      batchEntriesMax: random.pick([2, 500]),
      batchBytesMax: random.pick([400, 1_048_576]),
    },
    limits: {
      syncPeriodMs: random.pick([50, 100, 200]),
      syncDeadlineMs: random.pick([100, 400]),
      cacheKeysMax: random.pick([2, 100]),
      unknownKeysMax: 10,
      unknownTtlMs: 1000,
      lookupsInFlightMax: 2,
      lookupsQueuedMax: 4,
      lookupWaitMs: 50,
      apisMax: 10,
      apiIdleMs: random.pick([1500, 600_000]),
    },
  };
}
