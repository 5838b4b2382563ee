import { backoffMs, type Clock, type Instant, instant, pause, Waker } from '../../process/clock.ts';
import { ApiError, unavailable } from '../../rules/errors.ts';
import {
  type Change,
  type Effect,
  effectOf,
  type PublishedChange,
  parsePublished,
  readNamed,
} from '../log/change.ts';
import { decodeState } from '../records/key-record.ts';
import { memberName } from '../records/protocol.ts';
import { fenceMs } from '../timing.ts';
import type { Companion, Held, Metered, NewCompanion } from './companion.ts';
import { Entry, type Epoch, type Memory } from './key-cache.ts';
import { Lease } from './lease.ts';
import type {
  CreationMark,
  Directory,
  Pointer,
  RegisterReply,
  Session,
  SyncReply,
  SyncRequest,
} from './source.ts';

/** The reason why a follower forgot everything. */
export type DropReason = 'noreg' | 'diverged' | 'refused' | 'trimmed' | 'hole' | 'nonce' | 'damaged';

/** The periods of a follower. */
export interface FollowerLimits {
  /**
   * Period of SYNC, in milliseconds; ±10 % at random, so that verifiers do not synchronise at the same
   * moment.
   */
  readonly syncPeriodMs: number;
  /** Longest wait for a reply, in milliseconds. The connection is then cut. */
  readonly syncDeadlineMs: number;
}

/** Events of a follower, for logs, metrics and the checker of the tests. */
export interface FollowerEvents {
  live(position: number, leaseMs: number): void;
  dropped(reason: DropReason, position: number): void;
  disconnected(reason: unknown, position: number): void;
  /** The follower reached Redis again after `disconnected`, without having dropped. */
  resumed(position: number): void;
  gap(position: number, sequence: number): void;
  /** A change was applied to memory, in order. */
  applied(change: Change, source: 'message' | 'sync'): void;
}

/** Dependencies and limits of a follower. */
interface FollowerOptions {
  apiId: string;
  directory: Pick<Directory, 'open' | 'nearby'>;
  cache: Memory;
  clock: Clock;
  /** Returns a new unguessable text at each call, for member names and nonces. */
  newNonce: () => string;
  /** Returns a number from 0 to below 1, for jitter and backoff. */
  random: () => number;
  limits: FollowerLimits;
  events: FollowerEvents;
  companion: NewCompanion;
  /** Part of its names, so that whoever waits for it sees where it is. */
  region?: string | undefined;
}

/** The key that a SYNC reads. */
export type KeyReference = Pick<SyncRequest, 'keyId' | 'secretHash'>;

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
 * the lease allows answers from the cache. INIT → LIVE; out of sync → drop → INIT. A lost connection drops nothing: the
 * lease runs on, and SYNC goes on under the same name. FENCED is not a state of its own: the lease decides at each request.
 */
export class Follower {
  readonly apiId: string;
  readonly #directory: Pick<Directory, 'open' | 'nearby'>;
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
  readonly #region: string | undefined;

