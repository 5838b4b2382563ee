import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../shared/rules/key-format.ts';
import type { KnownKey } from './checker.ts';
import { limitsText } from './history.ts';
import type { Plan } from './plan.ts';
import type { Random } from './random.ts';
import type { RedisState } from './redis.ts';

/** Length of the windows of the limits that keys of an identity share, in milliseconds. */
export const SHARED_WINDOW_MS = 1000;
/** The same where limits go up and down: several changes come in one window. */
export const CHANGING_WINDOW_MS = 10_000;

const exists = ({ createdAtMs }: KnownKey): boolean => Number.isFinite(createdAtMs);

/** Roles that there are or were, each a record of the shared log; its name is a text of its own after each change. */
export class Roles {
  readonly all: KnownKey[] = [];
  readonly #random: Random;
  readonly #newTag: () => string;
  readonly #sharedLimits: Plan['sharedLimits'];
  /** True = each role keeps its limit, and the second has the higher one. */
  readonly #areFixed: boolean;
  readonly #windowMs: number;
  /** The limits with which each is created. */
  readonly #created = new Map<string, Readonly<Record<string, string>>>();
  /** Ids of those that somebody had deleted. */
  readonly #gone = new Set<string>();

  constructor(
    random: Random,
    newTag: () => string,
    { sharedLimits, plansChange }: Pick<Plan, 'sharedLimits' | 'plansChange'>,
  ) {
    this.#random = random;
    this.#sharedLimits = sharedLimits;
    this.#areFixed = plansChange === 'key';
    this.#windowMs = plansChange ? CHANGING_WINDOW_MS : SHARED_WINDOW_MS;
    this.#newTag = newTag;
  }

  /** A role with an id that none had before. */
  add(): KnownKey {
    const keyId = this.#newId();
    const record = this.#limits();
    const created = {
      ...{ tag: this.#newTag(), enabled: true, expires: 0 },
      ...{ gone: false, needs: 1, roles: '', owner: '', apis: '', limits: limitsText(record) },
    };
    this.#created.set(keyId, record);
    const role = {
      apiId: SHARED_LOG,
      keyId,
      secret: '',
      created,
      pool: '',
      createdAtMs: Number.POSITIVE_INFINITY,
    };
    this.all.push(role);
    return role;
  }

  #newId(): string {
    return `r${this.all.length}`;
  }

  create({ keyId, created }: KnownKey, state: RedisState) {
    const record = { p: hashSecret(keyId), e: '1', n: created.tag, P: 'a', ...this.#created.get(keyId) };
    return state.createKey(SHARED_LOG, keyId, record);
  }

  /** A change of the first one's limits. */
  changeLimit(limit: number): Write {
    const fields = { n: this.#newTag(), e: '1', ...this.#limits(limit) };
    return { apiId: SHARED_LOG, keyId: this.all[0]?.keyId ?? '', operation: 'update', fields };
  }

  /** One limit of each kind that all keys of an identity share; roles say two amounts of it. */
  #limits(amount?: number): Readonly<Record<string, string>> {
    if (this.#sharedLimits === undefined) return {};
    const [lower, higher] = this.#sharedLimits;
    const fixed = this.#areFixed ? (this.all.length > 0 ? higher : lower) : undefined;
    const limit = amount ?? fixed ?? this.#random.pick(this.#sharedLimits);
    const shared = { limit, per: 'identity' };
    return {
      L: JSON.stringify([
        { name: 'plan', ...shared, duration: this.#windowMs, async: true, autoApply: true },
      ]),
      C: JSON.stringify([{ name: 'jobs', ...shared }]),
    };
  }

  #there(): string[] {
    return this.all.filter((role) => exists(role) && !this.#gone.has(role.keyId)).map(({ keyId }) => keyId);
  }

  /** What a key may be given: roles that are there. */
  some(): string {
    const ids = this.#there();
    const [first = '', second = ''] = [this.#random.pick(['', ...ids]), this.#random.pick(['', ...ids])];
    return [...new Set([first, second])]
      .filter((id) => id !== '')
      .sort()
      .join(' ');
  }

  /** A change of one; undefined = there is none. */
  change(): Write | undefined {
    const there = this.all.filter((role) => exists(role) && !this.#gone.has(role.keyId));
    if (there.length === 0) return undefined;
    const { keyId } = this.#random.pick(there);
    const about = { apiId: SHARED_LOG, keyId } as const;
    if (this.#random.chance(0.15)) {
      this.#gone.add(keyId);
      return { ...about, operation: 'delete', fields: {} };
    }
    const m = this.#random.chance(0.15) ? `{"long":"${'x'.repeat(250)}"}` : '';
    return {
      ...about,
      operation: 'update',
      fields: {
        ...{ n: this.#newTag(), P: this.#random.pick(['', 'a', 'a b']), m },
        e: this.#random.pick(['0', '1', '1']),
        ...(this.#sharedLimits ? this.#limits() : {}),
      },
    };
  }
}
