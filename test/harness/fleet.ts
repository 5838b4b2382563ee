import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { Agent, type Dispatcher, request } from 'undici';
import { type ControlPlane, startControlPlane } from '../../control-plane/app.ts';
import { OPERATION_KINDS } from '../../control-plane/clients/client/interface.ts';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { type Clock, systemClock } from '../../shared/process/clock.ts';
import { createLogger } from '../../shared/process/log.ts';
import { type RunningVerifier, startVerifier } from '../../verifier/app.ts';
import { controlPlaneConfig, verifierConfig } from './config.ts';
import { keepWords } from './last-words.ts';
import { scratch } from './scratch.ts';
import { eventually, PATIENT } from './waiting.ts';

export const ROOT_KEY = 'test-root-key-0123456789abcdef0123456789';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly body: any;
}

type Env = Readonly<Record<string, string>>;
/** At which verifier a key is asked for, and with what besides. */
type Asked = { readonly at?: number } & Readonly<Record<string, unknown>>;

/** A private Redis, control planes and verifiers in this process, listening on ports of their own. */
export class Fleet {
  readonly directory = scratch('test');
  readonly controlPlanes: ControlPlane[] = [];
  readonly verifiers: RunningVerifier[] = [];
  /** Every line that any of the processes logged. */
  readonly logged: string[] = [];
  readonly #agent = new Agent({ connections: 50 });
  #redis: RedisServer | undefined;
  #client: Redis | undefined;
  #url = '';

  static async start(
    options: { verifiers?: number; env?: Env; redisUrl?: string; clock?: Clock } = {},
  ): Promise<Fleet> {
    const fleet = new Fleet();
    if (options.redisUrl) fleet.#url = options.redisUrl;
    else await fleet.startRedis();
    await fleet.addControlPlane(options.env, options.clock);
    for (let i = 0; i < (options.verifiers ?? 1); i++)
      await fleet.addVerifier(options.env, true, options.clock);
    return fleet;
  }

  get redis(): RedisServer {
    if (!this.#redis) throw new Error('this fleet has no Redis of its own');
    return this.#redis;
  }

  get redisUrl(): string {
    return this.#url;
  }

  /** A client of its Redis, which looks and meddles for a test. */
  get client(): Redis {
    this.#client ??= new Redis(this.#url.replace('unix://', ''));
    return this.#client;
  }

  /** Starts the fleet's Redis, or starts it again over the same data. */
  async startRedis(options: readonly string[] = []): Promise<void> {
    this.#redis = await startRedis(join(this.directory, 'redis'), options);
    this.#url = this.#redis.url;
  }

  async addControlPlane(env: Env = {}, clock: Clock = systemClock): Promise<ControlPlane> {
    const config = controlPlaneConfig({
      ...this.#env(env),
      ...(env['ROOT_KEY_FILE'] || env['ROOT_KEY'] ? {} : { ROOT_KEY }),
    });
    const controlPlane = await startControlPlane(config, clock, this.#log('control-plane'));
    this.controlPlanes.push(controlPlane);
    await this.until(async () => (await this.get(`${controlPlane.adminAddress}/readyz`)).status === 200);
    return controlPlane;
  }

  async addVerifier(
    env: Env = {},
    waitUntilReady = true,
    clock: Clock = systemClock,
  ): Promise<RunningVerifier> {
    const config = verifierConfig(this.#env(env));
    const verifier = await startVerifier(config, clock, this.#log('verifier'));
    this.verifiers.push(verifier);
    if (waitUntilReady) {
      await this.until(async () => (await this.get(`${verifier.adminAddress}/readyz`)).status === 200);
    }
    return verifier;
  }

  /** A call to a control plane: GET with a query, or POST with a body. */
  async admin(
    operation: string,
    input: object = {},
    options: { rootKey?: string; at?: number } = {},
  ): Promise<Answer> {
    const base = this.controlPlanes[options.at ?? 0]?.address ?? '';
    const headers = { authorization: `Bearer ${options.rootKey ?? ROOT_KEY}` };
    const kind = OPERATION_KINDS[operation as keyof typeof OPERATION_KINDS];
    if (kind !== 'query') return this.post(`${base}/v1/${operation}`, input, headers);
    const query = new URLSearchParams(input as Record<string, string>).toString();
    return this.get(`${base}/v1/${operation}?${query}`, headers);
  }

  /** As `admin`, and it must succeed. */
  async ok(operation: string, input: object = {}, options: { rootKey?: string; at?: number } = {}) {
    const answer = await this.admin(operation, input, options);
    if (answer.status !== 200)
      throw new Error(`${operation}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** Asks a verifier once, for whoever looks at what it answers while it cannot decide. */
  verifyOnce(key: string, { at = 0, ...fields }: Asked = {}): Promise<Answer> {
    return this.post(`${this.verifiers[at]?.address}/v1/keys.verifyKey`, { key, ...fields });
  }

  /** Asks a verifier, and again while it cannot decide yet, which callers must bear. */
  verify(key: string, options: Asked = {}): Promise<Answer> {
    return this.decided(() => this.verifyOnce(key, options));
  }

  /** Asks in any way, and again while the answer is 503. */
  async decided(ask: () => Promise<Answer>): Promise<Answer> {
    let answer = await ask();
    await this.until(async () => {
      if (answer.status !== 503) return true;
      answer = await ask();
      return false;
    });
    return answer;
  }

  /** The code of a verdict. */
  async verdict(key: string, options: Asked = {}): Promise<string> {
    return (await this.verify(key, options)).body.code;
  }

  post(url: string, body: object, headers: Env = {}): Promise<Answer> {
    return this.send(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  }

  get(url: string, headers: Env = {}): Promise<Answer> {
    return this.send(url, { method: 'GET', headers });
  }

  async send(
    url: string,
    options: { method: Dispatcher.HttpMethod; headers?: Env; body?: string | Buffer },
  ): Promise<Answer> {
    const { statusCode, headers, body } = await request(url, { ...options, dispatcher: this.#agent });
    const text = await body.text();
    keepWords('calls', `${options.method} ${url} ${options.body ?? ''}→ ${statusCode} ${text}`);
    const isJson = String(headers['content-type']).startsWith('application/json');
    return { status: statusCode, headers, body: isJson ? JSON.parse(text) : text };
  }

  /** Looks again and again until something holds, as long as `eventually`. */
  async until(holds: () => Promise<boolean> | boolean, what = 'it did not come to hold'): Promise<void> {
    await eventually(holds, what);
  }

  async stop(): Promise<void> {
    await Promise.all(this.verifiers.map((verifier) => verifier.stop()));
    await Promise.all(this.controlPlanes.map((controlPlane) => controlPlane.stop()));
    this.#client?.disconnect();
    await this.#redis?.stop();
    await this.#agent.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  #env(env: Env): Env {
    // A busy machine delays the event loop, too.
    const patient = { EVENT_LOOP_DELAY_MS_MAX: '0', ...PATIENT };
    const own = { REDIS_URL: this.#url, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'debug', LEASE_MS: '2000' };
    return { ...patient, ...own, ...env };
  }

  #log(process: 'control-plane' | 'verifier') {
    return createLogger(process, 'debug', {
      write: (line) => {
        this.logged.push(line);
        keepWords(process, line);
      },
    });
  }
}
