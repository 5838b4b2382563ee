/** One write of a subject, as its writer saw it end. */
export interface WriteRecord {
  readonly version: number;
  readonly state: State;
  outcome: 'running' | 'complete' | 'pending' | 'unknown' | 'refused';
  /** Moments at which it was begun and at which it had ended, by a count of all moments. */
  readonly began: number;
  ended: number;
}

/** State that a write leaves: of a key, of the role that it may have, or of the identity of its owner. */
export interface State {
  /** Of a role: it gives the permission that is asked for. */
  readonly enabled: boolean;
  /** Of a key: it has the role. */
  readonly hasRole?: boolean;
  /** Of a role or an identity: there is none, so that answers show no version of it. */
  readonly isAbsent?: boolean;
}

/** Answer of the control plane. */
export interface Told {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

type Propagation = { readonly state: 'complete' | 'pending'; readonly by?: 'acks' | 'fence' };

/** A key, a role or an identity. */
interface Subject {
  readonly kind: 'key' | 'role' | 'identity';
  readonly writes: WriteRecord[];
  /** The version of the latest write that said `complete`. */
  floor: number;
}

/** A subject in an answer: the version of it that the answer shows, and the floor as it was when the request began. */
interface Shown {
  readonly id: string;
  readonly floor: number;
  readonly version: number;
}

/**
 * Record of what was written and what was answered, subject by subject. One writer each, its writes one after the other, each with
 * a version of its own that answers show, so that every answer tells exactly which writes it goes by.
 *
 * An answer is stale when, before its request began, a later write of any of its subjects had said `complete`: the one thing that
 * may never happen. Nor may it put together what never held at one moment: a key from before a change that was complete when the
 * change of the role that it shows was only begun. A write whose outcome nobody knows (503, connection lost) may still take effect later, because Redis may
 * find it in a socket after a pause; showing it is therefore never stale, and is counted apart.
 */
export class History {
  readonly #subjects = new Map<string, Subject>();
  #moment = 0;
  readonly stale: string[] = [];
  readonly counts = {
    ...{ answers: 0, refused: 0, latecomers: 0, acks: 0, fence: 0, pending: 0, unknown: 0 },
    ...{ withRole: 0, withIdentity: 0 },
    /** Answers that show that there is no role, or no identity, any more or yet. */
    absent: 0,
  };

  created(id: string, kind: Subject['kind'], state: State): void {
    const first: WriteRecord = { version: 0, state, outcome: 'complete', began: 0, ended: ++this.#moment };
    this.#subjects.set(id, { kind, writes: [first], floor: 0 });
  }

  /** @returns the record, whose `outcome` the writer sets through `ended` */
  begin(id: string, state: State): WriteRecord {
    const { writes } = this.#of(id);
    const began = ++this.#moment;
    const write: WriteRecord = { version: writes.length, state, outcome: 'running', began, ended: 0 };
    writes.push(write);
    return write;
  }

  ended(id: string, write: WriteRecord, outcome: WriteRecord['outcome'], by?: 'acks' | 'fence'): void {
    write.outcome = outcome;
    write.ended = ++this.#moment;
    if (outcome === 'complete') this.#of(id).floor = Math.max(this.#of(id).floor, write.version);
    if (by) this.counts[by]++;
    else if (outcome === 'pending') this.counts.pending++;
    else if (outcome === 'unknown') this.counts.unknown++;
  }

  /** Ends a write as the control plane answered it; undefined where there was no answer at all. */
  told(id: string, write: WriteRecord, answer: Told | undefined): void {
    // What has room for nothing else answers only when it is complete.
    const { state = 'complete', by } = (answer?.body['propagation'] ?? {}) as Partial<Propagation>;
    this.ended(id, write, answer?.status === 200 ? state : 'unknown', by);
  }

  /** The version that an answer to a request beginning now may not be older than. */
  floor(id: string): number {
    return this.#of(id).floor;
  }

  /** The state that a version has; undefined where nobody wrote it. */
  stateOf(id: string, version: number): State | undefined {
    return this.#of(id).writes[version]?.state;
  }

  /** The version of a subject that an answer goes by which shows nothing of it: the latest that nothing is to be seen of. */
  absent(id: string): number {
    return this.#of(id).writes.findLast(({ state }) => state.isAbsent)?.version ?? -1;
  }

  /** @param shown all that the verdict goes by */
  answered(shown: readonly Shown[], code: string, where: string): void {
    this.counts.answers++;
    let expected = 'VALID';
    for (const each of shown) {
      const { kind } = this.#of(each.id);
      if (kind === 'role') this.counts.withRole++;
      if (kind === 'identity') this.counts.withIdentity++;
      const wrong = this.#whatIsWrong(each);
      if (wrong)
        this.stale.push(
          `${wrong}: ${each.id} version ${each.version}, floor ${each.floor}, ${code}, at ${where}`,
        );
      const state = this.stateOf(each.id, each.version);
      if (state?.isAbsent) this.counts.absent++;
      if (kind !== 'role' && !state?.enabled) expected = 'DISABLED';
      const lacks = kind === 'role' ? !state?.enabled : kind === 'key' && state?.hasRole === false;
      if (lacks && expected === 'VALID') expected = 'INSUFFICIENT_PERMISSIONS';
    }
    if (code !== expected)
      this.stale.push(`${code} where ${expected} fits what it shows: ${JSON.stringify(shown)}, at ${where}`);
    const began = Math.max(...shown.map(({ id, version }) => this.#of(id).writes[version]?.began ?? 0));
    const over = Math.min(...shown.map((each) => this.#over(each)));
    if (over < began) this.stale.push(`never held at one moment: ${JSON.stringify(shown)}, at ${where}`);
  }

  /** The moment from which nobody may show a version any more. */
  #over({ id, version }: Shown): number {
    const { writes } = this.#of(id);
    if (writes[version]?.outcome === 'unknown') return Number.POSITIVE_INFINITY;
    const later = writes.slice(version + 1).filter(({ outcome }) => outcome === 'complete');
    return Math.min(...later.map(({ ended }) => ended));
  }

  #whatIsWrong({ id, floor, version }: Shown): string | undefined {
    const write = this.#of(id).writes[version];
    if (!write) return 'a version that nobody wrote';
    if (version >= floor) return undefined;
    if (write.outcome !== 'unknown') return 'STALE';
    this.counts.latecomers++;
    return undefined;
  }

  #of(id: string): Subject {
    const subject = this.#subjects.get(id);
    if (!subject) throw new Error(`nobody created ${id}`);
    return subject;
  }
}
