import type { Change, PublishedChange } from '#shared/contract/change.ts';
import type { CreationMark, RegisterReply } from './redis-port.ts';

/** Number of hashes of applied changes that are kept, to compare with late replies. */
const RING_LENGTH = 4096;

/** The part of an API's history that a follower has seen. Everything in its memory follows from this part. */
export class LogPrefix {
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
