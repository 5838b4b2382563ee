import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { vi } from 'vitest';
import { freePort } from '../redis/nodes.ts';

const READY_MS_MAX = 10_000;
/** For the tests to look around; not part of what is deployed. */
const ADMIN = 'user admin on >admin ~* &* +@all';

/** A Redis as deploy/redis/start.sh starts it, with every password it knows of. */
export class OwnRedis {
  readonly folder = mkdtempSync(join(tmpdir(), 'keyfence-redis-'));
  readonly port: number;
  readonly #clients: Redis[] = [];
  #server: ChildProcess | undefined;

  private constructor(port: number) {
    this.port = port;
  }

  /** @param change what users.acl is made to say */
  static async start(change = (acl: string) => acl): Promise<OwnRedis> {
    const redis = new OwnRedis(await freePort());
    const files = join(redis.folder, 'files');
    cpSync(join(import.meta.dirname, '..', '..', 'deploy', 'redis'), files, { recursive: true });
    const acl = change(readFileSync(join(files, 'users.acl'), 'utf8'));
    writeFileSync(join(files, 'users.acl'), `${acl}\n${ADMIN}\n`);
    mkdirSync(join(redis.folder, 'data'));
    mkdirSync(join(redis.folder, 'secrets'));
    for (const user of ['control-plane', 'verifier', 'verifier-billing', 'admin']) {
      writeFileSync(join(redis.folder, 'secrets', `${user}-password`), `${user}\n`);
    }
    await redis.restart();
    return redis;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Starts it, again over the same data. */
  async restart(): Promise<void> {
    await this.#end();
    const env = {
      ...process.env,
      SECRETS: join(this.folder, 'secrets'),
      DATA: join(this.folder, 'data'),
      PORT: String(this.port),
    };
    const script = join(this.folder, 'files', 'start.sh');
    this.#server = spawn('sh', [script, '--bind', '127.0.0.1'], { env, stdio: 'ignore' });
    const probe = this.as('probe', { retryStrategy: () => 20 });
    await vi.waitFor(() => probe.ping(), { timeout: READY_MS_MAX, interval: 20 });
  }

  /** A connection of one of its users, whose password is its name. */
  as(username: string, options: object = {}): Redis {
    return this.connect({ username, password: username, ...options });
  }

  connect(options: object = {}): Redis {
    const client = new Redis({ port: this.port, enableReadyCheck: false, ...options });
    client.on('error', () => undefined); // the commands reject
    this.#clients.push(client);
    return client;
  }

  async stop(): Promise<void> {
    for (const client of this.#clients.splice(0)) client.disconnect();
    await this.#end();
    rmSync(this.folder, { recursive: true });
  }

  async #end(): Promise<void> {
    if (!this.#server || this.#server.exitCode !== null) return;
    const exited = once(this.#server, 'exit');
    this.#server.kill('SIGTERM');
    await exited;
  }
}
