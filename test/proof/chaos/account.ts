/** Credits that were granted since a `set` was complete, and those accepted in requests that began after it. */
interface Since {
  granted: number;
  accepted: number;
}

/** A request that may spend; `since` is what held when it began. */
export interface Spending {
  readonly key: string;
  /** The key had ended when it began, so that nobody may accept it. */
  readonly isOver: boolean;
  readonly cost: number;
  readonly since: readonly Since[];
}

/**
 * Credits of one key: what callers were told VALID for never exceeds what was granted, in the whole and since each `set` that
 * said complete. A change whose outcome nobody knows may have granted, so it counts; what a caller was not told does not.
 */
export class Account {
  keyId: string;
  /** Of one after the other: each was rerolled into the next. */
  readonly #keys: { readonly key: string; isOver: boolean }[];
  readonly #since: Since[];
  readonly overspent: string[] = [];
  exceeded = 0;
  rerolls = 0;

  constructor(keyId: string, key: string, credits: number) {
    this.keyId = keyId;
    this.#keys = [{ key, isOver: false }];
    this.#since = [{ granted: credits, accepted: 0 }];
  }

  /** A change that may grant so many begins. */
  grant(credits: number): void {
    for (const since of this.#since) since.granted += credits;
  }

  /** A `set` is complete. Only one change of a key at a time: nothing was granted since it began. */
  replaced(credits: number): void {
    this.#since.push({ granted: credits, accepted: 0 });
  }

  /** It was rerolled, which is complete; `isOver` = the key from before is refused everywhere from now on. */
  rerolled(keyId: string, key: string, isOver: boolean): void {
    const last = this.#keys.at(-1);
    if (last && isOver) last.isOver = true;
    this.keyId = keyId;
    this.#keys.push({ key, isOver: false });
    this.rerolls++;
  }

  /** @param chance from 0 to below 1: which of its latest keys is asked about */
  begin(cost: number, chance: number): Spending {
    const latest = this.#keys.slice(-3);
    const { key, isOver } = latest[Math.floor(chance * latest.length)] ?? { key: '', isOver: true };
    return { key, isOver, cost, since: [...this.#since] };
  }

  accepted({ cost, since, isOver }: Spending, where: string): void {
    if (isOver) this.overspent.push(`${this.keyId}: a key that was rerolled was accepted at ${where}`);
    for (const [n, account] of since.entries()) {
      account.accepted += cost;
      if (account.accepted > account.granted) {
        const { accepted, granted } = account;
        this.overspent.push(`${this.keyId}: ${accepted} of ${granted} since set ${n}, at ${where}`);
      }
    }
  }

  /** In the whole. */
  get total(): Since {
    return this.#since[0] ?? { granted: 0, accepted: 0 };
  }
}
