// `npm run chaos`: real processes under real faults, every answer checked.

import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { numberArgument, scriptArguments, wrongArguments } from '../../deploy/dev/arguments.ts';
import { Process } from '../harness/processes.ts';
import { RedisCluster } from '../harness/redis-cluster.ts';
import { RedisNode, SentinelGroup } from '../harness/redis-nodes.ts';
import { scratch } from '../harness/scratch.ts';
import { Account } from './account.ts';
import { API_IDS, type Fault, faultsOf, type World } from './faults.ts';
import { History } from './history.ts';
import { FaultProxy } from './proxy.ts';

const ROOT_KEY = 'chaos-root-key-0123456789abcdef0123456789';
const VERIFIERS = 4;
const KEYS = 24;
const READERS = 12;
/** Credits that keys begin with: from some that end within moments to more than a run spends. */
const CREDITS = [20, 200, 2000, 200_000] as const;
const SPENDERS = 6;
const SPENDER_REST_MS_MAX = 20;
/** Between two calls of one caller: some 300 verifications and 80 changes a second leave processors to what is tested. */
const READER_REST_MS_MAX = 80;
const WRITER_REST_MS_MAX = 600;
const REST_MS = { min: 100, max: 700 } as const;
const HOLD_MS = { min: 100, max: 3500 } as const;
const RECOVERY_MS_MAX = 60_000;
/** Short, so that many leases run out in a minute. */
const TIMING = { LEASE_MS: '2000', SYNC_PERIOD_MS: '300', SYNC_DEADLINE_MS: '250', FENCE_WAIT_MS: '8000' };

const DEPLOYMENTS = ['single', 'sentinel', 'cluster'] as const;

/** Report of a run. Times in milliseconds. */
export interface Report {
  readonly deployment: (typeof DEPLOYMENTS)[number];
  readonly seed: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly counts: History['counts'];
  readonly stale: readonly string[];
  /** Accounts of keys that accepted more than was granted. */
  readonly overspent: readonly string[];
  readonly credits: Readonly<Record<'granted' | 'accepted' | 'exceeded' | 'rerolls', number>>;
  /** Reason why the run ended early; undefined = it did not. */
  readonly brokeOff: string | undefined;
  /** From the end of a fault until every verifier decided again and a change was complete by acks, by fault. */
  readonly recoveryMs: Readonly<Record<string, { median: number; max: number }>>;
}

/**
 * Runs one deployment under faults for `ms`, of every kind at least once that `takes` allows by its number. Rejects only
 * where it cannot begin, never for a stale answer.
 */
