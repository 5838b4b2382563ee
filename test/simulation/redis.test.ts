import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Apis } from '../../control-plane/redis/apis.ts';
import { RedisChangeLog } from '../../control-plane/redis/change-log.ts';
import { DurableWriter } from '../../control-plane/redis/durable-writer.ts';
import { Credits } from '../../control-plane/redis/keys/credit-changes.ts';
import { Keys } from '../../control-plane/redis/keys/keys.ts';
import { RedisSweepStore } from '../../control-plane/redis/sweep-store.ts';
import type { Write } from '../../control-plane/writer/change-log-port.ts';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { DURATION_MAX_MS } from '../../shared/contract/credits.ts';
import type { Letter } from '../../shared/contract/key-record.ts';
import { systemClock } from '../../shared/lang/clock.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import {
  apiKeys,
  formatPointer,
  metaKey,
  poolKey,
  recordKey,
  secretPointer,
  windowKey,
} from '../../shared/redis/redis-keys.ts';
import { Script } from '../../shared/redis/script.ts';
import type { PoolReply, PoolTurn } from '../../verifier/core/redis-port.ts';
import { RedisDirectory } from '../../verifier/redis/api-session.ts';
import { redisConfig } from '../harness/config.ts';
import { scratch } from '../harness/scratch.ts';
import { PATIENT } from '../harness/waiting.ts';
import { Random } from './random.ts';
import { contentOf, type Outcome, RedisState } from './redis.ts';

const NOW_MS = 1_790_000_000_000;
const LEASE_MS = 1000;
const DAY_MS = 86_400_000;
/** Whether somebody answered in time is another matter than what is answered. */
const TIMELESS: Partial<Record<PoolReply['status'], PoolReply['status']>> = { HELD: 'WAIT', SPOKEN: 'NONE' };
const WINDOWS = ['w1', 'w2'];
/** Number of the present window, so long that it lasts until the end of the test. */
const windowNumber = () => Math.floor(Date.now() / DURATION_MAX_MS);
const LIMITS = {
  ...{ logEntries: 10_000, creationsKept: 100_000, payloadBytesMax: 1024 },
  ...{ batchEntriesMax: 500, batchBytesMax: 1_048_576 },
};
const script = (name: string) =>
  new Script(new URL(`../../control-plane/redis/lua/${name}.lua`, import.meta.url));
const [createKey, setPointer] = [script('keys/create-key'), script('keys/set-pointer')];

const directory = scratch('contract');
let redis: RedisServer;
let nodes: RedisNodes;
let real: Real;

/** The adapters of both processes to a real Redis. */
class Real {
  readonly writer = new DurableWriter(nodes, 0);
  /** Replication id of the server. */
  server = '';
  /** The name of the next pool. */
  pool = '';
  readonly log = new RedisChangeLog(
    nodes,
    this.writer,
    0,
    () => NOW_MS,
    () => this.pool,
  );
  readonly apis = new Apis(nodes, this.writer, systemClock, LEASE_MS);
  readonly credits = new Credits(this.writer, systemClock);
  readonly directory = new RedisDirectory(nodes, 0, systemClock);
  readonly upkeep: RedisSweepStore;

  constructor() {
    const limits = { leaseMs: LEASE_MS, apiAutoCreate: false };
    const keys = new Keys({ nodes, writer: this.writer, log: this.log, clock: systemClock, limits });
    this.upkeep = new RedisSweepStore(nodes, this.writer, this.apis, keys, () => Date.now());
  }
}

beforeAll(async () => {
  redis = await startRedis(join(directory, 'redis'));
  const log = createLogger('verifier', 'silent');
  nodes = new RedisNodes(redisConfig({ REDIS_URL: redis.url, ...PATIENT }), systemClock, log);
  real = new Real();
  const facts = await (await nodes.connection(apiKeys('any').head)).info('replication');
  real.server = /master_replid:(\w+)/.exec(facts)?.[1] ?? '';
});

