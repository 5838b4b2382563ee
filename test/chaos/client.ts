import { randomUUID } from 'node:crypto';
import { type Agent, request } from 'undici';
import type { Process } from '../harness/processes.ts';
import { Account } from './account.ts';
import { ROOT_KEY, VERIFIERS } from './build.ts';
import { API_IDS, type World } from './faults.ts';
import type { History } from './history.ts';
import { Meter } from './meter.ts';

const KEYS = 24;
/** Credits that keys begin with: from some that end within moments to more than a run spends. */
const CREDITS = [20, 200, 2000, 200_000] as const;
const SPENDER_REST_MS_MAX = 20;
/** Between two calls of one caller: some 300 verifications and 80 changes a second leave processors to what is tested. */
const READER_REST_MS_MAX = 80;
const WRITER_REST_MS_MAX = 600;
const RECOVERY_MS_MAX = 60_000;
/** Far below what is asked for in a burst, and high enough for slices. */
const LIMITS = [
  { limit: 60, duration: 1000 },
  { limit: 120, duration: 2000 },
  { limit: 30, duration: 1500, async: false },
] as const;
const BURST_CALLERS = 3;
const BURST_REST_MS_MAX = 30;

interface Key {
  readonly keyId: string;
  readonly key: string;
}

/**
 * The callers: one writer a key, readers that ask every verifier about every key, spenders of credits, and those that use keys up
 * to their rate limits.
 */
export class Client {
  readonly keys: Key[] = [];
  readonly accounts: Account[] = [];
  readonly meters: Meter[] = [];
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

  async createMeters(): Promise<void> {
    while (this.meters.length < LIMITS.length) {
      const ratelimit = LIMITS[this.meters.length % LIMITS.length];
      if (!ratelimit) continue;
      const apiId = API_IDS[this.meters.length % API_IDS.length];
      const answer = await this.#admin('keys.createKey', { apiId, ratelimit });
      if (answer?.status !== 200) continue;
      const { keyId, key } = answer.body as unknown as Key;
      this.meters.push(new Meter(keyId, key, ratelimit.limit, ratelimit.duration));
    }
  }

  /**
   * Asks for more than the limit in bursts: after a rest the window before counts for little, so that verifiers have slices where
   * a window ends.
   */
  async use(meter: Meter, running: { now: boolean }): Promise<void> {
    while (running.now) {
      await rest(this.#random() * 1.5 * meter.durationMs);
      const burstEndsMs = performance.now() + this.#random() * 2 * meter.durationMs;
      const callers = Array.from({ length: BURST_CALLERS }, async () => {
        while (running.now && performance.now() < burstEndsMs) await this.#useOnce(meter);
      });
      await Promise.all(callers);
    }
  }

  async #useOnce(meter: Meter): Promise<void> {
    await rest(this.#random() * BURST_REST_MS_MAX);
    const verifier = this.#world.verifiers[Math.floor(this.#random() * VERIFIERS)];
    if (!verifier) return;
    const cost = this.#random() < 0.8 ? 1 : 3;
    const question = { key: meter.key, ratelimits: [{ name: 'default', cost }] };
    const sentMs = Date.now();
    const answer = await this.#post(`${verifier.address}/v1/keys.verifyKey`, question, {});
    const { code } = (answer?.body ?? {}) as { code?: string };
    if (code === 'VALID') meter.accepted({ sentMs, receivedMs: Date.now(), cost });
    else if (code === 'RATE_LIMITED') meter.limited++;
    else await rest(20);
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
