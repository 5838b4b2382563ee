import type { Clock } from '../process/clock.ts';
import { type Instant, instant } from '../process/clock.ts';
import { isPlaces, type Window } from '../protocol/records/limits-in-memory.ts';
import { ApiError } from '../rules/errors.ts';
import { Balance } from './balance.ts';
import { Demand, type Waiter } from './demand.ts';
import type { PoolReply, PoolTurn } from './exchange.ts';
import { GrantWindow } from './grant-window.ts';
import { KNOWN_MS, Outlook } from './outlook.ts';
import { SpendingRate } from './spending-rate.ts';

const tooMany = () =>
  new ApiError(
    'RATE_LIMITED',
    'ratelimits: too many different limits were defined for this key in questions; use fewer, or try again later',
  );

/** Time without a request after which everything is given back, in milliseconds. */
export const IDLE_MS = 2000;
/** Time after a recall in which the pool takes no more than its requests need, in milliseconds. */
const RECALLED_MS = 5000;
/** Time in which a pool gathers what comes back before it tells Redis, in milliseconds. */
const RELEASE_MS = 10;
/** Pause before asking Redis again for credits that others are giving back, in milliseconds. */
const RETRY_MS = 5;
/** Time after which a question that found no free place may be asked again, in milliseconds. */
const RETRY_PLACE_MS = 1000;
/** Redis forgets places of which it hears nothing for a day. */
const PLACES_KEPT_MS = 3_600_000;
/** A slice lasts for at most this part of a window. */
const SLICE_PART = 1 / 8;

/** The exchange in flight. */
interface Turn {
  readonly number: number;
  readonly sentAt: Instant;
  readonly window: Window | undefined;
  /** As it was told: all uses, those that were held, and what was kept. */
  readonly uses: number;
  readonly held: number;
  readonly kept: number;
}

/** The follower's side of a pool. */
export interface PoolHost {
  /** Schedules a turn of this pool. */
  request(pool: Pool): void;
  /** Tells whether the lease holds at this instant. */
  isLive(): boolean;
  /** The position in the log that was applied. */
  position(): number;
}

/**
 * One follower's share of one pool's credits, rate limit or places. A follower registers under a new name each time it
 * starts afresh. Redis counts everything granted as gone. After any failure the totals are reported again, so that
 * nothing is counted twice and no spent credit is granted to others. A rate limit starts anew with each window; a grant
 * is worth nothing in the next. Places are only ever held.
 *
 *     unknown ── ask ──▶ in flight ── reply ──▶ known ── idle, recall, change ──▶ in flight (gives back) ──▶ at Redis
 *                           ▲                     │
 *                           └── ask: too little ──┘
 *
 * `Balance` counts, `Demand` has who waits, `Outlook` what may be said meanwhile.
 */
export class Pool {
  readonly id: string;
  /** True = nothing more is granted to this pool: its name was given up, or a change replaced it. */
  isEnded = false;
  /** undefined = credits. Its limit is that of the latest question. */
  window: Window | undefined;
  readonly #clock: Clock;
  readonly #sliceMs: number;
  #host: PoolHost;
  readonly #balance = new Balance();
  readonly #demand = new Demand();
  readonly #outlook = new Outlook();
  readonly #grant = new GrantWindow();
  readonly #rate = new SpendingRate();
  /** undefined = none in flight, or its reply no longer counts. */
  #turn: Turn | undefined;
  /** True while Redis counts nothing as spendable here, and knows all that was taken. */
  #isAtRedis = true;
  /** The next turn returns nothing that it need not, what is more than a slice, or everything. */
  #returns: 'nothing' | 'surplus' | 'all' = 'nothing';
  /** True = work from before a change ended, and Redis has yet to hear of it. */
  #hasOld = false;
  #slice = 0;
  #recalledUntilMs = 0;
  #usedAtMs: number;
  #toldAtMs = 0;
  /** Accepted questions whose work has not ended. */
  #holds = 0;
  /** When the oldest grant was asked for that is here, on the monotonic clock. */
  #grantedAtMs = 0;
  /**
   * From then on every verifier obeys the changes of this limit that were applied here. What was granted before serves only those
   * who waited for it: others may have been granted more meanwhile, under another limit.
   */
  #obeyedAtMs = 0;
  /** True while those whom the latest turn serves decide. */
  #isReplying = false;
  /** True if what is reserved since then is of that turn. */
  #isServing = false;
  /** The limit of the latest turn; undefined = none. */
  #limit: number | undefined;

