import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import type { Pool } from '../../shared/metering/pool.ts';
import { creditCounts, Pools } from '../../shared/metering/pools.ts';
import { RedisExchanges } from '../../shared/metering/redis-exchanges.ts';
import { instant, pause, systemClock } from '../../shared/process/clock.ts';
import { loadConfig } from '../../shared/process/load-config.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisDirectory } from '../../shared/protocol/follower/session.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { redisLimits, redisSettings } from '../../shared/redis/redis-settings.ts';
import { IpRanges, rangesText } from '../../shared/rules/ip-ranges.ts';
import { type Benchmark, inDirectory, median, pin, type Row } from '../harness.ts';
import { cpuSeconds, interleave, LOAD_CORE, type Loads, SERVER_CORE, verifyRequest } from '../load/load.ts';
import { redisCpuOf } from '../redis-cpu.ts';
import {
  type Backend,
  type BenchVerifier,
  inParallel,
  startBackend,
  startVerifier,
  warm,
} from '../servers.ts';
import { startPeer } from '../start-peers.ts';
import { CREDITS_SLICE_MS } from '../verifier-options.ts';

/** Number of keys of each kind. */
const KEYS = 100;
const HOUR_MS = 3_600_000;
const MANY = 1_000_000_000;
const ratelimit = { limit: MANY, duration: HOUR_MS };
/** Each of their refusals is noted for `keys.listRefusals`. */
const REFUSED = 'disabled keys, which are refused';
/** The fields of each kind of keys, besides plain keys. */
const SLICED = 'with credits and a rate limit, from slices';
const ASKED = 'with a rate limit that asks Redis each time';
const KINDS = {
  [SLICED]: { remaining: MANY, ratelimit },
  [ASKED]: { ratelimit: { ...ratelimit, async: false } },
  [REFUSED]: { enabled: false },
};
const PLAIN = 'plain keys';
/** Number of keys in constant use, and the fields of those whose CPU time is compared with that of plain keys. */
const HOT = [100, 10_000];
const HOT_KINDS = {
  'with credits': { remaining: MANY },
  'with a rate limit': { ratelimit },
  'with credits and a rate limit': { remaining: MANY, ratelimit },
};
const PEER = 'Fastify + one Redis script';

const FLEET = { verifiers: 10, keys: 1000, callsPerSecond: 20 };

/** Measures the cost of credits and rate limits when answered from memory, when not, and for Redis. */
const limits: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const [rounds, seconds] = quick ? [3, 1] : [7, 2];
    const backend = await startBackend(directory, KEYS);
    const stops: (() => Promise<void>)[] = [() => backend.stop()];
    try {
      pin(backend.redisPid, SERVER_CORE);
      const verifier = await startVerifier(backend);
      stops.push(() => verifier.stop());
      const { port } = verifier;
      const contenders = [{ name: PLAIN, port, keys: backend.keys }];
      for (const [name, fields] of Object.entries(KINDS))
        contenders.push({ name, port, keys: await made(backend, fields) });
      for (const { name, keys } of contenders)
        await warm(verifier, keys, name === REFUSED ? 'DISABLED' : 'VALID');
      const file = join(directory, 'peer-keys.txt');
      writeFileSync(file, backend.keys.join('\n'));
      const peer = await startPeer(PEER, 'fastify-script.ts', file, backend.redisPath);
      stops.push(() => peer.stop());
      contenders.push({ name: PEER, port: peer.port, keys: backend.keys });
      const loads = await interleave(
        contenders.map(({ keys, ...rest }) => ({ ...rest, requests: keys.map(verifyRequest) })),
        rounds,
        seconds,
        1, // keys that were not verified for 2 s have no slices
      );
      return {
        title: 'Credits and rate limits',
        about: `verifyKey with ${KEYS} keys of each kind over 32 connections. Each server shares core ${SERVER_CORE} with Redis, and the load generator runs on the other core. Medians of ${rounds} rounds of ${seconds} s, in turns. In the rows about CPU time, Redis runs on the other core. A slice is an amount of credits or uses that a verifier holds in advance. An exchange reports what was spent of a slice and takes more. The last row has ${FLEET.verifiers} verifiers in one process, without HTTP. Each of them answers for ${FLEET.keys.toLocaleString('en')} keys, ${FLEET.callsPerSecond} times per second for each key.`,
        rows: [
          ...[...loads].map(([name, load]) => loadRow(name, load)),
          ratioRow(loads, ASKED, PEER, 1),
          ratioRow(loads, REFUSED, PLAIN, 0.9),
          ...(await cpuRows(backend, verifier, quick)),
          ...(await holdRows(backend, verifier, quick)),
          ...(await exchanges(backend, quick ? 4 : 15)),
          ...rangeRows(quick ? 200_000 : 1_000_000),
        ],
      };
    } finally {
      for (const stop of stops.reverse()) await stop();
    }
  });

