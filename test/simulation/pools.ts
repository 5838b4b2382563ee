import type { CreditsChange } from '../../control-plane/core/change-log.ts';
import type { PoolReply, PoolTurn } from '../../verifier/core/redis-port.ts';

export const RECALL_MS = 50;
export const RECALLED_MS = 1000;

/** What a holder of a pool said and got, as in its field. */
interface Holder {
  readonly granted: number;
  readonly spent: number;
  readonly turn: number;
  readonly spoken: number;
}
const NOBODY: Holder = { granted: 0, spent: 0, turn: 0, spoken: 0 };

/** Members of an API, as far as the scripts on pools look at them. */
export interface Members {
  readonly members: ReadonlyMap<string, number>;
  /** Names that have a field in some pool. */
  readonly held: Set<string>;
}

const isLive = ({ members }: Members, name: string): boolean => (members.get(name) ?? -1) >= 0;

/** One pool of credits in Redis, without refills; credits.lua and exchange.lua as functions on it. */
export class PoolState {
  free: number;
  /** What holders have to spend. */
  holding = 0;
  recalledAtMs = Number.NEGATIVE_INFINITY;
  readonly holders = new Map<string, Holder>();
  /** Keys that share it, once there was more than one. */
  keys: readonly string[] = [];

  constructor(free: number) {
    this.free = free;
  }

  clone(): PoolState {
    const copy = new PoolState(this.free);
    copy.holding = this.holding;
    copy.recalledAtMs = this.recalledAtMs;
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
    const { kept, need, least, wanted } = turn;
    this.free += mine.granted - (spent + kept);
    this.holding += kept - (mine.granted - mine.spent - mine.spoken);
    let [granted, spoken] = [spent + kept, 0];
    let [status, total]: [PoolReply['status'], number | undefined] = [live ? 'OK' : 'NOREG', undefined];
    let recalls = false;
    if (live && (this.free >= least || need === 0)) {
      spoken = Math.max(0, Math.min(need, this.free));
      const slice = Math.min(
        wanted,
        Math.floor((this.free - spoken + kept) / (4 * Math.max(api.members.size, 1))),
      );
      const more = Math.max(0, slice - kept);
      this.free -= spoken + more;
      this.holding += more;
      granted += spoken + more;
    } else if (live) {
      const others = this.scan(member, false, api).live;
      total = this.free + kept + others;
      const sinceMs = nowMs - this.recalledAtMs;
      if (this.free + others < least) status = 'NONE';
      else if (sinceMs < RECALLED_MS && sinceMs >= RECALL_MS) status = 'HELD';
      else {
        status = 'WAIT';
        if (sinceMs >= RECALLED_MS) {
          this.recalledAtMs = nowMs;
          recalls = true;
        }
      }
    }
    this.holders.set(member, { granted, spent, turn: turn.turn, spoken });
    const reply: PoolReply = {
      ...{ turn: turn.turn, status, granted, spent, spokenFor: spoken },
      ...{ total: total ?? this.free + this.holding, refillMs: -1 },
    };
    return { reply, recalls };
  }

  /** What live holders have to spend, and all that they hold; others are written off. */
  scan(own: string, ended: boolean, api: Members): { live: number; out: number } {
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
  change(change: CreditsChange, api: Members): { remaining: number; isOwed: boolean } {
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
  ...{ turn, status, granted: 0, spent: 0, spokenFor: 0, total: 0, refillMs: -1 },
});