  constructor(id: string, clock: Clock, sliceMs: number, host: PoolHost, window: Window | undefined) {
    this.id = id;
    this.window = window;
    this.#clock = clock;
    this.#sliceMs = sliceMs;
    this.#host = host;
    this.#usedAtMs = clock.monotonicMs();
  }

  /** Notes from when on every verifier obeys all changes of this limit. */
  heed(obeyedAtMs: number): void {
    if (obeyedAtMs <= this.#obeyedAtMs) return;
    this.#obeyedAtMs = obeyedAtMs;
    this.#isServing = false;
  }

  /** Number that can be spent without asking Redis. */
  get available(): number {
    return this.#availableAt(instant(this.#clock));
  }

  #availableAt(now: Instant): number {
    return this.#isOver(now) ? 0 : this.#balance.available;
  }

  /** True while Redis needs to hear nothing more from this pool. */
  get isReported(): boolean {
    if (this.#turn || this.#demand.size > 0) return false;
    // A threshold is passed once Redis has heard what was spent of a grant, and not held.
    const isTold = this.isWindow && !this.window?.thresholds;
    return isTold ? this.available === 0 : this.#isAtRedis;
  }

  /** True if what is here may be spent at this instant: otherwise a change that took it may be complete already. */
  get isLive(): boolean {
    return !this.isEnded && this.#host.isLive();
  }

  /** True if this pool may be forgotten. Not while something is held: it would come back to a new pool of that name. */
  get isOver(): boolean {
    return this.#holds === 0 && this.isReported;
  }

  /** True while something of this pool is held. */
  get isHeld(): boolean {
    return this.#holds > 0;
  }

  /** True if this pool is a rate limit. */
  get isWindow(): boolean {
    return this.window !== undefined && !isPlaces(this.window);
  }

  get hasPlaces(): boolean {
    return this.window !== undefined && isPlaces(this.window);
  }

  /** True while this pool has never heard from Redis, and whoever asked has given up. */
  get isForgotten(): boolean {
    return (
      !this.#balance.isKnown && this.#isAtRedis && this.#returns === 'nothing' && this.#demand.size === 0
    );
  }

  isIdle({ monotonicMs }: Instant): boolean {
    return monotonicMs - this.#usedAtMs >= IDLE_MS && this.#demand.size === 0;
  }

  /** Returns true if this pool has held something so long that a new report to Redis is due. */
  isStale(now: Instant): boolean {
    if (this.hasPlaces && this.isHeld && now.monotonicMs >= this.#toldAtMs + PLACES_KEPT_MS) return true;
    const periodMs = Math.max(this.#sliceMs, KNOWN_MS);
    return now.monotonicMs >= this.#outlook.sinceMs + periodMs && this.#availableAt(now) > 0;
  }

  /** Milliseconds until a refused request may be repeated; undefined = never, or unknown. */
  retryMs(cost: number, limit = Number.POSITIVE_INFINITY): number | undefined {
    if (this.neverFits(cost, limit)) return undefined;
    return this.hasPlaces ? RETRY_PLACE_MS : this.#outlook.retryMs(cost, this.#clock.monotonicMs());
  }

  /** Returns true if a cost is more than the limit, or than any refill brings. */
  neverFits(cost: number, limit = Number.POSITIVE_INFINITY): boolean {
    return cost > limit || this.#outlook.neverFits(cost);
  }

  /** Returns the end of the current window, in Unix milliseconds of Redis' clock. */
  resetMs(nowMs: number): number {
    return this.window ? this.#grant.resetMs(nowMs, this.window) : 0;
  }

  /** The number left for a question with this limit, as far as is known here. */
  remaining(limit = Number.POSITIVE_INFINITY): number {
    return Math.max(0, this.#outlook.remaining(limit) ?? 0);
  }

  /** True if `remaining` is more than a guess. */
  get isKnown(): boolean {
    return this.#outlook.isKnown;
  }

  /**
   * False if a change came since a hold began: what comes back of it goes to Redis, and `remaining` does not count it.
   * @param since as `begin` returned it
   */
  isCurrent(since: number): boolean {
    return this.#balance.isCurrent(since);
  }

  /**
   * Returns the outlook for this cost, without spending; undefined = the caller must ask Redis (`ask`).
   * @param limit the limit of the question; infinity = of credits
   */
  look(cost: number, now: Instant, limit = Number.POSITIVE_INFINITY): 'enough' | 'too little' | undefined {
    const nowMs = now.monotonicMs;
    this.#usedAtMs = nowMs;
    if (!this.#outlook.isKnown) return undefined;
    const balance = this.#balance;
    if (balance.isKnown && !this.#isOver(now)) {
      // A request that takes nothing would otherwise get the same old remaining number for ever.
      if (cost === 0) return this.#outlook.isFresh(nowMs) ? 'enough' : undefined;
      if (
        balance.under <= limit &&
        balance.available >= cost &&
        (this.#grantedAtMs >= this.#obeyedAtMs || this.#serves)
      )
        return 'enough';
    }
    return cost > 0 && this.#outlook.refuses(cost, limit, nowMs) ? 'too little' : undefined;
  }

  /** True if a change of the limit may lie between the grant and now. */
  get #isOld(): boolean {
    return this.#grantedAtMs < this.#obeyedAtMs;
  }

  /** True if whoever waited for the latest grant has yet to take it. */
  get #serves(): boolean {
    return this.#isReplying || (this.#isServing && this.#demand.isReserved);
  }

  /**
   * Takes the cost for which `look` returned `enough`, in the same synchronous block.
   * @param isHeld true = `settle` may give some back
   */
  take(cost: number, nowMs: number, isHeld = false): void {
    if (cost === 0 || !this.#balance.isKnown || !this.#outlook.isKnown) return;
    this.#rate.spent(cost, nowMs);
    if (isHeld) this.#balance.hold(cost);
    else this.#balance.spend(cost);
    this.#outlook.add(-cost);
    this.#isAtRedis = false;
    if (!this.#turn && 2 * this.#balance.available < this.#slice) this.#host.request(this);
  }

  /** True while more came back than Redis has heard of. */
  get isReleased(): boolean {
    return this.#returns === 'surplus';
  }

  /**
   * Keeps this pool until `settle`.
   * @returns what `settle` takes
   */
  begin(): number {
    this.#holds++;
    return this.#balance.since;
  }

  /**
   * Ends a hold, and spends for good what its work cost.
   * @param since as `begin` returned it
   * @param held what `take` took for it
   * @returns true = what the work did not need is lost, because its window is over
   */
  settle(since: number, held: number, cost: number): boolean {
    this.#holds--;
    if (held === 0) return false;
    const isLost = this.isWindow && (this.isEnded || this.#grant.hasEnded(instant(this.#clock)));
    const place = this.#balance.settle(since, held, isLost ? held : cost);
    if (isLost || place === 'nowhere') return cost < held;
    this.#isAtRedis = false;
    // What is from before a change is told apart from all else: it may be owed.
    if (place === 'Redis' && !this.isEnded) {
      this.#hasOld = true;
      if (!this.#turn) this.#host.request(this);
      return false;
    }
    if (cost === held && !this.isEnded) return false;
    if (place === 'here') this.#outlook.add(held - cost);
    // An ended pool is asked for nothing else.
    if (this.#returns === 'surplus' || (this.#returns === 'all' && !this.isEnded)) return false;
    this.#returns = 'surplus';
    this.#clock.after(RELEASE_MS, this.#tellReleased);
    return false;
  }

  /** Others may wait for what came back, unless it was taken again already. */
  readonly #tellReleased = (): void => {
    if (this.#returns !== 'surplus') return;
    if (this.#turn) return void this.#clock.after(RELEASE_MS, this.#tellReleased);
    // While Redis knows of a slice here, it recalls that and hears of the rest.
    if (this.isEnded || this.#balance.available > 2 * this.#slice) this.#host.request(this);
    else this.#returns = 'nothing';
  };

  /** Adds a waiter (only once), and asks Redis. */
  ask(waiter: Waiter, cost: number, limit = Number.POSITIVE_INFINITY): void {
    this.#demand.add(waiter, cost, limit);
    if (!this.#turn) this.#host.request(this);
  }

  /** Reserves for a waiter at another pool: a recall would otherwise give it back during the wait. */
  keep(waiter: Waiter, cost: number, limit = Number.POSITIVE_INFINITY): void {
    if (cost > 0) this.#demand.add(waiter, cost, limit, true);
  }

  /** Begins a turn and stops using what is not kept. undefined = nothing to report. */
  beginTurn(number: number): PoolTurn | undefined {
    if (this.#turn) return undefined;
    const nowMs = this.#clock.monotonicMs();
    const balance = this.#balance;
    const reserved = this.#serves ? this.#demand.reserved : 0;
    const { limit, needs } = this.#demand.begin() ?? { limit: this.#limitOfNobody(), needs: [] };
    const isOld = this.#isOld;
    const window = this.window && { ...this.window, limit };
    const returns =
      this.#returns === 'all' || this.isEnded || nowMs < this.#recalledUntilMs || window?.isExact === true;
    const sliceMs = this.isWindow
      ? Math.min(this.#sliceMs, (window?.durationMs ?? 0) * SLICE_PART)
      : this.#sliceMs;
    const slice =
      returns || nowMs < this.#obeyedAtMs ? 0 : Math.floor((this.#rate.at(nowMs) * sliceMs) / 1000);
    const isSurplus = this.#returns === 'surplus' || this.hasPlaces;
    const available = this.#isOver(instant(this.#clock)) ? 0 : balance.availableUnder(limit);
    const most = isOld ? reserved : isSurplus ? slice : available;
    const kept = returns ? 0 : Math.min(available, most);
    if (kept === 0) this.#grantedAtMs = nowMs;
    this.#limit = limit;
    this.#returns = 'nothing';
    this.#hasOld = false;
    this.#isAtRedis = false;
    this.#toldAtMs = nowMs;
    balance.begin(kept, limit, isOld);
    const { uses, held } = balance;
    this.#turn = { number, sentAt: instant(this.#clock), window, uses, held, kept };
    const spent = balance.isKnown ? uses : undefined;
    const position = this.#host.position();
    const report = { pool: this.id, turn: number, spent, held, position, kept, needs, slice };
    if (!window) return { ...report, divide: balance.divide };
    const { durationMs, calendar, thresholds, isBrought } = window;
    return {
      ...report,
      window: { limit, durationMs, calendar, thresholds, isBrought, number: this.#grant.number },
    };
  }

  /** The limit of a turn for which nobody waits. */
  #limitOfNobody(): number {
    return this.#limit ?? this.window?.limit ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Applies a reply, unless its turn no longer counts. Then call `endTurn`.
   * @param woken gets the waiters that have news
   */
  takeReply(reply: PoolReply, woken: Set<Waiter>): void {
    const turn = this.#turn;
    if (turn === undefined || reply.turn !== turn.number) return;
    const { status, total } = reply;
    if (status === 'FULL' || status === 'STALE' || status === 'OLD' || status === 'NOREG') {
      this.#turn = undefined;
      if (status === 'STALE') this.#isAtRedis = this.isEnded = true;
      if (status === 'FULL') this.failAll(tooMany());
      else this.#clock.after(RETRY_MS, () => this.#demand.wakeAll());
      return;
    }
    const balance = this.#balance;
    if (reply.window && turn.window && this.#grant.enter(reply.window, turn.window, turn.sentAt)) {
      this.#turn = { ...turn, uses: 0, held: 0, kept: 0 };
      balance.enter();
    }
    const { uses, held } = this.#turn ?? turn;
    const since = balance.isKnown ? balance.uses - uses : 0;
    if (reply.isDivide) balance.divideAt(turn.number);
    balance.reply(reply.granted, reply.spent, reply.under ?? turn.window?.limit ?? Number.POSITIVE_INFINITY);
    this.#isReplying = true;
    this.#isServing = true;
    this.#isAtRedis = balance.available === 0 && since === 0 && balance.held === held;
    const nowMs = this.#clock.monotonicMs();
    const limit = turn.window?.limit ?? Number.POSITIVE_INFINITY;
    this.#outlook.learn({
      remaining: total + reply.reserve - since,
      limit,
      most: turn.window ? Number.POSITIVE_INFINITY : (reply.most ?? Number.POSITIVE_INFINITY),
      refillMs: reply.refillMs < 0 ? undefined : reply.refillMs,
      nowMs,
    });
    this.#slice = 0;
    if (status !== 'OK' && status !== 'WAIT') {
      const kind = this.hasPlaces ? 'places' : this.isWindow && status === 'NONE' ? 'window' : 'other';
      this.#outlook.refuse(reply.leastNeed, limit, kind, nowMs);
    }
    this.#demand.wakeServed(this.available, woken);
    if (status !== 'WAIT') this.#demand.wakeCalled(woken);
  }

  /** Ends the turn of a reply, once those who were woken have taken what they need. */
  endTurn(reply: PoolReply): void {
    this.#isReplying = false;
    const turn = this.#turn;
    if (reply.turn !== turn?.number) return;
    this.#turn = undefined;
    if (reply.status === 'WAIT')
      return void this.#clock.after(RETRY_MS, () => {
        if (!this.#turn && this.#demand.isAsked) this.#host.request(this);
      });
    // Without what requests need that still wait for another pool: taking it is no reason to ask for more.
    const { available } = this;
    this.#slice = Math.max(0, available - this.#demand.cost);
    // Was granted to a request that was refused for another reason: others may need it.
    const ofNobody = this.#slice - (reply.granted - turn.uses - turn.kept - reply.reserve);
    const isDue =
      this.#returns === 'all' || (this.#clock.monotonicMs() < this.#recalledUntilMs && this.#slice > 0);
    if ((isDue || (reply.reserve > 0 && ofNobody > 0)) && !this.#isAtRedis) this.giveBack();
    else if (this.#hasOld || this.#demand.isAsked) this.#host.request(this);
  }

  /** Handles a failed call: the next turn gives back what this one may have granted. */
  failTurn(number: number, error: unknown): void {
    if (number !== this.#turn?.number) return;
    this.#turn = undefined;
    this.failAll(error);
  }

  failAll(error: unknown): void {
    this.#demand.failAll(error);
  }

  /** Ends the use of the name under which this pool was granted anything. */
  end(error: unknown): void {
    this.isEnded = true;
    this.void();
    this.failAll(error);
  }

  /** Goes on with what is held, under another name: whoever registers anew brings the places that its work has. */
  rename(host: PoolHost): void {
    this.isEnded = false;
    this.#host = host;
    this.void();
    this.#balance.rename();
    this.#isAtRedis = false;
  }

  /** Returns true if the grant is no longer valid. Credits and places are valid until they are spent. */
  #isOver(now: Instant): boolean {
    return this.isWindow && this.#grant.isOver(now);
  }

  /** Voids everything from before a change of a key with this pool, and gives everything back. */
  applyChange(): void {
    this.#startAnew(false);
  }

  /** Tells Redis of the places that are held, and gives the others back. */
  tellPlaces(): void {
    this.#startAnew(this.isHeld);
  }

  #startAnew(isToldAnyway: boolean): void {
    const isOut = this.#turn !== undefined || !this.#isAtRedis;
    this.void();
    this.#demand.wakeAll();
    if (isOut || isToldAnyway) this.giveBack();
  }

  /** Gives everything back, because others need it. */
  recall(): void {
    this.#recalledUntilMs = this.#clock.monotonicMs() + RECALLED_MS;
    if (!this.#isAtRedis) this.giveBack();
  }

  giveBack(): void {
    this.#returns = 'all';
    if (!this.#turn) this.#host.request(this);
  }

  /** Forgets the unspent grant, the turn in flight and the refusal. */
  void(): void {
    if (this.#turn) this.#isAtRedis = false;
    this.#turn = undefined;
    this.#balance.void();
    this.#outlook.void();
    this.#slice = 0;
  }
}