/** Compares the CPU time of requests that are paid from slices with that of plain keys. */
async function cpuRows(backend: Backend, verifier: BenchVerifier, quick: boolean): Promise<Row[]> {
  pin(backend.redisPid, LOAD_CORE);
  const rows: Row[] = [];
  for (const count of HOT) {
    const contenders = [];
    for (const [name, fields] of Object.entries({ [PLAIN]: {}, ...HOT_KINDS })) {
      const keys = await made(backend, fields, count);
      await warm(verifier, keys);
      contenders.push({ name, port: verifier.port, pid: verifier.pid, requests: keys.map(verifyRequest) });
    }
    // Slices fit the demand some seconds after it begins, and go back 2 s after it ends.
    const loads = await interleave(contenders, quick ? 1 : 3, 3, 6);
    const plain = loads.get(PLAIN);
    const keys = `${count.toLocaleString('en')} keys in use`;
    for (const [name, { cpuUs = Number.NaN }] of loads) {
      const ratio = (plain?.cpuUs ?? Number.NaN) / cpuUs;
      const value = `${cpuUs.toFixed(1)} µs of CPU per request`;
      if (name === PLAIN) rows.push({ name: `${keys}, plain`, value });
      else
        rows.push({
          ...{ name: `${keys}, ${name}`, value: `${value} (plain ÷ it: ${ratio.toFixed(2)} ×)` },
          ...{ target: '≥ 0.9 ×', met: ratio >= 0.9 },
        });
    }
  }
  return rows;
}

async function made(backend: Backend, fields: object, count = KEYS): Promise<string[]> {
  const keys: string[] = [];
  await inParallel(count, async () => {
    const { key } = await backend.call('keys.createKey', { apiId: 'bench', ...fields });
    if (key === undefined) throw new Error('not created');
    keys.push(key);
  });
  return keys;
}

/** Compares the CPU time of a verification with a hold and its release with that of a verification of a plain key. */
async function holdRows(backend: Backend, { port, pid }: BenchVerifier, quick: boolean): Promise<Row[]> {
  const fields = { remaining: MANY, concurrency: [{ name: 'jobs', limit: 100_000 }] };
  const kinds = { [PLAIN]: await made(backend, {}), [HELD]: await made(backend, fields) };
  const cpuUs: Record<string, number[]> = { [PLAIN]: [], [HELD]: [] };
  for (let round = -1; round < (quick ? 3 : 7); round++)
    for (const [name, keys] of Object.entries(kinds)) {
      const before = cpuSeconds(pid);
      const times = await askInTurn(port, keys, name === HELD, quick ? 2000 : 4000);
      if (round >= 0) cpuUs[name]?.push(((cpuSeconds(pid) - before) * 1e6) / times);
    }
  const [plain, held] = [median(cpuUs[PLAIN] ?? []), median(cpuUs[HELD] ?? [])];
  const value = `${held.toFixed(1)} µs of CPU (÷ ${plain.toFixed(1)} µs of a plain key: ${(held / plain).toFixed(2)} ×)`;
  return [{ name: HELD, value, target: '≤ 2.2 ×', met: held / plain <= 2.2 }];
}

const HELD = 'a hold of credits and a place, from slices, and its release';

