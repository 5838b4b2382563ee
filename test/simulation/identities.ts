import type { Write } from '../../control-plane/core/change-log.ts';
import type { Propagator } from '../../control-plane/core/propagation.ts';
import { hashSecret } from '../../shared/key-format.ts';
import { WORKSPACE } from '../../shared/redis/redis-keys.ts';
import type { Checker, KnownKey, Stop } from './checker.ts';
import type { Timeline } from './clock.ts';
import type { ChangeNode } from './history.ts';
import type { Plan } from './plan.ts';
import type { SimulatedChangeLog } from './ports.ts';
import type { Random } from './random.ts';
import type { Outcome, RedisState } from './redis.ts';

/** Times that links are written anew because something changed meanwhile. */
const TRIES = 20;

/** A process that changes identities. */
interface Process {
  readonly machine: { readonly name: string };
  readonly log: SimulatedChangeLog;
  readonly propagator: Propagator;
}

/** World in which that happens. */
interface Surroundings<Verifier> {
  readonly plan: Plan;
  readonly random: Random;
  readonly timeline: Timeline;
  readonly checker: Checker;
  readonly keys: readonly KnownKey[];
  readonly verifiers: readonly Verifier[];
  newTag(): string;
  note(...parts: readonly (string | number | boolean)[]): void;
  verify(process: Verifier, key: KnownKey): Promise<unknown>;
  write(process: Process, write: Write, waitMs: number): Promise<string | undefined>;
  writeAll(process: Process, writes: readonly [Write, ...Write[]], waitMs: number): Promise<boolean>;
}

/**
 * Customers: an identity is a record of the workspace, and keys of its owner hold its id. Goes about it as identities.ts and its
 * routes do; what they ask of Redis is one step of the server here.
 */
export class Identities<Verifier> {
  /** Records that there are or were; the name of each is a text of its own after each change. */
  readonly all: KnownKey[] = [];
  readonly #stops = new Map<string, Stop[]>();
  readonly #world: Surroundings<Verifier>;
  readonly #ownerOf = new Map<string, string>();

  constructor(world: Surroundings<Verifier>) {
    this.#world = world;
  }

  /** Gives a new key to one of the customers, or to nobody. */
  adopt(keyId: string): void {
    const owner = this.#world.random.pick(['', 'ada', 'bob', `new${this.#ownerOf.size}`]);
    if (owner) this.#ownerOf.set(keyId, owner);
  }

