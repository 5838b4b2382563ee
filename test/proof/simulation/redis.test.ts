import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../../deploy/dev/redis-server.ts';
import type { PoolTurn } from '../../../shared/metering/exchange.ts';
import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import type { Letter } from '../../../shared/protocol/records/key-record.ts';
import { DURATION_MAX_MS } from '../../../shared/protocol/records/limit.ts';
import {
  apiKeys,
  formatPointer,
  poolKey,
  secretPointer,
  windowKey,
} from '../../../shared/redis/redis-keys.ts';
import { scratch } from '../../harness/scratch.ts';
import type { Reply } from './lua.ts';
import { Random } from './random.ts';
import { RedisState } from './redis.ts';

const LEASE_MS = 1000;
const DAY_MS = 86_400_000;
const WINDOWS = ['w1', 'w2'];
const LIMITS = {
  ...{ logEntries: 10_000, creationsKept: 100_000, payloadBytesMax: 1024 },
  ...{ batchEntriesMax: 500, batchBytesMax: 1_048_576 },
};

const directory = scratch('contract');
let redis: RedisServer;
let real: Redis;
/** Replication id of the server. */
let server: string;

beforeAll(async () => {
  redis = await startRedis(join(directory, 'redis'));
  real = new Redis(redis.url);
  server = /master_replid:(\w+)/.exec(await real.info('replication'))?.[1] ?? '';
});

afterAll(async () => {
  real.disconnect();
  await redis.stop();
  rmSync(directory, { recursive: true });
});

/** A simulated Redis that keeps all that it was asked, so that the real one can be asked the same. */
class Kept extends RedisState {
  #asked: { readonly argv: readonly (string | number)[]; readonly reply: Reply }[] = [];

  override eval(script: string, keys: readonly string[], args: readonly string[]): Reply {
    // The real one has its own clock.
    const time = this.command('TIME') as readonly string[];
    const text = script.replaceAll("redis.call('TIME')", `{'${time.join("', '")}'}`);
    const reply = super.eval(script, keys, args);
    this.#asked.push({ argv: ['EVAL', text, keys.length, ...keys, ...args], reply });
    return reply;
  }

  /** A command on its own. */
  ask(...argv: readonly [string, ...(string | number)[]]): void {
    const [name, ...args] = argv;
    this.#asked.push({ argv, reply: this.command(name, ...args.map(String)) });
  }

  takeAsked() {
    return this.#asked.splice(0);
  }
}