  constructor(options: FollowerOptions) {
    this.apiId = options.apiId;
    this.#directory = options.directory;
    this.#clock = options.clock;
    this.#newNonce = options.newNonce;
    this.#random = options.random;
    this.#limits = options.limits;
    this.#events = options.events;
    this.#region = options.region;
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

  /** True if it is in sync and needs no lease, because the API does not exist and has no keys. */
  get needsNoLease(): boolean {
    return this.live && this.#log.leaseMs === 0;
  }

  /** Returns true if anybody asked for a key of this API since the last call. */
  takeUsed(): boolean {
    const { epoch } = this.#log;
    if (epoch === undefined) return true;
    const used = epoch.used || epoch.companion.isHeld;
    epoch.used = false;
    return used;
  }

  /** True while companions of former names are closing. */
  get isClosing(): boolean {
    return this.#log.closing.size > 0;
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

  /** The companion of the present epoch. */
  get companion(): Companion | undefined {
    return this.#log.epoch?.companion;
  }

  /** When it saw latest that a control plane does not wait for outsiders, Unix milliseconds; undefined = never. */
  get withheldAtMs(): number | undefined {
    return this.#log.withheldAtMs;
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
    await Promise.all([this.#loop, ...this.#log.closing]);
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
  async fill(reference: KeyReference): Promise<Entry | SecretElsewhere | undefined>;
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

  /** True if there is a replica nearby. */
  get readsNearby(): boolean {
    return this.#directory.nearby !== undefined;
  }

  /**
   * Reads a key's record at a replica nearby, caches and returns it; undefined = the primary must be asked. The follower could have
   * cached the same record before, at its present position, so neither this position nor the lease changes. Never rejects.
   */
  async readNearby(reference: { readonly keyId: string }): Promise<Entry | undefined>;
  async readNearby(reference: KeyReference): Promise<Entry | Pointer | undefined>;
  async readNearby(reference: KeyReference): Promise<Entry | Pointer | undefined> {
    const { nearby } = this.#directory;
    const { epoch, prefix, apiDeleted } = this.#log;
    if (!nearby || !epoch?.lease.holds() || apiDeleted) return undefined;
    const { position, hash, creations } = prefix;
    const request = { position, hash, creations, nonce: this.#newNonce(), ...reference };
    const reply = await nearby.read(this.apiId, request);
    if (reply?.nonce !== request.nonce) return undefined;
    if (reply.status === 'ELSEWHERE') return reply.pointer;
    // A change that came meanwhile may be about this key.
    if (reply.status !== 'SAME' || this.#log.epoch !== epoch || prefix.position !== position)
      return undefined;
    if (!epoch.lease.holds()) return undefined; // the primary may renew it
    const keyId = reference.keyId ?? reply.pointer?.keyId;
    return keyId === undefined ? undefined : this.#log.remember(epoch, keyId, reply.record);
  }

  async #converse(onLive: () => void): Promise<void> {
    const session = await this.#directory.open(this.apiId);
    if (this.#stop.signal.aborted) return session.end('quietly');
    let hasEnded = false;
    session.onEnd(() => {
      hasEnded = true;
      if (this.#session === session) this.#session = undefined;
      // The next one may be with another primary.
      this.#log.epoch?.companion.reconnected();
      this.#waker.wake();
    });
    this.#session = session;
    await this.#within(
      session,
      session.subscribe(
        (message) => this.#receive(session, message),
        (pool) => this.#log.epoch?.companion.recall(pool),
      ),
    );
    this.#log.epoch?.companion.reconnected();
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
    const former = this.#member;
    const held = this.#log.held;
    // While held work goes on, the former name stays registered: leaving would give its share to others.
    if (held.length === 0) void this.#former.leave(session, former);
    const [nonce, member] = [this.#newNonce(), memberName(this.#newNonce(), this.#region)];
    this.#member = member;
    const sentAt = instant(this.#clock);
    const reply = await this.#within(session, session.register(member, nonce), REGISTER_DEADLINE_MS);
    // `stop` may have been called meanwhile.
    if (this.#stop.signal.aborted) await this.#former.leave(session, member);
    if (this.#session !== session || this.#stop.signal.aborted) throw unavailable('the reply came too late');
    if (reply.nonce !== nonce) return this.#desynchronised(session);
    const companion = this.#log.newCompanion(member);
    if (held.length > 0) {
      await this.#bring(companion, held);
      await this.#former.leave(session, former);
      if (this.#session !== session || this.#stop.signal.aborted)
        throw unavailable('the reply came too late');
    }
    this.#log.begin(companion, reply, sentAt);
    this.#events.live(this.position, reply.leaseMs);
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
  }

  /** Goes on with the work that was accepted under former names. */
  async #bring(companion: Companion, held: readonly Held[]): Promise<void> {
    try {
      await companion.bring(held);
    } catch (error) {
      this.#log.close(companion);
      throw error;
    }
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

/**
 * The changes of one API that were applied to memory: always one prefix of its log. Extends the lease if a
 * reply proves this, and forgets everything if a reply disproves it.
 */
class AppliedLog {
  readonly prefix = new LogPrefix();
  readonly #options: FollowerOptions;
  readonly #memory: Memory;
  readonly #events: FollowerEvents;
  readonly #wake: () => void;
  readonly #stopping: AbortSignal;
  /** undefined in INIT. */
  #epoch: Epoch | undefined;
  #apiDeleted = false;
  /** The records that changed, of which the companion has yet to hear. */
  #changed: Metered[] = [];
  /** Length of a lease in Redis' last reply, milliseconds; 0 = the API does not exist. */
  leaseMs = 0;
  /** The longest of this epoch. */
  #longestLeaseMs = 0;
  /** When an entry of a control plane that does not wait for outsiders came latest. */
  #withheld: Instant | undefined;
  /** The ends of former companions that are still running. */
  readonly #closing = new Set<Promise<void>>();
  #held: readonly Held[] = [];

  /**
   * @param wake called when Redis must soon get a SYNC
   * @param stopping ends the attempts to close companions
   */
  constructor(options: FollowerOptions, wake: () => void, stopping: AbortSignal) {
    this.#options = options;
    this.#memory = options.cache;
    this.#events = options.events;
    this.#wake = wake;
    this.#stopping = stopping;
  }

  /** When such an entry came latest, Unix milliseconds; undefined = never. */
  get withheldAtMs(): number | undefined {
    return this.#withheld?.wallMs;
  }

  get epoch(): Epoch | undefined {
    return this.#epoch;
  }

  get apiDeleted(): boolean {
    return this.#apiDeleted;
  }

  /** The ends of former companions that are still running. */
  get closing(): ReadonlySet<Promise<void>> {
    return this.#closing;
  }

  /** Work of former names that goes on. */
  get held(): readonly Held[] {
    this.#held = this.#held.filter(({ isHeld }) => isHeld);
    return this.#held;
  }

  /** Returns the companion of a name that an epoch may begin with. */
  newCompanion(member: string): Companion {
    const { apiId, clock } = this.#options;
    const companion: Companion = this.#options.companion({
      ...{ apiId, member, clock },
      position: () => this.prefix.position,
      onBehind: () => this.#wake(),
      isLive: () => this.#epoch?.companion === companion && this.#epoch.lease.holds(),
    });
    return companion;
  }

  /**
   * Begins an epoch at the log position in the reply.
   * @param sentAt time of the request, from which the lease counts
   */
  begin(companion: Companion, reply: RegisterReply, sentAt: Instant): void {
    const { apiId, clock } = this.#options;
    this.#held = [];
    this.#changed = [];
    this.prefix.begin(reply);
    this.#apiDeleted = reply.apiDeleted;
    const lease = new Lease(clock);
    this.leaseMs = this.#longestLeaseMs = reply.leaseMs;
    lease.extend(sentAt, reply.leaseMs);
    this.#epoch = { apiId, lease, companion, current: true, used: true, obeyedAtMs: 0 };
    this.#memory.beginEpoch?.(this.#epoch, reply.identities);
  }

  /**
   * Applies a reply to SYNC. Drops if Redis has another history. Returns true if the reply's record is
   * certainly one of the creations that this follower has seen.
   */
  takeUp(epoch: Epoch, request: SyncRequest, reply: SyncReply, sentAt: Instant): boolean {
    if (reply.status === 'ELSEWHERE') return false;
    // The log of a deleted API is removed soon.
    if (reply.status !== 'OK') return this.drop(this.#apiDeleted ? 'noreg' : REASONS[reply.status]);
    const prefix = this.prefix;
    prefix.headIs(reply.sequence);
    let isCompared = true;
    for (const change of reply.entries) {
      if (change.sequence > prefix.position + 1) return this.drop('hole');
      if (change.sequence === prefix.position + 1) this.#apply(epoch, change, 'sync');
      else {
        const isSame = prefix.has(change);
        if (isSame === false) return this.drop('diverged');
        // While this reply was on its way, a burst of messages brought more changes than the ring keeps. The
        // reply proves nothing; the next one will.
        isCompared &&= isSame === true;
      }
    }
    this.#tellCompanion(epoch);
    // Redis compared only the creations that this follower had seen when it sent the request. The next SYNC
    // proves later ones.
    const isProven =
      isCompared && (prefix.creations === request.creations || prefix.creations === reply.creations);
    if (isProven) prefix.creations = reply.creations;
    this.leaseMs = reply.leaseMs;
    this.#longestLeaseMs = Math.max(this.#longestLeaseMs, reply.leaseMs);
    // Entries from before anything was lent have no time either.
    if (reply.hasUntimed && epoch.lease.isLending) this.#withheld = instant(this.#options.clock);
    epoch.lease.withhold(this.#withheld ? this.#withheld.monotonicMs + fenceMs(this.leaseMs, 0) : 0);
    if (isProven && prefix.position >= reply.sequence) {
      epoch.lease.extend(sentAt, reply.leaseMs);
      epoch.lease.allowLending(sentAt, reply.leaseMs, reply.lendsAtMs ?? 0, reply.audiences);
    }
    const isOfBefore = isCompared && Number(reply.record[1] ?? 0) <= numberOf(request.creations);
    return isProven || isOfBefore;
  }

  /** Remembers a key's record that was read at the head of the log; undefined = no such record. */
  remember(epoch: Epoch, keyId: string, [named, , ...state]: SyncReply['record']): Entry | undefined {
    if (named === undefined) {
      this.#memory.putAbsent?.(keyId, epoch);
      return undefined;
    }
    const { secretHash, ...rest } = readNamed(named);
    const entry = new Entry(epoch, keyId, decodeState(state, rest));
    this.#memory.put(secretHash, entry);
    return entry;
  }

  /** Applies a published change if it is the next one. */
  receive(epoch: Epoch, change: PublishedChange): void {
    this.prefix.noteSequence(change.sequence);
    if (!this.prefix.isContinuedBy(change)) {
      this.#events.gap(this.prefix.position, change.sequence);
      return;
    }
    try {
      this.#apply(epoch, change, 'message');
    } catch {
      return; // dropped; the conversation goes on with REGISTER
    }
    this.#tellCompanion(epoch);
  }

  /** Tells of the changes after all entries, so that waiting requests see the latest state. */
  #tellCompanion({ companion }: Epoch): void {
    const records = this.#changed;
    if (records.length === 0) return;
    this.#changed = [];
    companion.changed(records);
  }

  #apply(epoch: Epoch, change: Change, source: 'message' | 'sync'): void {
    const effect = decode(change) ?? this.drop('damaged');
    // Whoever has not applied the change by then has no lease any more.
    if (effect.kind === 'set' || effect.kind === 'forget')
      epoch.obeyedAtMs = this.#options.clock.monotonicMs() + fenceMs(this.#longestLeaseMs, 0);
    switch (effect.kind) {
      case 'set':
        this.#changed.push(...this.#memory.update(effect.secretHash, change.keyId, epoch, effect.state));
        break;
      case 'forget':
        this.#changed.push(...this.#memory.forget(effect.secretHash, change.keyId), {
          limitsId: change.keyId,
          pool: effect.pool,
          limits: undefined,
        });
        break;
      case 'api-deleted':
        this.#apiDeleted = true;
        epoch.current = false;
        this.#epoch = { ...epoch, current: true };
        break;
      case 'nothing':
        break;
    }
    this.prefix.add(change);
    this.#events.applied(change, source);
    this.#wake(); // the next SYNC acknowledges the change
  }

  /** Forgets everything, and throws SERVICE_UNAVAILABLE so that the caller does not go on. */
  drop(reason: DropReason): never {
    this.#events.dropped(reason, this.prefix.position);
    this.forget();
    this.#wake();
    throw unavailable(`out of sync with Redis: ${reason}`);
  }

  /** Makes everything remembered void. */
  forget(): void {
    if (this.#epoch) {
      this.#epoch.current = false;
      this.#epoch.lease.cut();
      this.close(this.#epoch.companion);
    }
    this.#epoch = undefined;
  }

  /** Ends the use of a name. Work that goes on waits for the next one. */
  close(companion: Companion): void {
    this.#held = [...new Set([...this.#held, ...companion.held()])];
    const closing = companion.close(this.#stopping);
    this.#closing.add(closing);
    void closing.then(() => this.#closing.delete(closing));
  }
}

function decode(change: Change): Effect | undefined {
  try {
    return effectOf(change);
  } catch {
    return undefined;
  }
}

const numberOf = (creationMark: CreationMark): number => Number.parseInt(creationMark, 10) || 0;

const REASONS = { NOREG: 'noreg', DIVERGED: 'diverged', TRIMMED: 'trimmed', REFUSED: 'refused' } as const;

/** Number of hashes of applied changes that are kept, to compare with late replies. */
const RING_LENGTH = 4096;

/** The part of an API's history that a follower has seen. Everything in its memory follows from this part. */
class LogPrefix {
  #position = 0;
  #hash = '';
  /** The creations that the follower has seen. The follower remembers no other keys. */
  creations: CreationMark = '';
  /** The highest sequence that the follower has heard of. */
  #headSeen = 0;
  readonly #ring: string[] = [];

  /** The sequence of the last change applied. */
  get position(): number {
    return this.#position;
  }

  get hash(): string {
    return this.#hash;
  }

  /** Number of changes known to exist and not applied yet. */
  get lag(): number {
    return Math.max(0, this.#headSeen - this.#position);
  }

  /** Starts anew at the current position of the log. */
  begin({ sequence, hash, creations }: Pick<RegisterReply, 'sequence' | 'hash' | 'creations'>): void {
    this.#position = this.#headSeen = sequence;
    this.#hash = hash;
    this.creations = creations;
    this.#ring.length = 0;
    this.#ring[sequence % RING_LENGTH] = hash;
  }

  /** Notes the log's head from a reply of Redis. */
  headIs(sequence: number): void {
    this.#headSeen = sequence;
  }

  /** Notes that a change with this sequence was published. */
  noteSequence(sequence: number): void {
    this.#headSeen = Math.max(this.#headSeen, sequence);
  }

  /** Returns true if a published change is the next one of this history. */
  isContinuedBy(change: PublishedChange): boolean {
    return change.sequence === this.#position + 1 && change.previousHash === this.#hash;
  }

  /**
   * Returns true if an earlier change is the one that was applied at its position; undefined = unknown,
   * because it is too long ago.
   */
  has(change: Change): boolean | undefined {
    if (change.sequence <= this.#position - RING_LENGTH) return undefined;
    return this.#ring[change.sequence % RING_LENGTH] === change.hash;
  }

  /** Adds the next change. */
  add({ sequence, hash }: Change): void {
    this.#position = sequence;
    this.#hash = hash;
    this.#ring[sequence % RING_LENGTH] = hash;
  }
}

/** Maximum number of names that are kept to leave again later. A fence removes the others. */
const NAMES_MAX = 16;

/** Names of a follower that may still be registered, although the follower remembers nothing under them. */
class FormerNames {
  readonly #names = new Set<string>();

  /**
   * Removes from Redis the follower's registration under the name `latest` and under every former name. Call it only if the follower
   * remembers nothing under any of these names.
   */
  async leave(session: Session, latest: string): Promise<void> {
    if (latest && this.#names.size < NAMES_MAX) this.#names.add(latest);
    const departures = [...this.#names].map((name) =>
      session.leave(name).then(() => this.#names.delete(name)),
    );
    await Promise.allSettled(departures);
  }
}
