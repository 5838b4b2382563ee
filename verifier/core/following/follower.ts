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

/** The key that a SYNC reads. */
type KeyReference = Pick<SyncRequest, 'keyId' | 'secretHash'>;

/** A reply to SYNC. `isSeen` is true if its record is one of the creations that this follower has seen. */
interface SyncResult {
  readonly reply: SyncReply;
  readonly isSeen: boolean;
}

/** A secret without a key in this API. `elsewhere` is the place of its key; undefined = no such key. */
interface SecretElsewhere {
  readonly elsewhere: Pointer | undefined;
}

const FILL_ATTEMPTS_MAX = 5;
/** REGISTER may be followed by WAIT, which takes up to 1000 ms. */
const REGISTER_DEADLINE_MS = 2000;
/**
 * Shortest time between two acknowledgements, in milliseconds. The first of a burst of changes is
 * acknowledged immediately, the next ones together; in between, Redis and this process are free for other
 * work.
 */
const ACK_PERIOD_MS = 3;
const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 2000;

/**
 * A follower of the change log of one API. The cached keys of the API are always one prefix of the log, and
 * the lease allows answers from the cache. INIT → LIVE; any fault → drop → INIT. FENCED is not a state of its
 * own: the lease decides at each request.
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

  /** True while the follower is registered, whatever its lease. */
  get live(): boolean {
    return this.#log.epoch !== undefined;
  }

  /** True if the API was deleted; all its keys are then unknown. Only meaningful while `canAnswer`. */
  get apiDeleted(): boolean {
    return this.#log.apiDeleted;
  }

  /** True while the follower may answer from memory. */
  get canAnswer(): boolean {
    return this.#log.epoch?.lease.holds() ?? false;
  }

  /** Returns true if anybody asked for a key of this API since the last call. */
  takeUsed(): boolean {
    const used = this.#log.epoch?.used ?? true;
    if (this.#log.epoch) this.#log.epoch.used = false;
    return used;
  }

  /** The name under which the follower is registered, as in `propagation.laggards`. */
  get member(): string {
    return this.#member;
  }

  /** The sequence of the last change applied, for metrics and status. */
  get position(): number {
    return this.#log.prefix.position;
  }

  /** Number of changes known to exist and not applied yet. */
  get lag(): number {
    return this.#log.prefix.lag;
  }

  /** Numbers of the recently used pools of credits and of rate limits, and the credits in them. */
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

  /** Resolves when LIVE. Rejects with SERVICE_UNAVAILABLE if the current attempt fails. */
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
   * Reads a key's record at the head of the log, caches and returns it; undefined = no such key. Caches
   * nothing if a newer change was applied meanwhile. Rejects with SERVICE_UNAVAILABLE.
   * @param reference the key's id; or the hash of its secret, only while this `findsKeys`
   */
  async fill(reference: { readonly keyId: string }): Promise<Entry | undefined>;
  async fill(reference: { readonly secretHash: string }): Promise<Entry | SecretElsewhere | undefined>;
  async fill(reference: KeyReference): Promise<Entry | SecretElsewhere | undefined> {
    for (let attempt = 0; attempt < FILL_ATTEMPTS_MAX; attempt++) {
      await this.whenLive();
      const [session, epoch] = [this.#session, this.#log.epoch];
      if (!session || !epoch) throw unavailable('not in sync with Redis');
      const result = await this.#sync(session, epoch, reference).catch((error: unknown) => {
        // Dropped: it registers anew on this connection, as after its API was deleted and made again.
        if (this.#session === session && this.#log.epoch !== epoch) return undefined;
        throw error;
      });
      if (result === undefined) continue;
      const { reply, isSeen } = result;
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
        // Dropped: register anew immediately, but not in a tight loop.
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
    // `stop` may have been called meanwhile.
    if (this.#stop.signal.aborted) await this.#former.leave(session, member);
    if (this.#session !== session || this.#stop.signal.aborted) throw unavailable('the reply came too late');
    if (reply.nonce !== nonce) return this.#desynchronised(session);
    this.#log.begin(member, reply, sentAt);
    this.#events.live(this.position, reply.leaseMs);
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
  }

  /** Sends one SYNC and applies the reply. Rejects if the reply is void or made the follower drop. */
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

  /** Handles a reply that belongs to another request: nothing on this connection can be trusted any more. */
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
      throw unavailable('Redis refused or failed to execute the command', error);
    } finally {
      timer.cancel();
    }
  }
}
