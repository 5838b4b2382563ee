import { asset } from '../assets.ts';
import { command, each, oneOf } from '../redis/command.ts';
import { apiKeys, broughtIndex, poolKey, windowKey } from '../redis/redis-keys.ts';
import type { Run } from '../redis/script.ts';

/** Credits of work from before a divide; `pay` in credits.lua explains it. */
export interface Divide {
  /** The turn that is the divide. */
  readonly turn: number;
  /** Credits that this work holds yet. */
  readonly held: number;
  /** Credits that came back of it since. */
  readonly back: number;
}

/** One turn of an exchange: a verifier's report about one pool, and its needs. */
export interface PoolTurn {
  readonly pool: string;
  /** Higher than all earlier turns under the same name. */
  readonly turn: number;
  /** All credits taken under this name, for good or not; undefined = as in the last report. */
  readonly spent: number | undefined;
  /** Part of `spent` that may come back: the work that holds it has not ended. */
  readonly held: number;
  /** The follower's position in the log. */
  readonly position: number;
  /** Present if there was a divide. */
  readonly divide?: Divide | undefined;
  /** Credits that were granted and that the verifier neither spent nor gives back. */
  readonly kept: number;
  /** Needs of the waiting requests, in order. Consecutive equal needs are combined. */
  readonly needs: readonly { readonly cost: number; readonly times: number }[];
  /** The slice that the verifier wants, of which `kept` is a part. */
  readonly slice: number;
  /** The window of a rate limit; undefined = a pool of credits. */
  readonly window?: {
    readonly limit: number;
    readonly durationMs: number;
    /** The periods of the calendar that are its windows; undefined = windows of `durationMs`. */
    readonly calendar?: string | undefined;
    /** Per cents used of which webhooks tell, separated by spaces; undefined = none. */
    readonly thresholds?: string | undefined;
    /** The window of `spent` and `kept`; undefined = none. */
    readonly number: number | undefined;
    /** True if a question defines the limit. */
    readonly isBrought?: boolean | undefined;
  };
}

/**
 * The reply to a turn. Except for `turn` and `status`, its fields are meaningful only if the pool exists and
 * knows the name.
 */
export interface PoolReply {
  readonly turn: number;
  /** Statuses as in exchange.lua. */
  readonly status: 'OK' | 'NONE' | 'SPOKEN' | 'WAIT' | 'HELD' | 'NOREG' | 'OLD' | 'STALE' | 'FULL';
  /** All credits granted to this name so far. */
  readonly granted: number;
  /** All credits that Redis knows to be spent under this name. */
  readonly spent: number;
  /** Part of this turn's grant that `total` excludes, because waiting requests will spend it immediately. */
  readonly reserve: number;
  /** Credits left, as far as Redis knows. */
  readonly total: number;
  /**
   * Time until there is more, in milliseconds: until the next refill, or for a rate limit until `leastNeed`
   * fits; -1 = never, or unknown.
   */
  readonly refillMs: number;
  /** The smallest need that was not met, to which the status refers; 0 = all were met. */
  readonly leastNeed: number;
  /** Of credits: the most that there can be without a change, if a need was not met; undefined = unknown. */
  readonly most?: number | undefined;
  /** True if this turn is a divide. */
  readonly isDivide?: boolean;
  /** The lowest limit under which all this could have been granted; undefined = of credits. */
  readonly under?: number;
  /** The current window of a rate limit, and the milliseconds until it ends. */
  readonly window?: { readonly number: number; readonly leftMs: number };
}

/**
 * Longest time that holders get to give back recalled credits, in milliseconds. After that, the verdict does
 * without them.
 */
export const RECALL_MS = 50;

/** The part of Redis that pools need. */
export interface Exchanges {
  /** True = turns about credits wait for replicas. */
  readonly awaitsReplicas: boolean;
  /**
   * Executes turns of pools, in this order. Resolves when all required replicas have the result, if any turn is about
   * credits. Rejects otherwise with SERVICE_UNAVAILABLE; the turns may then have been executed, or may still be executed
   * later.
   */
  exchange(apiId: string, member: string, turns: readonly PoolTurn[]): Promise<readonly PoolReply[]>;
}

const EXCHANGED = [
  ...['turn#', 'granted#', 'spent#', 'reserve#', 'total#', 'refillMs#', 'leastNeed#', '...more'],
] as const;
const exchanged = oneOf('status', {
  ...{ OK: EXCHANGED, NONE: EXCHANGED, SPOKEN: EXCHANGED, WAIT: EXCHANGED, HELD: EXCHANGED },
  ...{ NOREG: EXCHANGED, OLD: ['turn#'], STALE: ['turn#'], FULL: ['turn#'] },
});
const NOT_EXCHANGED = { granted: 0, spent: 0, reserve: 0, total: 0, refillMs: -1, leastNeed: 0 };
export const exchangeTurns = command(
  asset('shared/metering/exchange.lua'),
  ['members', 'held', '...names'],
  ['member', 'channel', 'recall', '...turns'],
  each((reply): PoolReply => {
    const { more, ...rest } = { ...NOT_EXCHANGED, more: [], ...exchanged(reply) };
    // Of credits the most that there can be, of a limit its window.
    const [first = -1, leftMs = -1, divide, under] = more.map(Number);
    const ofLimit = under === undefined ? {} : { under };
    if (leftMs >= 0) return { ...rest, ...ofLimit, window: { number: first, leftMs } };
    return { ...rest, ...ofLimit, most: first < 0 ? undefined : first, isDivide: divide === 1 };
  }),
);

export function exchangeRun(
  apiId: string,
  member: string,
  turns: readonly PoolTurn[],
): Run<readonly PoolReply[]> {
  const { members, held, recalls } = apiKeys(apiId);
  const names = turns.map(({ pool, window }) => (window ? windowKey : poolKey)(apiId, pool));
  const parts = turns.flatMap(({ pool, turn, spent = '-', kept, needs, slice, window, ...rest }) => [
    ...[
      turn,
      spent,
      window ? rest.held : holdingText(rest),
      kept,
      needs.map(({ cost, times }) => `${cost}x${times}`).join(' '),
      slice,
    ],
    ...[window?.limit ?? '-', window ? lengthOf(window) : '-', window?.number ?? '-'],
    window?.isBrought ? names.push(broughtIndex(apiId, pool)) : '-',
  ]);
  return exchangeTurns({ members, held, names, member, channel: recalls, recall: RECALL_MS, turns: parts });
}

const holdingText = ({ held, position, divide }: Pick<PoolTurn, 'held' | 'position' | 'divide'>) =>
  divide ? `${held} ${position} ${divide.held} ${divide.turn} ${divide.back}` : `${held} ${position}`;

const lengthOf = ({
  durationMs,
  calendar = String(durationMs),
  thresholds,
}: NonNullable<PoolTurn['window']>) => (thresholds ? `${calendar} ${thresholds}` : calendar);
