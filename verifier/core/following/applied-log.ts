import {
  type Change,
  type Effect,
  effectOf,
  type PublishedChange,
  readNamed,
} from '#shared/contract/change.ts';
import { unavailable } from '#shared/contract/errors.ts';
import { decodeState } from '#shared/contract/key-record.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { type CreditCounts, Pools } from '../allowances/pools.ts';
import { Entry, type Epoch, type Memory } from '../key-cache.ts';
import type { CreationMark, Directory, RegisterReply, SyncReply, SyncRequest } from '../redis-port.ts';
import type { DropReason, FollowerEvents, FollowerLimits } from './follower-events.ts';
import { type Instant, Lease } from './lease.ts';
import { LogPrefix } from './log-prefix.ts';

/** Dependencies and limits of a follower. */
export interface FollowerOptions {
  apiId: string;
  directory: Pick<Directory, 'open' | 'exchange'>;
  cache: Memory;
  clock: Clock;
  /** Returns a new unguessable text at each call, for member names and nonces. */
  newNonce: () => string;
  /** Returns a number from 0 to below 1, for jitter and backoff. */
  random: () => number;
  limits: FollowerLimits;
  events: FollowerEvents;
  creditCounts: CreditCounts;
}

/**
 * The changes of one API that were applied to memory: always one prefix of its log. Extends the lease if a
 * reply proves this, and forgets everything if a reply disproves it.
 */
export class AppliedLog {
  readonly prefix = new LogPrefix();
  readonly #options: FollowerOptions;
  readonly #memory: Memory;
  readonly #events: FollowerEvents;
  readonly #wake: () => void;
  readonly #stopping: AbortSignal;
  /** undefined in INIT. */
  #epoch: Epoch | undefined;
  #apiDeleted = false;
  /** Pools of the keys that changed. */
  readonly #changedPools = new Set<string>();
  /** Settlements of former names' credits that are still running. */
  readonly #settling = new Set<Promise<void>>();

  /**
   * @param wake called when Redis must soon get a SYNC
   * @param stopping ends the attempts to settle credits
   */
  constructor(options: FollowerOptions, wake: () => void, stopping: AbortSignal) {
    this.#options = options;
    this.#memory = options.cache;
    this.#events = options.events;
    this.#wake = wake;
    this.#stopping = stopping;
  }

  get epoch(): Epoch | undefined {
    return this.#epoch;
  }

  get apiDeleted(): boolean {
    return this.#apiDeleted;
  }

  /** Settlements of former names' credits that are still running. */
  get settling(): ReadonlySet<Promise<void>> {
    return this.#settling;
  }

  /**
   * Begins an epoch at the log position in the reply.
   * @param sentAt time of the request, from which the lease counts
   */
  begin(member: string, reply: RegisterReply, sentAt: Instant): void {
    const { apiId, clock, limits, directory } = this.#options;
    this.prefix.begin(reply);
    this.#apiDeleted = reply.apiDeleted;
    const lease = new Lease(clock);
    lease.extend(sentAt, reply.leaseMs);
    const pools = new Pools({
      member,
      clock,
      sliceMs: limits.creditsSliceMs,
      counts: this.#options.creditCounts,
      exchange: (name, turns) => directory.exchange(apiId, name, turns),
      onBehind: () => this.#wake(),
    });
    this.#epoch = { apiId, lease, pools, current: true, used: true };
    this.#memory.beginEpoch?.(this.#epoch, reply.identities);
  }

  /**
   * Applies a reply to SYNC. Drops if Redis has another history. Returns true if the reply's record is
   * certainly one of the creations that this follower has seen.
   */
  takeUp(epoch: Epoch, request: SyncRequest, reply: SyncReply, sentAt: Instant): boolean {
    if (reply.status === 'ELSEWHERE') return false;
    if (reply.status !== 'OK') return this.drop(REASONS[reply.status]);
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
    this.#tellPools(epoch);
    // Redis compared only the creations that this follower had seen when it sent the request. The next SYNC
    // proves later ones.
    const isProven =
      isCompared && (prefix.creations === request.creations || prefix.creations === reply.creations);
    if (isProven) prefix.creations = reply.creations;
    if (isProven && prefix.position >= reply.sequence) epoch.lease.extend(sentAt, reply.leaseMs);
    const isOfBefore = isCompared && Number(reply.record[1] ?? 0) <= numberOf(request.creations);
    return isProven || isOfBefore;
  }

  /** Remembers a key's record that was read at the head of the log; undefined = no such record. */
  remember(epoch: Epoch, keyId: string, [secretAndPool, , ...state]: SyncReply['record']): Entry | undefined {
    if (secretAndPool === undefined) {
      this.#memory.putAbsent?.(keyId, epoch);
      return undefined;
    }
    const { secretHash, pool } = readNamed(secretAndPool);
    const entry = new Entry(epoch, keyId, decodeState(state, pool));
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
    this.#tellPools(epoch);
  }

  /** Applies the changes to the pools after all entries, so that waiting requests see the latest state. */
  #tellPools({ pools }: Epoch): void {
    const changedPools = [...this.#changedPools];
    this.#changedPools.clear();
    for (const pool of changedPools) pools.applyChange(pool);
  }

  #touch(pools: readonly string[]): void {
    for (const pool of pools) this.#changedPools.add(pool);
  }

  #apply(epoch: Epoch, change: Change, source: 'message' | 'sync'): void {
    const effect = decode(change) ?? this.drop('damaged');
    switch (effect.kind) {
      case 'set':
        this.#touch(this.#memory.update(effect.secretHash, change.keyId, epoch, effect.state));
        break;
      case 'forget':
        this.#touch([...this.#memory.forget(effect.secretHash, change.keyId), effect.pool]);
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
      const settling = this.#epoch.pools.close(this.#stopping);
      this.#settling.add(settling);
      void settling.then(() => this.#settling.delete(settling));
    }
    this.#epoch = undefined;
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

const REASONS = { NOREG: 'noreg', DIVERGED: 'diverged', TRIMMED: 'trimmed' } as const;