  /** Stops the owner of the latest key while that is made. */
  stopLatest(process: Process): void {
    const owner = [...this.#ownerOf.values()].at(-1);
    if (owner) void this.change(process, owner, true);
  }

  /** Field of the record that says whose a key is. */
  fieldOf(keyId: string): { readonly o?: string } {
    const owner = this.#ownerOf.get(keyId);
    return owner === undefined ? {} : { o: owner };
  }

  /** What a key that is created holds, as far as that can be seen before. */
  async linkOf(process: Process, keyId: string): Promise<string> {
    const owner = this.#ownerOf.get(keyId);
    return owner === undefined ? '' : await idOf(process, owner);
  }

  /** Looks again after a key was written; whether it holds what it should. */
  async lookAgain(process: Process, { apiId, keyId }: KnownKey): Promise<boolean> {
    const owner = this.#ownerOf.get(keyId);
    return owner === undefined || (await this.#linkKeys(process, apiId, owner, keyId));
  }

  /** Makes, stops or brings back a customer. */
  async change(
    process: Process,
    owner = this.#world.random.pick(['ada', 'bob']),
    isStop = this.#world.random.chance(0.6),
  ): Promise<void> {
    try {
      const id = await idOf(process, owner);
      if (id === '') await this.#create(process, owner, isStop);
      else if (isStop) await this.#stop(process, owner, id);
      else await this.#world.write(process, this.#update(id, true), Number.POSITIVE_INFINITY);
    } catch (error) {
      this.#world.note(process.machine.name, 'no change of', owner, (error as Error).message);
    }
  }

  /** Stops that whoever asks about a key now has been told of. */
  toldOf(keyId: string, atMs: number): readonly Stop[] {
    const stops = this.#stops.get(this.#ownerOf.get(keyId) ?? '') ?? [];
    return stops.filter((stop) => stop.atMs < atMs);
  }

  async #create(process: Process, owner: string, disabled: boolean): Promise<void> {
    const { timeline } = this.#world;
    const keyId = `identity${this.all.length}`;
    const created = {
      ...{ tag: this.#world.newTag(), enabled: !disabled, expires: 0 },
      ...{ gone: false, needs: 1, roles: '', identity: '' },
    };
    const about = { apiId: WORKSPACE, keyId, secret: '', pool: '' };
    const identity: KnownKey = { ...about, created, createdAtMs: Number.POSITIVE_INFINITY };
    this.all.push(identity);
    const record = { p: hashSecret(keyId), e: disabled ? '0' : '1', n: created.tag, o: owner };
    const { reply, replicated } = await process.log.durably(WORKSPACE, (state) =>
      state.createKey(WORKSPACE, keyId, record),
    );
    this.#world.note(process.machine.name, 'identity', keyId, owner, reply && replicated);
    if (!reply || !replicated) return;
    if ((await idOf(process, owner)) !== keyId) {
      const about = { apiId: WORKSPACE, keyId, fields: {} };
      await this.#world.write(process, { ...about, operation: 'delete' }, Number.POSITIVE_INFINITY);
    } else if (await this.#linkAll(process, owner)) {
      identity.createdAtMs = timeline.nowMs;
      if (disabled) this.#stopped(owner, identity, undefined);
    }
  }

  async #stop(process: Process, owner: string, id: string): Promise<void> {
    const world = this.#world;
    const write = this.#update(id, false);
    const by = await world.write(process, write, Number.POSITIVE_INFINITY);
    if (by !== 'acks' && by !== 'fence') return;
    const change = world.checker.history.tagged(id, write.fields.n ?? '');
    if (!(await this.#linkAll(process, owner)) || !change) return;
    const identity = this.all.find(({ keyId }) => keyId === id);
    if (identity) this.#stopped(owner, identity, change);
  }

  /** Somebody was told that a customer is stopped. Every verifier is asked at once whether it is so. */
  #stopped(owner: string, identity: KnownKey, change: ChangeNode | undefined): void {
    const world = this.#world;
    const stops = this.#stops.get(owner) ?? [];
    this.#stops.set(owner, [...stops, { identity, change, atMs: world.timeline.nowMs }]);
    world.note('stopped', owner);
    const theirs = world.keys.filter(({ keyId }) => this.#ownerOf.get(keyId) === owner);
    for (const key of theirs.slice(-4)) this.askAll(key);
  }

  askAll(key: KnownKey): void {
    const world = this.#world;
    world.timeline.after(0.001, () => {
      for (const verifier of world.verifiers) void world.verify(verifier, key);
    });
  }

  #update(keyId: string, enabled: boolean): Write {
    const fields = { e: enabled ? '1' : '0', n: this.#world.newTag() };
    return { apiId: WORKSPACE, operation: 'update', keyId, fields };
  }

  /** Links all keys of an owner, and waits for what others linked; whether all of it is complete. */
  async #linkAll(process: Process, owner: string): Promise<boolean> {
    const { apiIds } = this.#world.plan;
    const done = await Promise.all(apiIds.map((apiId) => this.#linkKeys(process, apiId, owner)));
    const settled = await Promise.all(apiIds.map((apiId) => this.#settled(process, apiId, owner)));
    return [...done, ...settled].every(Boolean);
  }

  /** Tells whether all is complete that was done to the keys of an owner; a change of nothing makes it so. */
  async #settled(process: Process, apiId: string, owner: string): Promise<boolean> {
    const keys = await process.log.run(apiId, (state) => keysOf(state, apiId, owner), 'read');
    const sequences = keys.map(({ version }) => Number.parseInt(version, 10) || 0);
    const latest = Math.max(0, ...sequences);
    const keyId = keys[sequences.indexOf(latest)]?.keyId ?? '';
    if (latest === 0) return true;
    const status = await process.propagator.status(apiId, keyId, latest, true).catch(() => undefined);
    if (status?.state === 'complete') return true;
    const noop = { apiId, operation: 'noop', keyId: '', fields: {} } as const;
    return (await this.#world.write(process, noop, Number.POSITIVE_INFINITY)) !== undefined;
  }

  async #linkKeys(process: Process, apiId: string, owner: string, only?: string): Promise<boolean> {
    let isComplete = true;
    for (let tries = 0; tries < TRIES; tries++) {
      const keys = await process.log.run(apiId, (state) => keysOf(state, apiId, owner, only), 'read');
      const right = await idOf(process, owner);
      const [first, ...others] = keys
        .filter(({ identity }) => identity !== right)
        .map(({ keyId, version }): Write => {
          const fields = { I: right, n: this.#world.newTag() };
          return { apiId, operation: 'update', keyId, fields, condition: version };
        });
      if (!first) return isComplete;
      isComplete =
        (await this.#world.writeAll(process, [first, ...others], Number.POSITIVE_INFINITY)) && isComplete;
    }
    return false;
  }
}

interface Held {
  readonly keyId: string;
  readonly version: string;
  readonly identity: string;
}

function keysOf(state: RedisState, apiId: string, owner: string, only?: string): Outcome<Held[]> {
  const reply = [...state.api(apiId).records].flatMap(([keyId, { v, o, I }]) =>
    o === owner && (only ?? keyId) === keyId ? { keyId, version: v ?? '0', identity: I ?? '' } : [],
  );
  return { reply, wrote: false };
}

/** The first identity of an owner that there is. */
function idOf(process: Process, owner: string): Promise<string> {
  return process.log.run(
    WORKSPACE,
    (state) => {
      const ids = [...state.api(WORKSPACE).records].filter(([, { o }]) => o === owner);
      const [first] = ids.sort(([, a], [, b]) => Number(a['i']) - Number(b['i']));
      return { reply: first?.[0] ?? '', wrote: false };
    },
    'read',
  );
}
