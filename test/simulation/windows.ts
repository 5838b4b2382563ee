import type { PoolReply, PoolTurn } from '../../verifier/core/redis-port.ts';
import { grant, type Holder, isLive, type Members, NOBODY, refusal } from './pools.ts';

type Window = NonNullable<PoolTurn['window']>;

/** One rate limit in Redis; windows.lua and exchange.lua as functions on it. */
export class WindowState {
  number = -9;
  granted = 0;
  before = 0;
  holding = 0;
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
    if (!isLive(api, member)) return { reply: refusal(turn, 'NOREG'), recalls: false };
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
    // Who is not live any more gives nothing back.
    const others = new Map(
      [...this.holders].filter(
        ([name, holder]) => name !== member && isLive(api, name) && holder.granted > holder.spent,
      ),
    );
    const scan = () => this.#scan(member, api);
    const size = api.members.size;
    const done = grant({ ...turn, kept }, free, { members: size, holders: others, scan, nowMs });
    for (const [name, holder] of others) this.holders.set(name, holder);
    const { status, spoken, more, recalls, leastNeed } = done;
    this.granted += spoken + more;
    this.holding += more;
    const granted = spent + kept + spoken + more;
    const left = free - spoken - more;
    const refillMs =
      status === 'NONE' || status === 'SPOKEN'
        ? this.#waitMs(limit, durationMs, this.granted - (done.most - left), leftMs, leastNeed)
        : -1;
    const total = leastNeed > 0 ? left + kept + done.others : left + this.holding;
    this.holders.set(member, { granted, spent, turn: turn.turn, spoken });
    const reply = {
      turn: turn.turn,
      status,
      granted,
      spent,
      reserve: spoken,
      total,
      refillMs,
      leastNeed,
    };
    return { reply: { ...reply, window: { number: this.number, leftMs } }, recalls };
  }

  #scan(own: string, api: Members): { live: number; out: number } {
    let [live, out] = [0, 0];
    for (const [name, { granted, spent, spoken }] of this.holders) {
      if (name === own) continue;
      if (isLive(api, name)) {
        live += granted - spent - spoken;
        out += granted - spent;
      } else {
        this.holding -= granted - spent - spoken;
        this.holders.delete(name);
      }
    }
    return { live, out };
  }

  #waitMs(limit: number, durationMs: number, granted: number, leftMs: number, least: number): number {
    const room = limit - granted - least;
    if (room >= 0) return Math.ceil(leftMs - (durationMs * room) / this.before) + 1;
    if (least > limit) return leftMs + durationMs;
    return Math.ceil(leftMs + durationMs * Math.max(0, 1 - (limit - least) / granted)) + 1;
  }
}
