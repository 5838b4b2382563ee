import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { identityIdOf } from '../../../shared/rules/key-format.ts';
import type { KnownKey } from './checker.ts';
import { versionOf } from './history.ts';
import type { Plan } from './plan.ts';
import type { SimulatedChangeLog } from './ports.ts';
import type { Random } from './random.ts';

/** A process that changes identities. */
interface Process {
  readonly log: SimulatedChangeLog;
}

/** World in which that happens. */
interface Surroundings<Asked> {
  readonly random: Random;
  readonly plan: Pick<Plan, 'sharedCredits'>;
  newTag(): string;
  write(process: Asked, write: Write, waitMs: number): Promise<unknown>;
}

/**
 * Customers: an identity is a record of the shared log whose id follows from its owner's name, and no key names it. They are made,
 * stopped, brought back, given to some APIs alone and deleted while keys of theirs are made, changed and rerolled.
 */
export class Identities<Asked extends Process> {
  /** One for each owner that there ever was; the name of each is a text of its own after each change. */
  readonly all: KnownKey[] = [];
  readonly #world: Surroundings<Asked>;
  readonly #owners: string[] = [];

  constructor(world: Surroundings<Asked>) {
    this.#world = world;
    for (const owner of ['ada', 'bob']) this.#meet(owner);
  }

  /** Owner of a key: one of the customers, a new one, or nobody. */
  owner(): string {
    const fresh = `new${this.#owners.length}`;
    const owner = this.#world.random.pick(['', 'ada', 'bob', fresh]);
    if (owner === fresh) this.#meet(owner);
    return owner;
  }

  /** Makes, changes or deletes a customer. */
  async change(process: Asked, owner = this.#world.random.pick(['ada', 'bob'])): Promise<void> {
    const { random } = this.#world;
    const apis = random.pick(['', '', 'a', 'b', 'a b']);
    if (!(await this.#delete(process, owner))) await this.#set(process, owner, random.chance(0.6), apis);
  }

  /** Stops the latest owner in all APIs. */
  stopLatest(process: Asked): void {
    const owner = this.#owners.at(-1);
    if (owner) void this.#set(process, owner, true, '');
  }

  async #set(process: Asked, owner: string, isStop: boolean, A: string): Promise<void> {
    const about = { apiId: SHARED_LOG, keyId: identityIdOf(owner) };
    const m = this.#world.random.chance(0.15) ? `{"long":"${'x'.repeat(250)}"}` : '';
    const fields = { e: isStop ? '0' : '1', n: this.#world.newTag(), m, A };
    const record = await this.#recordOf(process, owner);
    const operation = record ? 'update' : 'create';
    const credits = this.#credits(record !== undefined);
    const write = { ...about, operation, fields, ...(credits ? { credits } : {}) } as const;
    await this.#world.write(process, write, Number.POSITIVE_INFINITY);
  }

  /** Something to do to the credits that the keys of a customer share. */
  #credits(isKnown: boolean): Write['credits'] {
    const { random, plan } = this.#world;
    if (plan.sharedCredits === undefined) return undefined;
    if (!isKnown) return { op: 'set', value: plan.sharedCredits };
    if (random.chance(0.4)) return undefined;
    const value = random.whole(1, plan.sharedCredits);
    return { op: random.pick(['set', 'increment', 'decrement'] as const), value };
  }

  /** Deletes a customer, if it is one who is not stopped; whether it was tried. */
  async #delete(process: Asked, owner: string): Promise<boolean> {
    const record = await this.#recordOf(process, owner);
    if (record?.['e'] !== '1' || !this.#world.random.chance(0.3)) return false;
    const about = { apiId: SHARED_LOG, keyId: identityIdOf(owner), fields: {} };
    const write = { ...about, operation: 'delete', condition: record['v'] ?? '0' } as const;
    await this.#world.write(process, write, Number.POSITIVE_INFINITY);
    return true;
  }

  /** undefined where there is none, and where Redis is away. */
  #recordOf(process: Asked, owner: string): Promise<Readonly<Record<string, string>> | undefined> {
    const id = identityIdOf(owner);
    const read = process.log.run(SHARED_LOG, (state) => state.api(SHARED_LOG).records.get(id), 'read');
    return read.catch(() => undefined);
  }

  #meet(owner: string): void {
    this.#owners.push(owner);
    this.all.push({
      ...{ apiId: SHARED_LOG, keyId: identityIdOf(owner), secret: '', pool: '' },
      ...{ created: versionOf(undefined), createdAtMs: Number.POSITIVE_INFINITY },
    });
  }
}