export async function chaos(
  deployment: Report['deployment'],
  ms: number,
  seed: number,
  takes: (kind: number) => boolean = () => true,
): Promise<Report> {
  const directory = scratch('chaos');
  const random = generator(seed);
  const history = new History();
  const stop: (() => Promise<unknown>)[] = [];
  const agent = new Agent({ connections: 64, headersTimeout: 15_000, bodyTimeout: 15_000 });
  try {
    const world = await build(deployment, directory, stop);
    const client = new Client(world, agent, history, random);
    await client.createKeys();
    await client.createAccounts();
    const running = { now: true };
    const work = [
      ...client.keys.map((key) => client.write(key, running)),
      ...Array.from({ length: READERS }, () => client.read(running)),
      ...client.accounts.map((account) => client.changeCredits(account, running)),
      ...Array.from({ length: SPENDERS }, () => client.spend(running)),
    ];
    const faults = faultsOf(world).filter((_, kind) => takes(kind));
    const injected: Record<string, number> = {};
    const recoveries: Record<string, number[]> = {};
    const endsAtMs = performance.now() + ms;
    let brokeOff: string | undefined;
    try {
      // A verifier that was never asked follows no API: nobody would wait for it, whatever befell it.
      await client.recovery();
      for (let i = 0; performance.now() < endsAtMs || i < faults.length; i++) {
        // Every kind once, then at random.
        const fault = faults[i < faults.length ? i : Math.floor(random() * faults.length)] as Fault;
        const undo = await fault.inject(random);
        await rest(HOLD_MS.min + random() * (HOLD_MS.max - HOLD_MS.min));
        await undo();
        injected[fault.name] = (injected[fault.name] ?? 0) + 1;
        recoveries[fault.name] ??= [];
        recoveries[fault.name]?.push(await client.recovery());
        await rest(REST_MS.min + random() * (REST_MS.max - REST_MS.min));
      }
    } catch (error) {
      // What was found until then is told all the same.
      brokeOff = error instanceof Error ? (error.stack ?? error.message) : String(error);
    }
    running.now = false;
    await Promise.all(work);
    const recoveryMs = Object.fromEntries(
      Object.entries(recoveries).map(([name, all]) => {
        const sorted = all.toSorted((a, b) => a - b);
        return [
          name,
          { median: Math.round(sorted[sorted.length >> 1] ?? 0), max: Math.round(sorted.at(-1) ?? 0) },
        ];
      }),
    );
    const { counts, stale } = history;
    const overspent = client.accounts.flatMap((account) => account.overspent);
    const sum = (of: (account: Account) => number) =>
      client.accounts.reduce((all, account) => all + of(account), 0);
    const credits = {
      granted: sum(({ total }) => total.granted),
      accepted: sum(({ total }) => total.accepted),
      exceeded: sum(({ exceeded }) => exceeded),
      rerolls: sum(({ rerolls }) => rerolls),
    };
    return { deployment, seed, faults: injected, counts, stale, overspent, credits, brokeOff, recoveryMs };
  } finally {
    await agent.destroy();
    for (const end of stop.reverse()) await end();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function build(
  deployment: Report['deployment'],
  directory: string,
  stop: (() => Promise<unknown>)[],
): Promise<World> {
  const { redis, sentinels, cluster, direct } = await buildRedis(deployment, directory, stop);
  const controlPlane = new Process('control-plane/main.ts', { ...TIMING, ...direct, ROOT_KEY });
  stop.push(() => controlPlane.stop('SIGKILL'));
  await controlPlane.start();
  const proxies: FaultProxy[] = [];
  const verifiers: Process[] = [];
  for (let i = 0; i < VERIFIERS; i++) {
    let settings: Record<string, string> = direct;
    if (redis) {
      const proxy = new FaultProxy(() => redis.port);
      stop.push(async () => proxy.close());
      proxies.push(proxy);
      settings = { REDIS_URL: `redis://127.0.0.1:${await proxy.listen()}` };
    }
    const verifier = new Process('verifier/main.ts', { ...TIMING, ...settings });
    stop.push(() => verifier.stop('SIGKILL'));
    verifiers.push(verifier);
    await verifier.start();
  }
  return { redis, sentinels, cluster, controlPlane, verifiers, proxies };
}

/** Redis as deployed, with the settings that lead to it. */
async function buildRedis(
  deployment: Report['deployment'],
  directory: string,
  stop: (() => Promise<unknown>)[],
): Promise<Pick<World, 'redis' | 'sentinels' | 'cluster'> & { direct: Record<string, string> }> {
  const none = { redis: undefined, sentinels: undefined, cluster: undefined };
  if (deployment === 'single') {
    const redis = await RedisNode.start(join(directory, 'redis'));
    stop.push(() => redis.stop());
    return { ...none, redis, direct: { REDIS_URL: redis.url } };
  }
  if (deployment === 'sentinel') {
    const sentinels = await SentinelGroup.start(directory);
    stop.push(() => sentinels.stop());
    const direct = { REDIS_URL: sentinels.url, REDIS_MODE: 'sentinel', REDIS_REPLICAS: '2' };
    return { ...none, sentinels, direct };
  }
  const cluster = await RedisCluster.start(directory, 1);
  stop.push(() => cluster.stop());
  return {
    ...none,
    cluster,
    direct: { REDIS_URL: cluster.url, REDIS_MODE: 'cluster', REDIS_REPLICAS: '1' },
  };
}

interface Key {
  readonly keyId: string;
  readonly key: string;
}

/** The callers: one writer a key, readers that ask every verifier about every key, and spenders of credits. */
class Client {
  readonly keys: Key[] = [];
  readonly accounts: Account[] = [];
  readonly #world: World;
  readonly #agent: Agent;
  readonly #history: History;
  readonly #random: () => number;

  constructor(world: World, agent: Agent, history: History, random: () => number) {
    this.#world = world;
    this.#agent = agent;
    this.#history = history;
    this.#random = random;
  }

  async createKeys(): Promise<void> {
    while (this.keys.length < KEYS) {
      // Two APIs, so that verifiers follow more than one.
      const answer = await this.#admin('keys.createKey', {
        apiId: API_IDS[this.keys.length % API_IDS.length],
        meta: { version: 0 },
      });
      if (answer?.status !== 200) continue;
      const { keyId, key } = answer.body as unknown as Key;
      this.#history.created(keyId);
      this.keys.push({ keyId, key });
    }
  }

  async createAccounts(): Promise<void> {
    while (this.accounts.length < CREDITS.length) {
      const remaining = CREDITS[this.accounts.length] ?? 0;
      const apiId = API_IDS[this.accounts.length % API_IDS.length];
      const answer = await this.#admin('keys.createKey', { apiId, remaining });
      if (answer?.status !== 200) continue;
      const { keyId, key } = answer.body as unknown as Key;
      this.accounts.push(new Account(keyId, key, remaining));
    }
  }

  /** Gives, takes off and sets, one after the other. */
  async changeCredits(account: Account, running: { now: boolean }): Promise<void> {
    while (running.now) {
      await rest(this.#random() * WRITER_REST_MS_MAX);
      if (this.#random() < 0.1) await this.#reroll(account, running);
      const { keyId } = account;
      const op = this.#random() < 0.2 ? 'set' : this.#random() < 0.7 ? 'increment' : 'decrement';
      const value = Math.floor(this.#random() * 50);
      if (op !== 'decrement') account.grant(value);
      const answer = await this.#admin('keys.updateRemaining', { keyId, op, value });
      const { state } = (answer?.body['propagation'] ?? {}) as { state?: string };
      if (answer?.status === 200 && op === 'set' && state === 'complete') account.replaced(value);
    }
  }

  /** Sends the same again until there is an answer, as the caller does who has none. */
  async #reroll(account: Account, running: { now: boolean }): Promise<void> {
    const { keyId } = account;
    const expiration = this.#random() < 0.7 ? 0 : 600_000;
    const operationId = randomUUID();
    while (running.now) {
      const answer = await this.#admin('keys.rerollKey', { keyId, expiration, operationId });
      const {
        keyId: made,
        key,
        propagation,
      } = (answer?.body ?? {}) as Partial<Key> & {
        propagation?: { state: string };
      };
      if (answer?.status === 200 && made && key)
        return account.rerolled(made, key, expiration === 0 && propagation?.state === 'complete');
      await rest(50);
    }
  }

  async spend(running: { now: boolean }): Promise<void> {
    while (running.now) {
      await rest(this.#random() * SPENDER_REST_MS_MAX);
      const account = this.accounts[Math.floor(this.#random() * this.accounts.length)];
      const verifier = this.#world.verifiers[Math.floor(this.#random() * VERIFIERS)];
      if (!account || !verifier) continue;
      const spending = account.begin(1 + Math.floor(this.#random() * 3), this.#random());
      const question = { key: spending.key, remaining: { cost: spending.cost } };
      const answer = await this.#post(`${verifier.address}/v1/keys.verifyKey`, question, {});
      const { code } = (answer?.body ?? {}) as { code?: string };
      if (code === 'VALID') account.accepted(spending, verifier.address);
      else if (code === 'USAGE_EXCEEDED') account.exceeded++;
      else await rest(20);
    }
  }

  async write({ keyId }: Key, running: { now: boolean }): Promise<void> {
    while (running.now) {
      await this.#update(keyId);
      await rest(this.#random() * WRITER_REST_MS_MAX);
    }
  }

  async read(running: { now: boolean }): Promise<void> {
    while (running.now) {
      const key = this.keys[Math.floor(this.#random() * this.keys.length)];
      const verifier = this.#world.verifiers[Math.floor(this.#random() * VERIFIERS)];
      if (key && verifier) await this.#verify(key, verifier);
      await rest(this.#random() * READER_REST_MS_MAX);
    }
  }

  /** Time until every verifier decides again and a change is complete by acks, milliseconds. */
  async recovery(): Promise<number> {
    const startedAtMs = performance.now();
    const [key] = this.keys;
    if (!key) throw new Error('there are no keys');
    const within = () => {
      if (performance.now() - startedAtMs > RECOVERY_MS_MAX)
        throw new Error(`no recovery within ${RECOVERY_MS_MAX} ms`);
    };
    for (const verifier of this.#world.verifiers) {
      while (!(await this.#verify(key, verifier))) {
        within();
        await rest(20);
      }
    }
    for (;;) {
      const probe = await this.#admin('keys.createKey', { apiId: API_IDS[0] });
      const { keyId } = (probe?.status === 200 ? probe.body : {}) as Partial<Key>;
      const update = keyId ? await this.#admin('keys.updateKey', { keyId, enabled: false }) : undefined;
      const propagation = update?.body['propagation'] as { by?: string } | undefined;
      if (propagation?.by === 'acks') return performance.now() - startedAtMs;
      within();
    }
  }

  async #update(keyId: string): Promise<void> {
    const enabled = this.#random() < 0.5;
    const write = this.#history.begin(keyId, enabled);
    const answer = await this.#admin('keys.updateKey', { keyId, enabled, meta: { version: write.version } });
    if (answer?.status !== 200) return this.#history.ended(keyId, write, 'unknown');
    const { state, by } = answer.body['propagation'] as {
      state: 'complete' | 'pending';
      by?: 'acks' | 'fence';
    };
    this.#history.ended(keyId, write, state, by);
  }

  /** Tells whether it decided. */
  async #verify({ keyId, key }: Key, verifier: Process): Promise<boolean> {
    const floor = this.#history.floor(keyId);
    const answer = await this.#post(`${verifier.address}/v1/keys.verifyKey`, { key }, {});
    if (answer?.status !== 200) {
      this.#history.counts.refused++;
      if (!answer) await rest(20);
      return false;
    }
    const { code, meta } = answer.body as { code: string; meta?: { version: number } };
    this.#history.answered(keyId, floor, code, meta?.version ?? -1, verifier.address);
    return true;
  }

  #admin(operation: string, body: object) {
    const headers = { authorization: `Bearer ${ROOT_KEY}` };
    return this.#post(`${this.#world.controlPlane.address}/v1/${operation}`, body, headers);
  }

  /** undefined where there was no answer at all. */
  async #post(url: string, body: object, headers: Record<string, string>) {
    try {
      const response = await request(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
        dispatcher: this.#agent,
      });
      return { status: response.statusCode, body: (await response.body.json()) as Record<string, unknown> };
    } catch {
      return undefined;
    }
  }
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Mulberry32: small, and the same for the same seed. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const USAGE = `npm run chaos -- [--minutes N] [--deployment NAME]… [--seed S]

Runs one control plane and ${VERIFIERS} verifiers on real Redis servers, kills, pauses and cuts them off at random, and
compares every answer with what was written, and what keys with credits were accepted for with what was
granted. Prints a report; status 1 where an answer was stale, more was accepted, or the run broke off.

  --minutes N         for each deployment, at least every fault once (default 1)
  --deployment NAME   ${DEPLOYMENTS.join(', ')}; may be repeated (default: each, one after the other)
  --seed S            chooses the faults (default: random); the timing of processes stays their own`;

if (import.meta.main) {
  const { values } = scriptArguments(USAGE, {
    options: {
      minutes: { type: 'string', default: '1' },
      deployment: { type: 'string', multiple: true, default: [...DEPLOYMENTS] },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
    },
  });
  const minutes = numberArgument('minutes', values.minutes, 0, USAGE);
  const seed = numberArgument('seed', values.seed, 0, USAGE);
  const chosen = DEPLOYMENTS.filter((name) => values.deployment.includes(name));
  const unknown = values.deployment.find((name) => !chosen.some((each) => each === name));
  if (unknown !== undefined) wrongArguments(`--deployment: there is no ${unknown}`, USAGE);
  for (const deployment of chosen) {
    const report = await chaos(deployment, minutes * 60_000, seed);
    console.log(JSON.stringify(report, undefined, 2));
    if (report.stale.length + report.overspent.length > 0 || report.brokeOff !== undefined)
      process.exitCode = 1;
  }
}
