/** Credits that were granted since a `set` was complete, and those accepted in requests that began after it. */
interface Since {
  granted: number;
  accepted: number;
}

/** A request that may spend; `since` is what held when it began. */
export interface Spending {
  readonly cost: number;
  readonly since: readonly Since[];
}

/**
 * Credits of one key: what callers were told VALID for never exceeds what was granted, in the whole and since each `set` that
 * said complete. A change whose outcome nobody knows may have granted, so it counts; what a caller was not told does not.
 */
export class Account {
  readonly keyId: string;
  readonly key: string;
  readonly #since: Since[];
  readonly overspent: string[] = [];
  exceeded = 0;

  constructor(keyId: string, key: string, credits: number) {
    this.keyId = keyId;
    this.key = key;
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

  begin(cost: number): Spending {
    return { cost, since: [...this.#since] };
  }

  accepted({ cost, since }: Spending, where: string): void {
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
