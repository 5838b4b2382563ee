import type { PoolReply, PoolTurn } from '../../verifier/core/redis-port.ts';
import { type Members, RECALL_MS, RECALLED_MS, refusal } from './pools.ts';

/** What a holder said and got in the present window, as in its field. */
interface Holder {
  readonly granted: number;
  readonly spent: number;
  readonly turn: number;
  readonly spoken: number;
}
const NOBODY: Holder = { granted: 0, spent: 0, turn: 0, spoken: 0 };

type Window = NonNullable<PoolTurn['window']>;

/** One rate limit in Redis; windows.lua and exchange.lua as functions on it. */
export class WindowState {
  number = -9;
  granted = 0;
  before = 0;
  holding = 0;
  recalledAtMs = Number.NEGATIVE_INFINITY;
  readonly holders = new Map<string, Holder>();

  clone(): WindowState {
    const { holders, ...rest } = this;
    const copy = Object.assign(new WindowState(), rest);
    for (const [name, holder] of holders) copy.holders.set(name, holder);
    return copy;
  }

  #enter({ durationMs }: Window, nowMs: number): void {
    const number = Math.floor(nowMs / durationMs);
    if (this.number === number || this.number === number + 1) return;
    this.before = this.number === number - 1 ? this.granted : 0;
    this.number = number;
    this.granted = 0;
    this.holding = 0;
    this.recalledAtMs = Number.NEGATIVE_INFINITY;
    this.holders.clear();
  }

  /** exchange.lua, for one rate limit. */
  exchange(
    member: string,
    turn: PoolTurn,
    window: Window,
    api: Members,
    nowMs: number,
  ): { reply: PoolReply; recalls: boolean } {
    const isLive = (name: string) => (api.members.get(name) ?? -1) >= 0;
    if (!isLive(member)) return { reply: refusal(turn, 'NOREG'), recalls: false };
    const { limit, durationMs, number } = window;
    this.#enter(window, nowMs);
    const mine = this.holders.get(member) ?? NOBODY;
    let [spent, kept] = [turn.spent ?? mine.granted, turn.spent === undefined ? 0 : turn.kept];
    if (turn.spent !== undefined && number !== this.number) [spent, kept] = [0, 0];
    if (turn.turn <= mine.turn || (number === this.number && spent < mine.spent))
      return { reply: refusal(turn, 'OLD'), recalls: false };
    this.granted += spent + kept - mine.granted;
    this.holding += kept - (mine.granted - mine.spent - mine.spoken);
    const leftMs = (this.number + 1) * durationMs - nowMs;
    const free = Math.floor(limit - this.before * Math.min(1, leftMs / durationMs) - this.granted);
    let [granted, spoken] = [spent + kept, 0];
    let [status, total]: [PoolReply['status'], number | undefined] = ['OK', undefined];
    let [refillMs, recalls] = [-1, false];
    const { need, least, wanted } = turn;
    let more = 0;
    if (free >= least || need === 0) {
      spoken = Math.max(0, Math.min(need, free));
      const slice = Math.min(
        wanted,
        Math.floor((free - spoken + kept) / (4 * Math.max(api.members.size, 1))),
      );
      more = Math.max(0, slice - kept);
      this.granted += spoken + more;
      this.holding += more;
      granted += spoken + more;
    } else {
      let others = 0;
      for (const [name, holder] of this.holders)
        if (name !== member && isLive(name)) others += holder.granted - holder.spent - holder.spoken;
      total = free + kept + others;
      const sinceMs = nowMs - this.recalledAtMs;
      if (free + others < least) {
        status = 'NONE';
        refillMs = this.#waitMs(limit, durationMs, this.granted - others, leftMs, least);
      } else if (sinceMs < RECALLED_MS && sinceMs >= RECALL_MS) status = 'HELD';
      else {
        status = 'WAIT';
        recalls = sinceMs >= RECALLED_MS;
        if (recalls) this.recalledAtMs = nowMs;
      }
    }
    this.holders.set(member, { granted, spent, turn: turn.turn, spoken });
    total ??= free - spoken - more + this.holding;
    const reply = { turn: turn.turn, status, granted, spent, spokenFor: spoken, total, refillMs };
    return { reply: { ...reply, window: { number: this.number, leftMs } }, recalls };
  }

  #waitMs(limit: number, durationMs: number, granted: number, leftMs: number, least: number): number {
    const room = limit - granted - least;
    if (room >= 0) return Math.ceil(leftMs - (durationMs * room) / this.before) + 1;
    if (least > limit) return leftMs + durationMs;
    return Math.ceil(leftMs + durationMs * Math.max(0, 1 - (limit - least) / granted)) + 1;
  }
}