/** Asks over 32 connections, one request after the other on each. Resolves with how many verifications there were. */
async function askInTurn(
  port: number,
  keys: readonly string[],
  holds: boolean,
  forMs: number,
): Promise<number> {
  const endsAtMs = performance.now() + forMs;
  let times = 0;
  const ask = async (at: number) => {
    const socket = connect(port, '127.0.0.1');
    const post = (path: string, body: string): Promise<string> => {
      socket.write(
        `POST /v1/${path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      // An answer is shorter than a packet.
      return new Promise((resolve) => socket.once('data', (bytes) => resolve(bytes.toString('latin1'))));
    };
    for (let i = at; performance.now() < endsAtMs; i++, times++) {
      const answer = await post(
        'keys.verifyKey',
        `{"key":"${keys[i % keys.length]}"${holds ? ',"hold":{"credits":10}' : ''}}`,
      );
      if (!answer.includes('"code":"VALID"')) throw new Error(answer);
      if (!holds) continue;
      const [, id] = /"hold":\{"id":"([^"]+)"/.exec(answer) ?? [];
      const released = await post('keys.release', `{"hold":"${id}","cost":7}`);
      if (!released.includes('"charged":7')) throw new Error(released);
    }
    socket.destroy();
  };
  await Promise.all(Array.from({ length: 32 }, (_, at) => ask(at)));
  return times;
}

/** Measures an address that is in none of 50 ranges: the longest comparison. */
function rangeRows(times: number): Row[] {
  const rows = [
    ['IPv4', Array.from({ length: 50 }, (_, i) => `10.${i}.0.0/16`), '192.0.2.1'],
    ['IPv6', Array.from({ length: 50 }, (_, i) => `2001:db8:${i.toString(16)}::/48`), '2001:db8:ffff::1'],
  ] as const;
  return rows.map(([name, list, address]) => {
    const ranges = new IpRanges(rangesText(list));
    const rounds = Array.from({ length: 7 }, () => {
      const startedAtMs = performance.now();
      for (let i = 0; i < times; i++) if (ranges.has(address)) throw new Error('not in the list');
      return ((performance.now() - startedAtMs) * 1000) / times;
    });
    const us = median(rounds);
    const row = { name: `an address of ${name} in none of 50 ranges`, value: `${us.toFixed(2)} µs` };
    return { ...row, target: '≤ 1 µs', met: us <= 1 };
  });
}

const loadRow = (name: string, { requestsPerSecond, p50, p99 }: Loads): Row => ({
  name,
  value: `${Math.round(requestsPerSecond).toLocaleString('en')} requests/s, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`,
});

function ratioRow(loads: ReadonlyMap<string, Loads>, ours: string, theirs: string, least: number): Row {
  const others = loads.get(theirs)?.each ?? [];
  const ratio = median((loads.get(ours)?.each ?? []).map((each, i) => each / (others[i] ?? Number.NaN)));
  return {
    name: `${ours} ÷ ${theirs}`,
    value: `${ratio.toFixed(2)} ×`,
    target: `≥ ${least}`,
    met: ratio >= least,
  };
}

/** Measures the load that a fleet with many hot keys puts on Redis. */
async function exchanges(backend: Backend, seconds: number): Promise<Row[]> {
  const config = {
    ...redisLimits,
    ...loadConfig(redisSettings, { REDIS_URL: backend.env['REDIS_URL'] ?? '' }),
  };
  const nodes = new RedisNodes(config, systemClock, createLogger('verifier', 'silent'));
  const redis = new Redis({ path: backend.redisPath });
  try {
    const fleet = await HotFleet.start(nodes);
    await fleet.run(5000); // until each key has its slice
    const before = fleet.counts();
    const startedAtMs = performance.now();
    const { share } = await redisCpuOf(redis, () => fleet.run(seconds * 1000));
    const tookMs = performance.now() - startedAtMs;
    const after = fleet.counts();
    const [calls, waits] = [after.calls - before.calls, after.waits - before.waits];
    const rate = (count: number) => Math.round((count * 1000) / tookMs).toLocaleString('en');
    return [
      {
        name: `${FLEET.verifiers} verifiers × ${FLEET.keys.toLocaleString('en')} hot keys`,
        value: `${rate(calls)} calls/s, ${((100 * waits) / calls).toFixed(2)} % of which waited for Redis; ${rate(after.turns - before.turns)} exchanges/s, sent in ${rate(after.exchanges - before.exchanges)} calls/s to Redis, which used ${(share * 100).toFixed(1)} % of a core`,
      },
    ];
  } finally {
    redis.disconnect();
    await nodes.close();
  }
}

/** Verifiers without HTTP, all with the same hot keys. */
class HotFleet {
  readonly #credits = creditCounts();
  readonly #members: Pools[] = [];
  #turns = 0;
  #calls = 0;
  #waits = 0;

  static async start(nodes: RedisNodes): Promise<HotFleet> {
    const fleet = new HotFleet();
    const session = await new RedisDirectory(nodes, 0, systemClock).open('bench');
    const exchanges = new RedisExchanges(nodes, 0);
    for (let i = 0; i < FLEET.verifiers; i++) {
      const member = `2.bench-${i}`;
      await session.register(member, `nonce-${i}`);
      fleet.#members.push(
        new Pools(
          {
            exchanges: {
              awaitsReplicas: false,
              exchange: (apiId, name, turns) => {
                fleet.#turns += turns.length;
                return exchanges.exchange(apiId, name, turns);
              },
            },
            ...{ sliceMs: CREDITS_SLICE_MS, counts: fleet.#credits },
          },
          {
            ...{ apiId: 'bench', member, clock: systemClock },
            onBehind: () => undefined,
            isLive: () => true,
            position: () => 0,
          },
        ),
      );
    }
    return fleet;
  }

  /** Uses every key of every verifier at the rate of FLEET, for `ms` milliseconds. */
  async run(ms: number): Promise<void> {
    const periodMs = 1000 / FLEET.callsPerSecond;
    const endsAtMs = performance.now() + ms;
    for (let round = performance.now(); round < endsAtMs; round += periodMs) {
      for (const pools of this.#members) for (let key = 0; key < FLEET.keys; key++) this.#use(pools, key);
      await pause(systemClock, Math.max(1, round + periodMs - performance.now()));
    }
  }

  counts() {
    const [turns, calls, waits] = [this.#turns, this.#calls, this.#waits];
    return { turns, calls, waits, exchanges: this.#credits.exchanges };
  }

  #use(pools: Pools, key: number): void {
    const pool = pools.get(`hot-${key}.${HOUR_MS}.default`, WINDOW);
    this.#calls++;
    if (take(pool)) return;
    this.#waits++;
    pool.ask({ over: false, again: () => take(pool), fail: () => undefined }, 1);
  }
}

const WINDOW = { limit: MANY, durationMs: HOUR_MS, isExact: false };

function take(pool: Pool): boolean {
  const now = instant(systemClock);
  const isEnough = pool.look(1, now) === 'enough';
  if (isEnough) pool.take(1, now.monotonicMs);
  return isEnough;
}

export default limits;
