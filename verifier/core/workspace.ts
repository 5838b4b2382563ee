import { LRUCache } from 'lru-cache';
import type { KeyState } from '#shared/key-record.ts';
import { WORKSPACE } from '#shared/redis/redis-keys.ts';
import { type Limit, limitsOf } from './allowances/limits.ts';
import type { Pools } from './allowances/pools.ts';
import type { Follower } from './follower.ts';
import { type Entry, type Epoch, type Memory, poolsOf } from './key-cache.ts';
import type { Lease } from './lease.ts';
import type { Ties } from './permissions.ts';

/** Least number of roles and identities that are remembered; those that were deleted count too. */
const RECORDS_MIN = 10_000;

/** Identity of a key's owner. */
export interface Identity {
  /** False: no key of the owner is accepted. */
  readonly enabled: boolean;
  readonly id: string;
  readonly externalId: string;
  /** A JSON object. */
  readonly meta: string;
  /** A JSON object of the three above. */
  readonly json: string;
  /** Rate limits that all keys of the owner share; undefined = none. */
  readonly limits: readonly Limit[] | undefined;
}

/** All that a key may do, by itself, by its roles and by its owner's identity, at one moment. */
export interface Grants {
  readonly granted: ReadonlySet<string>;
  readonly slugs: readonly string[];
  /** Names of its roles, those that there are. */
  readonly roles: readonly string[];
  /** undefined = its owner has none. */
  readonly identity: Identity | undefined;
  /** All of this as fields of an answer's JSON, each with a comma before it. */
  readonly json: string;
  /** The right to go by it, besides that to go by the key. */
  readonly lease: Lease;
  /** Counts of what the limits of identities allow. */
  readonly pools: Pools;
}

/** Grants as they were made, of one prefix of the log. */
interface Made {
  readonly version: number;
  readonly epoch: Epoch;
  readonly grants: Grants;
}

/**
 * Roles and identities: the space beside all APIs, followed from the first key on that has one. What it tells is told of one prefix of its
 * log, and under its lease.
 */
export class Workspace {
  readonly #follow: (apiId: string, memory: Memory) => Follower;
  readonly #records: Records;
  #follower: Follower | undefined;
  readonly #made = new WeakMap<Ties, Made>();
  readonly #reads = new Map<string, Promise<unknown>>();

  /**
   * @param follow makes a follower of a space that remembers here, and has it follow
   * @param keysMax most keys that are remembered: as many identities may be, and more roles than any key has
   */
  constructor(follow: (apiId: string, memory: Memory) => Follower, keysMax: number) {
    this.#follow = follow;
    this.#records = new Records(Math.max(keysMax, RECORDS_MIN));
  }

  /**
   * Tells what a key with these ties may do, if memory has it and may tell at this very instant: to be read in one synchronous
   * block with the key. undefined = Redis must be asked (`learn`).
   */
  grants(ties: Ties): Grants | undefined {
    let made = this.#made.get(ties);
    if (made?.version !== this.#records.version || !made.epoch.current) {
      made = this.#make(ties);
      if (made === undefined) return undefined;
      this.#made.set(ties, made);
    }
    return made.epoch.lease.holds() ? made.grants : undefined;
  }

  /** Reads what memory lacks of these. Rejects with SERVICE_UNAVAILABLE. */
  async learn({ roles, identity }: Ties): Promise<void> {
    this.#follower ??= this.#follow(WORKSPACE, this.#records);
    const all = identity === '' ? roles : [...roles, identity];
    const missing = all.filter((id) => this.#records.get(id) === undefined);
    // Where none is missing the lease is over, and reading any of them brings another one.
    const wanted = missing.length > 0 ? missing : all.slice(0, 1);
    await Promise.all(wanted.map((id) => this.#read(id)));
  }

  /** undefined = no key needed it yet. */
  get follower(): Follower | undefined {
    return this.#follower;
  }

  async stop(): Promise<void> {
    await this.#follower?.stop();
  }

  /** One read of a record at a time, however many ask. */
  #read(id: string): Promise<unknown> {
    const running = this.#reads.get(id);
    if (running !== undefined) return running;
    const read = Promise.resolve(this.#follower?.fill({ keyId: id })).finally(() => this.#reads.delete(id));
    this.#reads.set(id, read);
    return read;
  }

  #make({ roles, rights, identity: owner }: Ties): Made | undefined {
    const names: string[] = [];
    const granted = new Set(rights?.granted);
    let epoch: Epoch | undefined;
    for (const id of roles) {
      const known = this.#records.get(id);
      if (known === undefined) return undefined;
      epoch = known.epoch;
      if (known.record === undefined) continue;
      names.push(known.record.details?.name ?? '');
      for (const slug of known.record.rights?.slugs ?? []) granted.add(slug);
    }
    let identity: Identity | undefined;
    if (owner !== '') {
      const known = this.#records.get(owner);
      if (known === undefined) return undefined;
      epoch = known.epoch;
      identity = known.record && identityOf(known.record);
    }
    if (epoch === undefined) return undefined;
    const slugs = Object.freeze([...granted].sort());
    const sorted = Object.freeze(names.sort());
    const grants = {
      granted,
      slugs,
      roles: sorted,
      identity,
      json: joined([
        slugs.length > 0 ? `,"permissions":${JSON.stringify(slugs)}` : '',
        sorted.length > 0 ? `,"roles":${JSON.stringify(sorted)}` : '',
        identity ? `,"identity":${identity.json}` : '',
      ]),
      lease: epoch.lease,
      pools: epoch.pools,
    };
    return { version: this.#records.version, epoch, grants };
  }
}

/** Texts in one piece: V8 would join a concatenation at every use. */
const joined = (texts: readonly string[]): string => Buffer.from(texts.join('')).toString();

function identityOf({ keyId: id, enabled, details, limits }: Entry): Identity {
  const { name: externalId = '', meta = '{}' } = details ?? {};
  const json = `{"id":"${id}","externalId":${JSON.stringify(externalId)},"meta":${meta}}`;
  return { enabled, id, externalId, meta, json, limits };
}

/** A record that was read; undefined = there is none of that id, and as ids are never used again there never will be. */
interface Known {
  readonly epoch: Epoch;
  readonly record: Entry | undefined;
}

/** Roles and identities that were read, by their ids. */
class Records implements Memory {
  readonly #known: LRUCache<string, Known>;
  /** Raised by each change: what was made of them before is made anew. */
  version = 0;

  constructor(max: number) {
    this.#known = new LRUCache({ max });
  }

  get(id: string): Known | undefined {
    const known = this.#known.get(id);
    return known?.epoch.current ? known : undefined;
  }

  put(_secretHash: string, entry: Entry): void {
    this.#known.set(entry.keyId, { epoch: entry.epoch, record: entry });
  }

  lacks(id: string, epoch: Epoch): void {
    this.#known.set(id, { epoch, record: undefined });
  }

  update(_secretHash: string, id: string, epoch: Epoch, state: KeyState): string[] {
    this.version++;
    const now = poolsOf(id, '', limitsOf(state));
    const known = this.#known.peek(id);
    if (known?.epoch !== epoch || !known.record) {
      this.#known.delete(id);
      return now;
    }
    const before = known.record.pools;
    known.record.become(state);
    return [...before, ...now];
  }

  forget(_secretHash: string, id: string): string[] {
    this.version++;
    const pools = this.#known.peek(id)?.record?.pools;
    this.#known.delete(id);
    return pools ?? [];
  }
}
