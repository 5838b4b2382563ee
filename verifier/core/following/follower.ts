import { parsePublished } from '#shared/contract/change.ts';
import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { memberName } from '#shared/contract/protocol.ts';
import { backoffMs, type Clock, pause, Waker } from '#shared/lang/clock.ts';
import { FormerNames } from '../former-names.ts';
import type { Entry, Epoch } from '../key-cache.ts';
import type { Directory, Pointer, Session, SyncReply, SyncRequest } from '../redis-port.ts';
import { AppliedLog, type FollowerOptions } from './applied-log.ts';
import type { FollowerEvents, FollowerLimits } from './follower-events.ts';
import { instant } from './lease.ts';

/** The key to read in a SYNC. */
type KeyReference = Pick<SyncRequest, 'keyId' | 'secretHash'>;

/** A reply to SYNC, and whether the record that it brought is one of the creations that were seen. */
interface SyncResult {
  readonly reply: SyncReply;
  readonly isSeen: boolean;
}

/** A secret that is of no key of this API; `elsewhere` is where its key lies, undefined = it has none. */
interface SecretElsewhere {
  readonly elsewhere: Pointer | undefined;
}

const FILL_ATTEMPTS_MAX = 5;
/** REGISTER may be followed by WAIT, which takes up to 1000 ms. */
const REGISTER_DEADLINE_MS = 2000;
/**
 * From one acknowledgement to the next at least, milliseconds: the first of a burst of changes is acknowledged at once, and
 * what comes next together, so that Redis and this process are free for others in between.
 */
const ACK_PERIOD_MS = 3;
const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 2000;

/**
 * Follows the change log of one API, so that what is cached of it is always one prefix of that log, and holds
 * the lease that allows answering from it. INIT → LIVE; anything wrong → drop → INIT. Being FENCED is not a
 * state but what the lease says at the moment of a request.
 */
export class Follower {
  readonly apiId: string;
  readonly #directory: Pick<Directory, 'open' | 'exchange'>;
  readonly #clock: Clock;
  readonly #newNonce: () => string;
  readonly #random: () => number;
  readonly #limits: FollowerLimits;
  readonly #events: FollowerEvents;

  #session: Session | undefined;
  #member = '';
  readonly #former = new FormerNames();
  #waiters: PromiseWithResolvers<void>[] = [];
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  readonly #waker = new Waker();
  readonly #log: AppliedLog;

  constructor(options: FollowerOptions) {
    this.apiId = options.apiId;
    this.#directory = options.directory;
    this.#clock = options.clock;
    this.#newNonce = options.newNonce;
    this.#random = options.random;
    this.#limits = options.limits;
    this.#events = options.events;
    this.#log = new AppliedLog(options, () => this.#waker.wake(), this.#stop.signal);
  }

  /** True while it is registered and follows, whatever its lease says. */
  get live(): boolean {
    return this.#log.epoch !== undefined;
  }

  /** True if the API was deleted; then every key of it is unknown. Only meaningful while `canAnswer`. */
  get apiDeleted(): boolean {
    return this.#log.apiDeleted;
  }

  /** True while the follower may answer from memory. */
  get canAnswer(): boolean {
    return this.#log.epoch?.lease.holds() ?? false;
  }

