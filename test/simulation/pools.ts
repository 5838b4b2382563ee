import type { CreditsChange } from '../../control-plane/writer/change-log-port.ts';
import type { PoolReply, PoolTurn } from '../../verifier/core/redis-port.ts';

const RECALL_MS = 50;
const RECALLED_MS = 1000;

/** What a holder of a pool or limit said and got, as in its field. */
export interface Holder {
  readonly granted: number;
  readonly spent: number;
  readonly turn: number;
  readonly spoken: number;
  /** When it was asked to give back, since its latest turn. */
  readonly askedAtMs?: number;
}
export const NOBODY: Holder = { granted: 0, spent: 0, turn: 0, spoken: 0 };

/** Members of an API, as far as the scripts on pools look at them. */
export interface Members {
  readonly members: ReadonlyMap<string, number>;
  /** Names that have a field in some pool. */
  readonly held: Set<string>;
}

export const isLive = ({ members }: Members, name: string): boolean => (members.get(name) ?? -1) >= 0;

/** A refill of credits each time that so much time has passed; the real ones are daily or monthly. */
export interface Refill {
  readonly amount: number;
  readonly periodMs: number;
}

/** What live holders other than the caller have to spend, and all that they hold. */
export interface Scan {
  readonly live: number;
  readonly out: number;
}

/** What `grant` of exchange.lua does, on the numbers of a pool or of a window. */
export function grant(
  { kept, needs, slice: sliceMax }: PoolTurn,
  free: number,
  {
    members,
    holders,
    scan,
    nowMs,
  }: {
    members: number;
    holders: Map<string, Holder>;
    scan: () => Scan;
    nowMs: number;
  },
): {
  status: 'OK' | 'NONE' | 'SPOKEN' | 'WAIT' | 'HELD';
  spoken: number;
  more: number;
  recalls: boolean;
  leastNeed: number;
  /** Where something is lacking: what others have to spend, and what is left for it. */
  others: number;
  most: number;
} {
  let [rest, leastNeed] = [free + kept, 0];
  for (const { cost, times } of needs) {
    const fit = Math.max(0, Math.min(times, Math.floor(rest / cost)));
    rest -= fit * cost;
    if (fit < times) leastNeed = Math.min(cost, leastNeed || cost);
  }
  const spoken = Math.max(0, free - rest);
  if (leastNeed === 0) {
    const slice = Math.min(sliceMax, Math.floor((free - spoken + kept) / (4 * Math.max(members, 1))));
    const more = Math.max(0, slice - kept);
    return { status: 'OK', spoken, more, recalls: false, leastNeed, others: 0, most: 0 };
  }
  const { live: others, out } = scan();
  const found = { spoken, more: 0, leastNeed, others, most: rest + others };
  const spare = rest + others - leastNeed;
  if (spare + out - others < 0) return { ...found, status: 'NONE', recalls: false };
  let [recalls, silent, taken] = [false, 0, 0];
  for (const [name, holder] of holders) {
    const own = holder.granted - holder.spent - holder.spoken;
    const sinceMs = nowMs - (holder.askedAtMs ?? Number.POSITIVE_INFINITY);
    if (sinceMs < 0 || (own > 0 && sinceMs >= RECALLED_MS)) {
      holders.set(name, { ...holder, askedAtMs: nowMs });
      recalls = true;
    } else if (sinceMs >= RECALL_MS) {
      silent += own;
      taken += holder.spoken;
    }
  }
  if (spare < 0) return { ...found, status: spare + out - others - taken < 0 ? 'NONE' : 'SPOKEN', recalls };
  return { ...found, status: spare < silent ? 'HELD' : 'WAIT', recalls };
}

/** One pool of credits in Redis; credits.lua and exchange.lua as functions on it. */
export class PoolState {
  free: number;
  /** What holders have to spend. */
  holding = 0;
  refill: Refill | undefined;
  /** When the next refill is due. */
  dueAtMs = 0;
  readonly holders = new Map<string, Holder>();
  /** Keys that share it, once there was more than one. */
  keys: readonly string[] = [];

  /** When it was made, by the clock of Redis. */
  readonly madeAtMs: number;
  refills = 0;
  refilledAtMs = 0;
  refilledTo = 0;

  constructor(free: number, madeAtMs: number) {
    this.free = free;
    this.madeAtMs = madeAtMs;
  }

  clone(): PoolState {
    const copy = new PoolState(this.free, this.madeAtMs);
    copy.refills = this.refills;
    copy.refilledAtMs = this.refilledAtMs;
    copy.refilledTo = this.refilledTo;
    copy.holding = this.holding;
    copy.refill = this.refill;
    copy.dueAtMs = this.dueAtMs;
    copy.keys = this.keys;
    for (const [name, holder] of this.holders) copy.holders.set(name, holder);
    return copy;
  }

