import type { Change, PublishedChange } from '#shared/contract/change.ts';
import type { CreationMark, RegisterReply } from '../redis-port.ts';

/** Hashes of the latest applied changes that are kept to compare with late replies. */
const RING_LENGTH = 4096;

/** The part of an API's history that a follower knows: all that it remembers is what this makes of it. */
export class LogPrefix {
  #position = 0;
  #hash = '';
  /** The creations that were seen: nothing is remembered of a key that is not among them. */
  creations: CreationMark = '';
  /** The highest sequence heard of. */
  #headSeen = 0;
  readonly #ring: string[] = [];

  /** The sequence of the last change applied. */
  get position(): number {
    return this.#position;
  }

  get hash(): string {
    return this.#hash;
  }

  /** Changes known to exist and not applied yet. */
  get lag(): number {
    return Math.max(0, this.#headSeen - this.#position);
  }

  /** Starts anew where the log is now. */
  begin({ sequence, hash, creations }: Pick<RegisterReply, 'sequence' | 'hash' | 'creations'>): void {
    this.#position = this.#headSeen = sequence;
    this.#hash = hash;
    this.creations = creations;
    this.#ring.length = 0;
    this.#ring[sequence % RING_LENGTH] = hash;
  }

  /** The log's head is here, by a reply of Redis. */
  headIs(sequence: number): void {
    this.#headSeen = sequence;
  }

  /** A change of this sequence was published. */
  noteSequence(sequence: number): void {
    this.#headSeen = Math.max(this.#headSeen, sequence);
  }

  /** Tells whether a published change is the next one of this history. */
  isContinuedBy(change: PublishedChange): boolean {
    return change.sequence === this.#position + 1 && change.previousHash === this.#hash;
  }

  /** Tells whether a change of before is the one that was applied at its place; undefined where that is too long ago. */
  has(change: Change): boolean | undefined {
    if (change.sequence <= this.#position - RING_LENGTH) return undefined;
    return this.#ring[change.sequence % RING_LENGTH] === change.hash;
  }

  /** Takes up the next change. */
  add({ sequence, hash }: Change): void {
    this.#position = sequence;
    this.#hash = hash;
    this.#ring[sequence % RING_LENGTH] = hash;
  }
}