afterAll(async () => {
  await nodes.close();
  await redis.stop();
  rmSync(directory, { recursive: true });
});

/** Acts that both are asked for, each with its answers. */
interface Act {
  readonly name: string;
  readonly ask: () => Promise<unknown>;
  readonly simulated: (state: RedisState) => Outcome<unknown>;
}

/** Draws acts on one API, among them senseless ones. */
class Acts {
  readonly apiId: string;
  readonly state = new RedisState(LIMITS);
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.apiId = `api${seed}`;
  }

  next(): Act {
    const random = this.#random;
    const some = <T>(weight: number, draw: () => T) => Array.from({ length: weight }, () => draw);
    return random.pick([
      ...some(10, () => this.#write()),
      ...some(8, () => this.#sync()),
      ...some(4, () => this.#register()),
      ...some(4, () => this.#check()),
      ...some(2, () => this.#close()),
      ...some(1, () => this.#lag()),
      ...some(2, () => this.#reapOrLeave()),
      ...some(3, () => this.#create()),
      ...some(3, () => this.#reroll()),
      ...some(2, () => this.#lease()),
      ...some(4, () => this.#exchange()),
      ...some(1, () => this.#usedBefore()),
      ...some(1, () => this.#overdue()),
      ...some(1, () => this.#settle()),
      ...some(2, () => this.#trimOrFind()),
      ...some(1, () => this.#sweep()),
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

  #write(): Act {
    const [random, { apiId }] = [this.#random, this];
    const kind = random.pick([...Array(12).fill('update'), 'delete', 'noop', 'noop', 'end'] as const);
    const keyId = kind === 'update' || kind === 'delete' ? this.#key() : '';
    const values: Record<Letter, readonly string[]> = {
      e: ['0', '1'],
      x: ['', '1800000000000'],
      n: ['', 'a "name" / with \\ signs'],
      o: ['', 'owner'],
      m: ['', '{"short":1}', `{"long":"${'x'.repeat(200)}"}`, `{"too long":"${'é'.repeat(600)}"}`],
      E: ['', 'live'],
      l: ['', '{"limit":1,"duration":1000,"async":true}'],
      L: [''],
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
    const pool = `pool-${this.#pools++}`;
    return {
      name: `write ${JSON.stringify(write)}`,
      ask: () => {
        real.pool = pool;
        return real.log.write(write).then((reply) => {
          const { replicated: _, ...rest } = { replicated: true, ...reply };
          return rest;
        });
      },
      simulated: (state) => state.write(write, NOW_MS, pool, Date.now()),
    };
  }

  #reroll(): Act {
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
        latestMs: random.pick([1, NOW_MS + 1000, 1_900_000_000_000]),
        operationId: random.pick(['', 'again', 'again']),
      },
    };
    return {
      name: `reroll ${JSON.stringify(write)}`,
      ask: () =>
        real.log.write(write).then((reply) => {
          const { replicated: _, ...rest } = { replicated: true, ...reply };
          return rest;
        }),
      simulated: (state) => state.write(write, NOW_MS),
    };
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
    if (!named.operation && this.#random.chance(0.15)) return { op: 'refill', refill };
    if (op === 'set' && !named.operation && this.#random.chance(0.6)) return { op, value, refill };
    return { op, value: named.operation ? value % 3 : value, ...named };
  }

  /** Time passes up to the next refill of a pool, or of several. */
  #overdue(): Act {
    const [{ apiId }, random] = [this, this.#random];
    const refilled = [...this.state.api(apiId).pools].filter(([, { refill }]) => refill);
    const pool = refilled.length > 0 ? random.pick(refilled)[0] : '';
    const dueAtMs = Date.now() - random.pick([2000, 3 * DAY_MS]);
    return {
      name: `a refill of ${pool} is due`,
      ask: async () => {
        const key = poolKey(apiId, pool);
        if (pool) await (await nodes.connection(key)).hset(key, { t: Math.floor(dueAtMs / 1000) });
      },
      simulated: (state) => {
        const due = state.api(apiId).pools.get(pool);
        if (due) due.dueAtMs = dueAtMs;
        return { reply: undefined, wrote: true };
      },
    };
  }

  /** Of any pool, in turns that may be old, saying what may be true. */
  #exchange(): Act {
    const [random, { apiId }, member] = [this.#random, this, this.#member()];
    const pools = [...this.state.api(apiId).pools.keys(), 'no-such-pool'];
    const turn = (): PoolTurn => {
      if (random.chance(0.4)) return this.#windowTurn(member);
      const pool = random.pick(pools);
      const { granted = 0, spent = 0 } = this.state.api(apiId).pools.get(pool)?.holders.get(member) ?? {};
      return {
        ...{ pool, turn: random.chance(0.9) ? ++this.#turns : random.whole(1, this.#turns + 1) },
        spent: random.chance(0.3) ? undefined : random.chance(0.8) ? random.whole(spent, granted) : spent - 1,
        ...{ kept: 0, needs: this.#needs(), slice: random.pick([0, 1, 5]) },
      };
    };
    const turns = random.chance(0.5) ? [turn()] : [turn(), turn()];
    // How long ago somebody was asked, and how long a window lasts, are other matters than what is answered.
    const timeless = (replies: readonly PoolReply[]) =>
      replies.map(({ window, ...reply }) => ({
        ...reply,
        refillMs: Math.sign(reply.refillMs),
        status: TIMELESS[reply.status] ?? reply.status,
        ...(window ? { window: { ...window, leftMs: 0 } } : {}),
      }));
    return {
      name: `exchange ${member} ${JSON.stringify(turns)}`,
      ask: async () => timeless(await real.directory.exchange(apiId, member, turns)),
      simulated: (state) => {
        const { reply, ...rest } = state.exchange(apiId, member, turns, Date.now());
        return { ...rest, reply: timeless(reply) };
      },
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
    const { granted = 0, spent = 0 } = this.state.api(this.apiId).window(pool).holders.get(member) ?? {};
    const said = random.chance(0.3)
      ? undefined
      : random.chance(0.8)
        ? random.whole(spent, granted)
        : spent - 1;
    const number = random.chance(0.1) ? undefined : windowNumber() - random.pick([0, 0, 0, 0, 0, 1]);
    const limit = random.pick([1, 20, 100]);
    return {
      ...{ pool, turn: random.chance(0.9) ? ++this.#turns : random.whole(1, this.#turns + 1), spent: said },
      kept: said === undefined || said < spent ? 0 : random.whole(0, granted - said),
      ...{ needs: this.#needs(), slice: random.pick([0, 1, 5]) },
      window: { limit, durationMs: DURATION_MAX_MS, number },
    };
  }

  /** A limit of which much was used in the window before this one. */
  #usedBefore(): Act {
    const [random, { apiId }, name] = [this.#random, this, this.#random.pick(WINDOWS)];
    const before = random.pick([0, 5, 50, 500]);
    return {
      name: `of ${name} ${before} were used before`,
      ask: async () => {
        const key = windowKey(apiId, name);
        await (await nodes.connection(key)).hset(key, { n: windowNumber(), p: before });
      },
      simulated: (state) => {
        Object.assign(state.api(apiId).window(name), { number: windowNumber(), before });
        return { reply: undefined, wrote: true };
      },
    };
  }

  #settle(): Act {
    const [{ apiId }, keyId] = [this, this.#key()];
    return {
      name: `settle ${keyId}`,
      ask: () => real.credits.isSettled(apiId, keyId),
      simulated: (state) => state.settleCredits(apiId, keyId, Date.now()),
    };
  }

  #sync(): Act {
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
    return {
      name: `sync ${JSON.stringify(request)}`,
      ask: async () => (await real.directory.open(apiId)).sync(request),
      simulated: (state) => state.sync(apiId, request),
    };
  }

  #register(): Act {
    const [{ apiId }, member] = [this, this.#member()];
    return {
      name: `register ${member}`,
      ask: async () => {
        const session = await real.directory.open(apiId);
        return session
          .register(member, 'n')
          .catch((error: Error) => void expect(error.message).toContain('too old'));
      },
      simulated: (state) => state.register(apiId, member, 'n'),
    };
  }

  #check(): Act {
    const { sequence, hash } = this.#place();
    const names = this.#random.pick([0, 1, 100]);
    const known = this.#random.chance(0.7) ? hash : '';
    const { hash: laterHash, sequence: laterSequence } = this.#place();
    const later = this.#random.chance(0.3) ? { later: { sequence: laterSequence, hash: laterHash } } : {};
    const asked = { apiId: this.apiId, sequence, hash: known, keyId: this.#key(), replicated: false, names };
    const change = { ...asked, ...later };
    return {
      name: `check ${JSON.stringify(change)}`,
      ask: () => real.log.check(change),
      simulated: (state) => state.check(change),
    };
  }

  #close(): Act {
    const [{ apiId }, { sequence, hash }] = [this, this.#place()];
    let kill = -1; // drawn by the real one
    const server = this.#random.pick([real.server, real.server, real.server, '', 'f'.repeat(40)]);
    return {
      name: `close ${sequence} ${hash} ${server}`,
      ask: async () => {
        const closing = await real.log.close(apiId, { sequence, hash, server });
        if (closing.state === 'INTACT') kill = closing.killed[0]?.kill ?? -1;
        return closing;
      },
      simulated: (state) => state.close(apiId, sequence, hash, kill, server === real.server),
    };
  }

  #lag(): Act {
    const { apiId } = this;
    return { name: 'lag', ask: () => real.log.lag(apiId), simulated: (state) => state.lag(apiId) };
  }

  #reapOrLeave(): Act {
    const [{ apiId }, member] = [this, this.#member()];
    if (this.#random.chance(0.3))
      return {
        name: `leave ${member}`,
        ask: async () => (await real.directory.open(apiId)).leave(member),
        simulated: (state) => state.leave(apiId, member),
      };
    if (this.#random.chance(0.2) && this.state.api(apiId).members.has(member)) return this.#oddScore(member);
    const kill = this.#random.chance(0.7) ? this.state.api(apiId).members.get(member) : undefined;
    const killed = [
      { name: member, kill: kill === undefined || kill >= 0 ? -1 : kill },
      { name: 'nobody', kill: -1 },
    ];
    return {
      name: `reap ${JSON.stringify(killed)}`,
      ask: () => real.log.reap(apiId, killed),
      simulated: (state) => state.reap(apiId, killed),
    };
  }

  /** As somebody may set by hand. */
  #oddScore(member: string): Act {
    const score = this.#random.pick([-Infinity, Infinity, 1e300, -0.5, 1.5]);
    const text = String(score).replace('Infinity', 'inf');
    const { members } = apiKeys(this.apiId);
    return {
      name: `the score of ${member} is ${text}`,
      ask: async () => void (await (await nodes.connection(members)).zadd(members, text, member)),
      simulated: (state) => {
        state.api(this.apiId).members.set(member, score);
        return { reply: undefined, wrote: true };
      },
    };
  }

  #create(): Act {
    const [{ apiId }, keyId] = [this, this.#key()];
    if (this.#random.chance(0.2) || !this.state.api(apiId).created)
      return {
        name: 'create the API',
        ask: () =>
          real.apis.create({ name: 'n', apiId }).then(
            () => true,
            () => false,
          ),
        simulated: (state) => state.createApi(apiId, LEASE_MS),
      };
    const [pointer, secretHash] = [secretPointer(`${apiId}-${keyId}`), `${apiId}-${keyId}`];
    if (this.#random.chance(0.3)) {
      const value = formatPointer(apiId, keyId);
      return {
        name: `point at ${keyId}`,
        ask: async () => (await real.writer.run(setPointer, [pointer], [value])).reply === value,
        simulated: (state) => state.point(pointer, value),
      };
    }
    const { head, index, creations, members } = apiKeys(apiId);
    const record = recordKey(apiId, keyId);
    const credits = this.#random.chance(0.5) ? this.#random.whole(0, 20) : undefined;
    const poolId = `pool-${keyId}`;
    const fields = { p: secretHash, e: '1', n: 'new', ...(credits === undefined ? {} : { q: poolId }) };
    const needs = this.#random.pick([1, 1, 1, 2]);
    const args = [
      keyId,
      NOW_MS,
      '0',
      LEASE_MS,
      '',
      '',
      '0',
      LIMITS.creationsKept,
      contentOf(keyId, fields),
      needs,
      '*',
      credits === undefined ? '' : JSON.stringify({ id: poolId, value: credits, refill: '' }),
      ...Object.entries(fields)
        .filter(([field]) => field !== 'q')
        .flat(),
    ];
    return {
      name: `create ${keyId}`,
      ask: async () => {
        const keys = [head, index, record, metaKey(apiId, keyId), record, creations, members];
        return (await real.writer.run(createKey, keys, args)).reply === 'OK';
      },
      simulated: (state) => state.createKey(apiId, keyId, fields, needs, credits),
    };
  }

  #lease(): Act {
    const { apiId } = this;
    const step = this.#random.pick(['fence-first', 'grant', 'fence-last'] as const);
    const [leaseMs, token] = [this.#random.pick([500, 1000, 2000]), this.#random.pick(['t1', 't2'])];
    return {
      name: `lease ${step} ${leaseMs} ${token}`,
      ask: () => real.upkeep.setLease(apiId, step, leaseMs, token),
      simulated: (state) => state.setLease(apiId, step, leaseMs, token),
    };
  }

  #trimOrFind(): Act {
    const [{ apiId }, secretHash] = [this, `${this.apiId}-${this.#key()}`];
    if (this.#random.chance(0.7))
      return {
        name: `find ${secretHash}`,
        ask: () => real.directory.lookUp(secretHash),
        simulated: (state) => {
          const [apiIdFound, keyId] = state.find(secretPointer(secretHash)).reply[1]?.split(' ') ?? [];
          return { reply: apiIdFound && { apiId: apiIdFound, keyId }, wrote: false };
        },
      };
    const length = this.#random.whole(0, 5);
    const what = this.#random.pick(['log', 'creations'] as const);
    return {
      name: `trim ${what} to ${length}`,
      ask: async () => {
        const stream = apiKeys(apiId)[what];
        await (await nodes.connection(stream)).xtrim(stream, 'MAXLEN', length);
      },
      simulated: (state) => {
        const api = state.api(apiId);
        api[what].splice(0, api[what].length - length);
        return { reply: undefined, wrote: true };
      },
    };
  }

  #sweep(): Act {
    const { apiId } = this;
    const step = this.#random.pick(['removeKeys', 'forget', 'head', 'head', 'head'] as const);
    return {
      name: step,
      ask: () => real.upkeep[step](apiId),
      simulated: (state) => state[step](apiId),
    };
  }
}

describe('the simulated Redis answers and publishes as the real one', () => {
  test.each(Array.from({ length: 25 }, (_, i) => i + 1))('to the acts of seed %i', async (seed) => {
    const acts = new Acts(seed);
    acts.state.server = real.server;
    const { channel } = apiKeys(acts.apiId);
    const [heard, expected]: [string[], string[]] = [[], []];
    const listener = await nodes.connection(channel, 'listener');
    const hear = (from: string, message: string) => from === channel && heard.push(message);
    listener.on('message', hear);
    await listener.subscribe(channel);
    const told: string[] = [];
    for (let i = 0; i < 150; i++) {
      const { name, ask, simulated } = acts.next();
      told.push(name);
      const [answer, { reply, messages = [] }] = [await ask(), simulated(acts.state)];
      expect(reply, told.slice(-8).join('\n')).toEqual(answer);
      expected.push(...messages);
    }
    await listener.unsubscribe(channel);
    listener.off('message', hear);
    expect(heard).toEqual(expected);
  });
});