  /** exchange.lua, for one pool; `recalls` = others are asked to give back. */
  exchange(
    member: string,
    turn: PoolTurn,
    api: Members,
    nowMs: number,
  ): { reply: PoolReply; recalls: boolean } {
    const mine = this.holders.get(member) ?? NOBODY;
    const spent = turn.spent ?? mine.spent;
    const live = isLive(api, member);
    if ((!live && !api.held.has(member)) || turn.turn <= mine.turn || spent < mine.spent) {
      return { reply: refusal(turn, 'OLD'), recalls: false };
    }
    const { kept } = turn;
    this.free += mine.granted - (spent + kept);
    this.holding += kept - (mine.granted - mine.spent - mine.spoken);
    this.settle(api, nowMs, member, kept);
    let granted = spent + kept;
    let [status, total]: [PoolReply['status'], number | undefined] = ['NOREG', undefined];
    let [recalls, spoken, leastNeed] = [false, 0, 0];
    if (live) {
      const others = new Map(
        [...this.holders].filter(
          ([name, holder]) => name !== member && isLive(api, name) && holder.granted > holder.spent,
        ),
      );
      const scan = () => this.scan(member, false, api);
      const done = grant(turn, this.free, { members: api.members.size, holders: others, scan, nowMs });
      for (const [name, holder] of others) this.holders.set(name, holder);
      ({ status, recalls, spoken, leastNeed } = done);
      this.free -= spoken + done.more;
      this.holding += done.more;
      granted += spoken + done.more;
      if (leastNeed > 0) total = this.free + kept + done.others;
    }
    this.holders.set(member, { granted, spent, turn: turn.turn, spoken });
    const reply: PoolReply = {
      ...{ turn: turn.turn, status, granted, spent, reserve: spoken, leastNeed },
      ...{ total: total ?? this.free + this.holding, refillMs: this.refill ? this.dueAtMs - nowMs : -1 },
    };
    return { reply, recalls };
  }

  /** Has refills from now on, or none. */
  setRefill(refill: Refill | undefined, nowMs: number): void {
    this.refill = refill;
    if (refill) this.dueAtMs = nextOf(refill, nowMs);
  }

  /** Brings it to the present, before anything else is done to it. `own` has `kept` to spend. */
  settle(api: Members, nowMs: number, own = '', kept = 0): void {
    if (!this.refill || nowMs < this.dueAtMs) return;
    const { live } = this.scan(own, true, api);
    this.free += Math.max(0, this.refill.amount - (this.free + kept + live));
    this.dueAtMs = nextOf(this.refill, nowMs);
    this.refills++;
    this.refilledAtMs = nowMs;
    this.refilledTo = this.refill.amount;
  }

  /** What live holders have to spend, and all that they hold; others are written off. */
  scan(own: string, ended: boolean, api: Members): Scan {
    let [live, out] = [0, 0];
    for (const [name, holder] of this.holders) {
      if (name === own) continue;
      const { granted, spent, turn, spoken } = holder;
      if (isLive(api, name)) {
        live += granted - spent - spoken;
        out += granted - spent;
      } else if (ended && turn < Number.MAX_SAFE_INTEGER) {
        this.holding -= granted - spent - spoken;
        this.holders.set(name, { granted, spent: granted, turn: Number.MAX_SAFE_INTEGER, spoken: 0 });
      } else {
        this.holding -= granted - spent - spoken;
        this.holders.set(name, { ...holder, spoken: granted - spent });
      }
    }
    return { live, out };
  }

  clamp(api: Members): void {
    if (this.free >= 0 || this.scan('', false, api).out > 0) return;
    this.scan('', true, api);
    this.free = 0;
  }

  /** write-change.lua, for what is no `set`. */
  change(change: CreditsChange, api: Members, nowMs: number): { remaining: number; isOwed: boolean } {
    this.settle(api, nowMs);
    this.clamp(api);
    if (change.op === 'increment') this.free += change.value;
    else if (change.op === 'decrement') {
      this.free -= change.value;
      this.clamp(api);
    }
    const { live } = this.scan('', false, api);
    return { remaining: Math.max(0, this.free + live), isOwed: this.free < 0 };
  }

  /** Credits that were granted and of which nobody said that they were spent. */
  get out(): number {
    let out = 0;
    for (const { granted, spent } of this.holders.values()) out += granted - spent;
    return out;
  }
}

/** A turn that changes nothing. */
export const refusal = ({ turn }: PoolTurn, status: 'OLD' | 'STALE' | 'NOREG'): PoolReply => ({
  ...{ turn, status, granted: 0, spent: 0, reserve: 0, total: 0, refillMs: -1, leastNeed: 0 },
});

const nextOf = ({ periodMs }: Refill, nowMs: number): number => (Math.floor(nowMs / periodMs) + 1) * periodMs;
