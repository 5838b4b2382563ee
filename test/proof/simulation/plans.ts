import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { namespaceIdOf } from '../../../shared/protocol/records/namespace-record.ts';
import { SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { identityIdOf } from '../../../shared/rules/key-format.ts';
import type { Checker, KnownKey } from './checker.ts';
import { versionOf } from './history.ts';
import type { Plan } from './plan.ts';
import type { Random } from './random.ts';
import { CHANGING_WINDOW_MS, type Roles, SHARED_WINDOW_MS } from './roles.ts';

/** World whose plans change. */
interface Surroundings {
  readonly plan: Pick<Plan, 'plansChange' | 'sharedLimits'>;
  readonly random: Random;
  readonly checker: Checker;
  readonly keys: readonly KnownKey[];
  readonly roles: Roles | undefined;
  newTag(): string;
}

/** The rate limit of which questions without a key ask. */
export const callsOf = ({ plansChange }: Pick<Plan, 'plansChange'>) => ({
  ...{ namespace: 'calls', identifier: 'ada' },
  duration: plansChange ? CHANGING_WINDOW_MS : SHARED_WINDOW_MS,
});

/** The customer of all keys. */
export const OWNER = 'ada';

/**
 * A limit that goes up and down under load: the first role's, that of keys which move between two roles, or an override's. Knows the
 * largest that may be in force.
 */
export class Plans {
  /** The record of the overrides. */
  readonly #overrides: KnownKey = {
    ...{ apiId: SHARED_LOG, keyId: namespaceIdOf(callsOf({}).namespace), secret: '', pool: '' },
    ...{ created: versionOf(undefined), createdAtMs: Number.POSITIVE_INFINITY },
  };
  /** The limit of the override after each change. */
  readonly #amounts = new Map<string, number>();
  readonly #world: Surroundings;
  #hasCustomer: boolean;
  /** True = the latest change raised a limit. */
  isHigh = false;

  constructor(world: Surroundings) {
    this.#world = world;
    this.#hasCustomer = world.random.chance(0.3);
  }

  /** Roles of a key: one of the two, or always the first. */
  rolesOf(): string {
    const { plan, roles } = this.#world;
    const [lower, higher] = (roles?.all ?? []).map(({ keyId }) => keyId);
    return (plan.plansChange === 'key' && this.isHigh ? higher : lower) ?? '';
  }

  /** The creation of the customer of all keys, once; undefined = it was made, or there is to be none. */
  get customer(): Write | undefined {
    if (this.#hasCustomer) return undefined;
    this.#hasCustomer = true;
    const fields = { e: '1', n: this.#world.newTag(), m: '', A: '' };
    return { apiId: SHARED_LOG, keyId: identityIdOf(OWNER), operation: 'create', fields };
  }

  /** A change of the role or the override; undefined = keys change. */
  change(): Write | undefined {
    const { plan, random, roles } = this.#world;
    this.isHigh = random.chance(0.8) ? !this.isHigh : this.isHigh;
    const [lower = 0, higher = 0] = plan.sharedLimits ?? [];
    const limit = this.isHigh ? higher : lower;
    if (plan.plansChange === 'role') return roles?.changeLimit(limit);
    if (plan.plansChange !== 'override') return undefined;
    const n = this.#world.newTag();
    this.#amounts.set(n, limit);
    const { identifier, duration } = callsOf(plan);
    const m = JSON.stringify({ overrides: [{ id: 'o', identifier, limit, duration }] });
    const operation = this.#amounts.size === 1 ? 'create' : 'update';
    return { apiId: SHARED_LOG, keyId: this.#overrides.keyId, operation, fields: { e: '1', n, m } };
  }

  /**
   * The largest limit that may be in force for a key, or for any key of an identity.
   * @param pool id of either
   */
  inForce(key: KnownKey, pool: string, begunAtMs: number): number {
    const { checker, keys, roles } = this.#world;
    const sharing = pool === key.keyId ? [key] : keys;
    const ids = sharing.flatMap((each) =>
      checker
        .versionsInForce(each, begunAtMs)
        .filter(({ owner }) => pool === key.keyId || (owner !== '' && identityIdOf(owner) === pool))
        .flatMap((version) => version.roles.split(' ')),
    );
    const versions = (roles?.all ?? [])
      .filter(({ keyId }) => ids.includes(keyId))
      .flatMap((role) => checker.versionsInForce(role, begunAtMs));
    return Math.max(...versions.map(({ limits }) => Number(/"limit":(\d+)/.exec(limits)?.[1] ?? 0)));
  }

  /** The same for the override, where the question itself says `limit`. */
  overrideInForce(limit: number, begunAtMs: number): number {
    const versions = this.#world.checker.versionsInForce(this.#overrides, begunAtMs);
    return Math.max(...versions.map(({ tag, gone }) => (gone ? limit : (this.#amounts.get(tag) ?? limit))));
  }
}
