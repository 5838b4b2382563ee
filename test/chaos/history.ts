/** One write of a key, as its writer saw it end. */
export interface WriteRecord {
  readonly version: number;
  readonly enabled: boolean;
  outcome: 'running' | 'complete' | 'pending' | 'unknown' | 'refused';
}

interface KeyHistory {
  readonly writes: WriteRecord[];
  /** The version of the latest write that said `complete`. */
  floor: number;
}

/**
 * Record of what was written and what was answered, key by key. One writer a key, its writes one after the other, each with a
 * version of its own in `meta`, so that every answer tells exactly which write it shows.
 *
 * An answer is stale when, before its request began, a later write had said `complete`: the one thing that may never
 * happen. A write whose outcome nobody knows (503, connection lost) may still take effect later, because Redis may
 * find it in a socket after a pause; showing it is therefore never stale, and is counted apart.
 */
export class History {
  readonly #keys = new Map<string, KeyHistory>();
  readonly stale: string[] = [];
  readonly counts = { answers: 0, refused: 0, latecomers: 0, acks: 0, fence: 0, pending: 0, unknown: 0 };

  created(keyId: string): void {
    this.#keys.set(keyId, { writes: [{ version: 0, enabled: true, outcome: 'complete' }], floor: 0 });
  }

  /** @returns the record, whose `outcome` the writer sets through `ended` */
  begin(keyId: string, enabled: boolean): WriteRecord {
    const { writes } = this.#of(keyId);
    const write: WriteRecord = { version: writes.length, enabled, outcome: 'running' };
    writes.push(write);
    return write;
  }

  ended(keyId: string, write: WriteRecord, outcome: WriteRecord['outcome'], by?: 'acks' | 'fence'): void {
    write.outcome = outcome;
    if (outcome === 'complete') this.#of(keyId).floor = Math.max(this.#of(keyId).floor, write.version);
    if (by) this.counts[by]++;
    else if (outcome === 'pending') this.counts.pending++;
    else if (outcome === 'unknown') this.counts.unknown++;
  }

  /** The version that an answer to a request beginning now may not be older than. */
  floor(keyId: string): number {
    return this.#of(keyId).floor;
  }

  /** @param floor as it was when the request began */
  answered(keyId: string, floor: number, code: string, version: number, where: string): void {
    this.counts.answers++;
    const wrong = this.#whatIsWrong(this.#of(keyId), floor, code, version);
    if (wrong) this.stale.push(`${wrong}: ${keyId} version ${version}, floor ${floor}, ${code}, at ${where}`);
  }

  #whatIsWrong({ writes }: KeyHistory, floor: number, code: string, version: number): string | undefined {
    const write = writes[version];
    if (!write) return 'a version that nobody wrote';
    if ((code === 'VALID') !== write.enabled) return 'a verdict that does not fit its version';
    if (version >= floor) return undefined;
    if (write.outcome !== 'unknown') return 'STALE';
    this.counts.latecomers++;
    return undefined;
  }

  #of(keyId: string): KeyHistory {
    const history = this.#keys.get(keyId);
    if (!history) throw new Error(`nobody created ${keyId}`);
    return history;
  }
}