/** Draws acts on one API, among them senseless ones. */
class Acts {
  readonly apiId: string;
  nowMs = Date.now();
  readonly state = new Kept(LIMITS, () => this.nowMs);
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.apiId = `api${seed}`;
    this.state.server = server;
  }

  next(): void {
    const random = this.#random;
    const some = <T>(weight: number, draw: () => T) => Array.from({ length: weight }, () => draw);
    this.nowMs += random.pick([0, 1, 30, 60, 1100]);
    random.pick([
      ...some(10, () => this.#write()),
      ...some(8, () => this.#sync()),
      ...some(4, () => this.state.register(this.apiId, this.#member(), 'n')),
      ...some(4, () => this.#check()),
      ...some(2, () => this.#close()),
      ...some(2, () => this.#reapOrLeave()),
      ...some(3, () => this.#create()),
      ...some(3, () => this.#reroll()),
      ...some(2, () => this.#lease()),
      ...some(4, () => this.#exchange()),
      ...some(1, () => this.#usedBefore()),
      ...some(1, () => this.#overdue()),
      ...some(1, () => this.state.endDebt(this.apiId, this.#key())),
      ...some(2, () => this.#trimOrFind()),
      ...some(1, () => this.state[random.pick(['removeKeys', 'forget'] as const)](this.apiId)),
    ])();
  }

  #key = (): string => this.#random.pick(['k1', 'k2', 'k3', 'k4']);
  #member = (): string => this.#random.pick(['1.m1', '1.m2', '2.m3', '3.m4']);

  /** Somewhere in the log, or beyond, mostly with the hash that is there. */
  #place(): { sequence: number; hash: string } {
    const { log, sequence: head } = this.state.api(this.apiId);
    const entry = log.length > 0 && this.#random.chance(0.8) ? this.#random.pick(log) : undefined;
    if (entry && this.#random.chance(0.9)) return entry;
    return { sequence: this.#random.whole(0, head + 1), hash: this.#random.pick(['', 'f'.repeat(40)]) };
  }

  /** Mostly of creations that there were, or of all that there are. */
  #mark(): string {
    const { creations, lastMark } = this.state.api(this.apiId);
    const random = this.#random;
    if (creations.length === 0 || random.chance(0.6)) return random.chance(0.9) ? lastMark : '3-';
    const { number, hash } = random.pick(creations);
    return `${number}-${random.pick([hash, hash, hash, '', 'f'.repeat(16)])}`;
  }

  #write(): void {
    const [random, { apiId }] = [this.#random, this];
    const kind = random.pick([
      ...Array(12).fill('update'),
      'delete',
      'delete-again',
      'noop',
      'noop',
      'end',
    ] as const);
    const keyId = kind === 'noop' || kind === 'end' ? '' : this.#key();
    const values: Record<Letter, readonly string[]> = {
      e: ['0', '1'],
      x: ['', '1800000000000'],
      n: ['', 'a "name" / with \\ signs'],
      o: ['', 'owner'],
      m: ['', '{"short":1}', `{"long":"${'x'.repeat(200)}"}`, `{"too long":"${'é'.repeat(600)}"}`],
      E: ['', 'live'],
      l: ['', '{"limit":1,"duration":1000,"async":true}'],
      L: [''],
      C: ['', '[{"name":"jobs","limit":3}]'],
      O: ['', 'https://*.example.com'],
      P: ['', 'files.read files.write'],
      R: ['', 'role_1 role_2'],
      A: ['', 'a b'],
      I: ['', '10.0.0.0/8 ::1'],
    };
    const fields: Partial<Record<Letter, string>> = {};
    for (const [field, texts] of Object.entries(values))
      if (random.chance(0.5)) fields[field as Letter] = random.pick(texts);
    const api = this.state.api(apiId);
    const version = keyId ? (api.records.get(keyId)?.['v'] ?? '0') : String(api.sequence);
    const condition = random.pick(['', '', version, '7']);
    const operation = kind === 'end' ? (random.chance(0.2) ? 'api-deleted' : 'noop') : kind;
    const needs = random.pick([1, 1, 1, 1, 1, 2, 3]);
    const credits = kind === 'update' && random.chance(0.4) ? this.#creditsChange() : undefined;
    const write: Write = {
      ...{ apiId, operation, keyId, condition, needs },
      fields: kind === 'update' ? fields : {},
      ...(credits ? { credits } : {}),
    };
    this.state.write(write, this.nowMs, `pool-${this.#pools++}`);
  }

  #reroll(): void {
    const [random, { apiId }, keyId, made] = [this.#random, this, this.#key(), this.#key()];
    const version = this.state.api(apiId).records.get(keyId)?.['v'] ?? '0';
    const write: Write = {
      ...{
        apiId,
        operation: 'update',
        keyId,
        fields: {},
        condition: random.pick(['', version, version, '7']),
      },
      successor: {
        ...{ keyId: made, secretHash: `${apiId}-${made}`, start: 'k' },
        bytes: random.chance(0.5) ? 32 : undefined,
        latestMs: random.pick([1, this.nowMs + 1000, 1_900_000_000_000]),
        operationId: random.pick(['', 'again', 'again']),
      },
    };
    this.state.write(write, this.nowMs);
  }

  #pools = 0;
  #turns = 0;

  #creditsChange(): NonNullable<Write['credits']> {
    const value = this.#random.whole(0, 20);
    const op = this.#random.pick(['set', 'set', 'increment', 'decrement', 'decrement', 'none'] as const);
    // Some are sent again, or another one by their name.
    const named = this.#random.chance(0.5) ? { operation: this.#random.pick(['one', 'two', 'three']) } : {};
    if (op === 'none') return { op, ...named };
    const refill = this.#random.pick(['', `d ${value}`]);
    const thresholds = ['', '50', '20 80 95'][value % 3] ?? '';
    if (!named.operation && this.#random.chance(0.15)) return { op: 'refill', refill, thresholds };
    if (op === 'set' && !named.operation && this.#random.chance(0.6))
      return { op, value, refill, thresholds };
    return { op, value: named.operation ? value % 3 : value, ...named };
  }

  /** Time passes up to the next refill of a pool, or of several. */
  #overdue(): void {
    const refilled = [...this.state.api(this.apiId).pools].filter(([, { refill }]) => refill);
    if (refilled.length === 0) return;
    const dueAtMs = this.nowMs - this.#random.pick([2000, 3 * DAY_MS]);
    const [pool] = this.#random.pick(refilled);
    this.state.ask('HSET', poolKey(this.apiId, pool), 't', Math.floor(dueAtMs / 1000));
  }

  /** Of any pool, in turns that may be old, saying what may be true. */
  #exchange(): void {
    const [random, { apiId }, member] = [this.#random, this, this.#member()];
    const pools = [...this.state.api(apiId).pools.keys(), 'no-such-pool'];
    const turn = (): PoolTurn => {
      if (random.chance(0.4)) return this.#windowTurn(member);
      const pool = random.pick(pools);
      const { granted = 0, spent = 0 } = this.state.api(apiId).pools.get(pool)?.holders.get(member) ?? {};
      return {
        ...{ pool, turn: random.chance(0.9) ? ++this.#turns : random.whole(1, this.#turns + 1) },
        spent: random.chance(0.3) ? undefined : random.chance(0.8) ? random.whole(spent, granted) : spent - 1,
        ...{ held: random.pick([0, 0, 1, 3]), position: random.whole(0, 20) },
        divide: this.#divideOf(member, pool),
        ...{ kept: 0, needs: this.#needs(), slice: random.pick([0, 1, 5]) },
      };
    };
    const turns = random.chance(0.5) ? [turn()] : [turn(), turn()];
    this.state.exchange(apiId, member, turns);
  }

  /** What a holder may know of its divide, or of another. */
  #divideOf(member: string, pool: string): PoolTurn['divide'] {
    const random = this.#random;
    if (random.chance(0.3)) return undefined;
    const [, , turn] = (this.state.hash(poolKey(this.apiId, pool))?.get(`!${member}`) ?? '')
      .split(' ')
      .map(Number);
    return {
      turn: turn || random.whole(1, this.#turns + 1),
      held: random.pick([0, 1, 2]),
      back: random.pick([0, 1, 2]),
    };
  }

  #needs(): PoolTurn['needs'] {
    const random = this.#random;
    const one = () => ({ cost: random.pick([1, 2, 5, 30]), times: random.pick([1, 1, 3]) });
    return Array.from({ length: random.pick([0, 1, 1, 2, 4]) }, one);
  }

  /** About a rate limit, saying what may be true of this window, of another one or of none. */
  #windowTurn(member: string): PoolTurn {
    const [random, pool] = [this.#random, this.#random.pick(WINDOWS)];
    const holder = this.state.hash(windowKey(this.apiId, pool))?.get(`@${member}`) ?? '0 0';
    const [granted = 0, spent = 0] = holder.split(' ').map(Number);
    const said = random.chance(0.3)
      ? undefined
      : random.chance(0.8)
        ? random.whole(spent, granted)
        : spent - 1;
    const number = random.chance(0.1) ? undefined : this.#windowNumber - random.pick([0, 0, 0, 0, 0, 1]);
    const limit = random.pick([1, 20, 100]);
    return {
      ...{ pool, turn: random.chance(0.9) ? ++this.#turns : random.whole(1, this.#turns + 1), spent: said },
      ...{ held: random.pick([0, 0, 1, 3]), position: 0 },
      kept: said === undefined || said < spent ? 0 : random.whole(0, granted - said),
      ...{ needs: this.#needs(), slice: random.pick([0, 1, 5]) },
      window: { limit, durationMs: DURATION_MAX_MS, number },
    };
  }

  /** A limit of which much was used in the window before this one. */
  #usedBefore(): void {
    const key = windowKey(this.apiId, this.#random.pick(WINDOWS));
    this.state.ask('HSET', key, 'n', this.#windowNumber, 'p', this.#random.pick([0, 5, 50, 500]));
  }

  /** Of the present window, so long that it lasts until the end of the test. */
  get #windowNumber(): number {
    return Math.floor(this.nowMs / DURATION_MAX_MS);
  }

  #sync(): void {
    const [{ apiId }, place] = [this, this.#place()];
    const wanted = this.#random.pick([
      {},
      { keyId: this.#key() },
      { secretHash: `${apiId}-${this.#key()}` },
      { secretHash: `other-${this.#key()}` },
    ]);
    const request = {
      member: this.#member(),
      position: place.sequence,
      hash: place.hash,
      creations: this.#mark(),
      nonce: 'n',
      ...wanted,
    };
    this.state.sync(apiId, request);
  }

  #check(): void {
    const { sequence, hash } = this.#place();
    const names = this.#random.pick([0, 1, 100]);
    const known = this.#random.chance(0.7) ? hash : '';
    const { hash: laterHash, sequence: laterSequence } = this.#place();
    const later = this.#random.chance(0.3) ? { later: { sequence: laterSequence, hash: laterHash } } : {};
    const asked = { apiId: this.apiId, sequence, hash: known, keyId: this.#key(), replicated: false, names };
    this.state.check({ ...asked, ...later });
  }

  #close(): void {
    const { sequence, hash } = this.#place();
    const writer = this.#random.pick([server, server, server, '', 'f'.repeat(40)]);
    this.state.close(this.apiId, { sequence, hash, server: writer }, -this.#random.whole(1, 1e12));
  }

  #reapOrLeave(): void {
    const [{ apiId }, random, member] = [this, this.#random, this.#member()];
    const { members } = apiKeys(apiId);
    const score = this.state.api(apiId).members.get(member);
    if (random.chance(0.3)) this.state.ask('ZREM', members, member);
    // As somebody may set by hand.
    else if (random.chance(0.2) && score !== undefined)
      // Every Redis writes 1e22, a double, as it is given.
      this.state.ask('ZADD', members, random.pick(['-inf', 'inf', '1e22', '-0.5', '1.5']), member);
    else {
      const kill = random.chance(0.7) && score !== undefined && score < 0 ? score : -1;
      this.state.reap(apiId, [
        { name: member, kill },
        { name: 'nobody', kill: -1 },
      ]);
    }
  }

  #create(): void {
    const [{ apiId, state }, random, keyId] = [this, this.#random, this.#key()];
    const secretHash = `${apiId}-${keyId}`;
    if (random.chance(0.2) || !state.api(apiId).created) state.createApi(apiId, LEASE_MS);
    else if (random.chance(0.3)) state.point(secretPointer(secretHash), formatPointer(apiId, keyId));
    else {
      const credits = random.chance(0.5) ? random.whole(0, 20) : undefined;
      const pool = credits === undefined ? {} : { q: `pool-${keyId}` };
      const owner = random.chance(0.5) ? { o: 'owner' } : {};
      const fields = { p: secretHash, e: '1', n: 'new', ...pool, ...owner };
      state.createKey(
        apiId,
        keyId,
        fields,
        random.pick([1, 1, 1, 2]),
        credits,
        random.pick(['', 'd 7', 'm 7 31']),
      );
    }
  }

  #lease(): void {
    const step = this.#random.pick(['fence-first', 'grant', 'fence-last'] as const);
    const leaseMs = this.#random.pick([500, 1000, 2000]);
    this.state.setLease(this.apiId, step, leaseMs, this.#random.pick(['t1', 't2']));
  }

  #trimOrFind(): void {
    const stream = apiKeys(this.apiId)[this.#random.pick(['log', 'creations'] as const)];
    if (this.#random.chance(0.7)) this.state.find(secretPointer(`${this.apiId}-${this.#key()}`));
    else this.state.ask('XTRIM', stream, 'MAXLEN', this.#random.whole(0, 5));
  }
}

/** Commands that read all of a key, by its type. */
const READING: Readonly<Record<string, readonly string[]>> = {
  string: ['GET'],
  hash: ['HGETALL'],
  zset: ['ZRANGEBYSCORE', '-inf', '+inf', 'WITHSCORES'],
  stream: ['XRANGE', '-', '+'],
};

/** A number that grows with each change of data. */
const changesAt = async (redis: Redis) =>
  Number(/rdb_changes_since_last_save:(\d+)/.exec(await redis.info('persistence'))?.[1]);

/** What a client is told. */
const told = (reply: Reply): unknown =>
  reply !== null && typeof reply === 'object' && 'ok' in reply ? reply.ok : reply;

describe('the simulated Redis does as the real one', () => {
  test.each(Array.from({ length: 25 }, (_, i) => i + 1))('in the acts of seed %i', async (seed) => {
    const acts = new Acts(seed);
    const { state } = acts;
    const replica = new RedisState(LIMITS, () => acts.nowMs);
    const [heard, expected]: [unknown[], unknown[]] = [[], []];
    const { channel, recalls } = apiKeys(acts.apiId);
    const listener = real.duplicate();
    await listener.subscribe(channel, recalls);
    listener.on('message', (...message) => heard.push(message));
    const latest: unknown[] = [];
    let changes = await changesAt(real);
    for (let i = 0; i < 150; i++) {
      acts.next();
      for (const { argv, reply } of state.takeAsked()) {
        latest.push(argv.slice(2));
        const [name = '', ...args] = argv.map(String);
        expect(told(reply), JSON.stringify(latest.slice(-8))).toEqual(await real.call(name, ...args));
      }
      const effects = state.takeEffects();
      const before = changes;
      changes = await changesAt(real);
      const isChange = effects.some(([name]) => name !== 'PUBLISH');
      expect(isChange, JSON.stringify(latest.slice(-8))).toBe(changes > before);
      for (const [name = '', ...args] of effects) {
        replica.command(name, ...args);
        if (name === 'PUBLISH') expected.push(args);
      }
    }
    const keys = await real.keys(`kf:{${acts.apiId}}:*`);
    expect(state.keys('kf:{').sort()).toEqual(keys.sort());
    for (const key of keys) {
      const [name = '', ...args] = READING[await real.type(key)] ?? [];
      const found = state.command(name, key, ...args);
      // In a script, where lists are flat.
      const there = await real.eval('return redis.call(unpack(ARGV))', 0, name, key, ...args);
      const inOrder = (reply: unknown) => (name === 'HGETALL' ? new Map(pairs(reply as string[])) : reply);
      expect(inOrder(found), key).toEqual(inOrder(there));
      expect(replica.command(name, key, ...args), key).toEqual(found);
    }
    await listener.quit();
    expect(heard).toEqual(expected);
  });
});

const pairs = (list: readonly string[]) =>
  Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1]] as const);