  /** Tells whether anybody asked for a key of this API since the last call. */
  takeUsed(): boolean {
    const used = this.#log.epoch?.used ?? true;
    if (this.#log.epoch) this.#log.epoch.used = false;
    return used;
  }

  /** The name under which it is registered; `propagation.laggards` names it so. */
  get member(): string {
    return this.#member;
  }

  /** For metrics and status. */
  get position(): number {
    return this.#log.prefix.position;
  }

  /** Changes known to exist and not applied yet. */
  get lag(): number {
    return this.#log.prefix.lag;
  }

  /** Pools of credits and rate limits that were asked for lately, and the credits that they have in all. */
  get credits(): { readonly pools: number; readonly limits: number; readonly held: number } {
    const { credits = 0, limits = 0, held = 0 } = this.#log.epoch?.pools ?? {};
    return { pools: credits, limits, held };
  }

  /** True while credits of former names are being settled. */
  get settling(): boolean {
    return this.#log.settling.size > 0;
  }

  get leaseRemainingMs(): number {
    return this.#log.epoch?.lease.remainingMs() ?? 0;
  }

  /** Follows until `stop`; never rejects. */
  run(): Promise<void> {
    this.#loop ??= this.#run();
    return this.#loop;
  }

  async #run(): Promise<void> {
    let failed = false;
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      try {
        await this.#converse(() => {
          attempt = 0;
          if (failed) this.#events.resumed(this.position);
          failed = false;
        });
      } catch (error) {
        failed = true;
        this.#events.disconnected(error, this.position);
        for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
      }
      this.#session?.end('quietly');
      this.#session = undefined;
      const waitMs = backoffMs(attempt, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, this.#random);
      await pause(this.#clock, waitMs, this.#stop.signal);
    }
  }

  /** Stops answering, then leaves, so that no change waits for this follower. Resolves when it has left. */
  async stop(): Promise<void> {
    const session = this.#session;
    this.#log.forget();
    this.#stop.abort();
    this.#waker.wake();
    for (const waiter of this.#waiters.splice(0)) waiter.reject(unavailable('no longer following this API'));
    if (session) await this.#former.leave(session, this.#member);
    await Promise.all([this.#loop, ...this.#log.settling]);
  }

  /** Resolves when LIVE; rejects with SERVICE_UNAVAILABLE when the present attempt to become so fails. */
  whenLive(): Promise<void> {
    if (this.live) return Promise.resolve();
    if (this.#stop.signal.aborted) return Promise.reject(unavailable('no longer following this API'));
    const waiter = Promise.withResolvers<void>();
    this.#waiters.push(waiter);
    return waiter.promise;
  }

  /** True while `fill` can find keys by their secret. */
  get findsKeys(): boolean {
    return this.live && this.#session?.findsKeys === true;
  }

  /**
   * Reads a key's record at the head of the log, caches and returns it; undefined when the key does not exist. Nothing
   * is cached where something newer was applied meanwhile. Rejects with SERVICE_UNAVAILABLE.
   * @param reference by its secret only where this `findsKeys`
   */
  async fill(reference: { readonly keyId: string }): Promise<Entry | undefined>;
  async fill(reference: { readonly secretHash: string }): Promise<Entry | SecretElsewhere | undefined>;
  async fill(reference: KeyReference): Promise<Entry | SecretElsewhere | undefined> {
    for (let attempt = 0; attempt < FILL_ATTEMPTS_MAX; attempt++) {
      await this.whenLive();
      const [session, epoch] = [this.#session, this.#log.epoch];
      if (!session || !epoch) throw unavailable('not in sync with Redis');
      const { reply, isSeen } = await this.#sync(session, epoch, reference);
      if (reply.status === 'ELSEWHERE') return { elsewhere: reply.pointer };
      if (this.#log.apiDeleted || reply.apiDeleted) return undefined;
      if (reply.sequence !== this.position || this.#log.epoch !== epoch) continue;
      if (!isSeen) continue;
      const keyId = reference.keyId ?? reply.pointer?.keyId;
      return keyId === undefined ? undefined : this.#log.remember(epoch, keyId, reply.record);
    }
    throw unavailable('the key changes faster than it can be read');
  }

  async #converse(onLive: () => void): Promise<void> {
    const session = await this.#directory.open(this.apiId);
    if (this.#stop.signal.aborted) return session.end('quietly');
    let hasEnded = false;
    session.onEnd(() => {
      hasEnded = true;
      if (this.#session === session) this.#session = undefined;
      this.#waker.wake();
    });
    this.#session = session;
    await this.#within(
      session,
      session.subscribe(
        (message) => this.#receive(session, message),
        (pool) => this.#log.epoch?.pools.recall(pool),
      ),
    );
    for (let hasDropped = false; !hasEnded && this.#session === session && !this.#stop.signal.aborted; ) {
      this.#waker.reset();
      const startedAtMs = this.#clock.monotonicMs();
      try {
        if (!this.#log.epoch) await this.#register(session);
        else await this.#sync(session, this.#log.epoch);
      } catch (error) {
        // Dropped: register anew at once, but not in a tight loop.
        if (hasEnded || this.#log.epoch || hasDropped) throw error;
        hasDropped = true;
        continue;
      }
      hasDropped = false;
      onLive();
      const jitter = 0.9 + 0.2 * this.#random();
      await this.#waker.pause(this.#clock, this.#limits.syncPeriodMs * jitter);
      const restMs = startedAtMs + ACK_PERIOD_MS - this.#clock.monotonicMs();
      if (restMs > 0) await pause(this.#clock, restMs, this.#stop.signal);
    }
    if (!this.#stop.signal.aborted) throw unavailable('the connection to Redis ended');
  }

  async #register(session: Session): Promise<void> {
    void this.#former.leave(session, this.#member);
    const [nonce, member] = [this.#newNonce(), memberName(this.#newNonce())];
    this.#member = member;
    const sentAt = instant(this.#clock);
    const reply = await this.#within(session, session.register(member, nonce), REGISTER_DEADLINE_MS);
    // `stop` may have come before it.
    if (this.#stop.signal.aborted) await this.#former.leave(session, member);
    if (this.#session !== session || this.#stop.signal.aborted) throw unavailable('the reply came too late');
    if (reply.nonce !== nonce) return this.#desynchronised(session);
    this.#log.begin(member, reply, sentAt);
    this.#events.live(this.position, reply.leaseMs);
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
  }

  /** One SYNC, and what its reply says applied. Rejects when the reply is void or made the follower drop. */
  async #sync(session: Session, epoch: Epoch, reference: KeyReference = {}): Promise<SyncResult> {
    const request: SyncRequest = {
      member: this.#member,
      position: this.#log.prefix.position,
      hash: this.#log.prefix.hash,
      creations: this.#log.prefix.creations,
      nonce: this.#newNonce(),
      ...reference,
    };
    const sentAt = instant(this.#clock);
    const reply = await this.#within(session, session.sync(request));
    if (this.#session !== session || this.#log.epoch !== epoch) throw unavailable('the reply came too late');
    if (reply.nonce !== request.nonce) return this.#desynchronised(session);
    return { reply, isSeen: this.#log.takeUp(epoch, request, reply, sentAt) };
  }

  #receive(session: Session, message: string): void {
    if (this.#session !== session) return;
    const change = parsePublished(message);
    const epoch = this.#log.epoch;
    this.#waker.wake();
    if (!epoch || !change || change.sequence <= this.position) return;
    this.#log.receive(epoch, change);
  }

  /** A reply that was meant for another request: nothing that comes over this connection can be believed. */
  #desynchronised(session: Session): never {
    session.end('cut');
    return this.#log.drop('nonce');
  }

  async #within<T>(session: Session, work: Promise<T>, limitMs = this.#limits.syncDeadlineMs): Promise<T> {
    const timer = this.#clock.after(limitMs, () => session.end('cut'));
    try {
      return await work;
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw unavailable('Redis did not do what was asked', error);
    } finally {
      timer.cancel();
    }
  }
}
