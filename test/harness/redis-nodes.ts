import type { ChildProcess } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { freePort } from './ports.ts';
import { eventually } from './waiting.ts';

const COMMAND_MS_MAX = 5000;
const ATTEMPTS = 5;
const SAID_CHARS = 2000;

/** One redis-server process on a TCP port of its own, which keeps its data directory when started again. */
export class RedisNode {
  readonly port: number;
  readonly #directory: string;
  readonly #options: readonly string[];
  #process: ChildProcess | undefined;

  private constructor(port: number, directory: string, options: readonly string[]) {
    this.port = port;
    this.#directory = directory;
    this.#options = options;
  }

  static async start(directory: string, options: readonly string[] = [], port?: number): Promise<RedisNode> {
    mkdirSync(directory, { recursive: true });
    for (let attempt = 1; ; attempt++) {
      const node = new RedisNode(port ?? (await freePort()), directory, options);
      try {
        await node.restart();
        return node;
      } catch (error) {
        // Somebody else may have taken the port meanwhile.
        if (port !== undefined || attempt === ATTEMPTS) throw error;
      }
    }
  }

  /** A Sentinel that watches `mymaster` at `primary`. */
  static async startSentinel(directory: string, primary: number, quorum: number): Promise<RedisNode> {
    const port = await freePort();
    mkdirSync(directory, { recursive: true });
    const file = join(directory, 'sentinel.conf');
    const watch = `sentinel monitor mymaster 127.0.0.1 ${primary} ${quorum}\nsentinel down-after-milliseconds mymaster 600\nsentinel failover-timeout mymaster 3000\n`;
    writeFileSync(file, `port ${port}\ndir ${directory}\n${watch}`);
    const node = new RedisNode(port, directory, [file, '--sentinel']);
    await node.restart();
    return node;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  async restart(): Promise<void> {
    const isSentinel = this.#options.includes('--sentinel');
    const own = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.#directory, '--save', ''];
    const keep = ['--appendonly', 'yes', '--appendfsync', 'always'];
    const server = spawnBound(
      'redis-server',
      isSentinel ? this.#options : [...own, ...keep, ...this.#options],
    );
    this.#process = server;
    let said = '';
    server.stdout?.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-SAID_CHARS);
    });
    const ended = () => server.exitCode !== null || server.signalCode !== null;
    await this.until(async () => ended() || (await this.command('PING')) === 'PONG');
    if (ended()) throw new Error(`redis-server at ${this.port} ended:\n${said}`);
  }

  /** One command on a connection of its own. */
  async command(...args: string[]): Promise<unknown> {
    const redis = new Redis({
      port: this.port,
      lazyConnect: true,
      retryStrategy: () => null,
      maxRetriesPerRequest: 0,
      connectTimeout: COMMAND_MS_MAX,
      commandTimeout: COMMAND_MS_MAX,
    });
    redis.on('error', () => undefined); // the call below rejects
    try {
      await redis.connect();
      const [name = '', ...rest] = args;
      return await redis.call(name, ...rest);
    } finally {
      redis.disconnect();
    }
  }

  /** Looks again and again until something holds; failing to ask counts as not yet. */
  async until(holds: () => Promise<boolean>): Promise<void> {
    await eventually(holds, `Redis at ${this.port}: it did not come to hold`);
  }

  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  async stop(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const running = this.#process;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const exited = new Promise<void>((resolve) => running.once('exit', () => resolve()));
    running.kill('SIGCONT');
    running.kill(signal);
    await exited;
  }
}

/** A primary with replicas that all confirm writes, and three Sentinels. */
export class SentinelGroup {
  readonly nodes: RedisNode[] = [];
  readonly sentinels: RedisNode[] = [];

  static async start(directory: string, replicas = 2): Promise<SentinelGroup> {
    const group = new SentinelGroup();
    const safety = [
      '--min-replicas-to-write',
      '1',
      '--min-replicas-max-lag',
      '2',
      '--repl-diskless-sync-delay',
      '0',
      '--repl-ping-replica-period',
      '1',
    ];
    for (let i = 0; i <= replicas; i++) {
      const [primary] = group.nodes;
      const role = primary ? ['--replicaof', '127.0.0.1', String(primary.port)] : [];
      group.nodes.push(await RedisNode.start(join(directory, `node${i}`), [...safety, ...role]));
    }
    const [primary] = group.nodes;
    if (!primary) throw new Error('no primary');
    await primary.until(async () =>
      String(await primary.command('INFO', 'replication')).includes(`connected_slaves:${replicas}`),
    );
    for (let i = 0; i < 3; i++) {
      group.sentinels.push(await RedisNode.startSentinel(join(directory, `sentinel${i}`), primary.port, 2));
    }
    for (const sentinel of group.sentinels) {
      await sentinel.until(async () => {
        const info = String(await sentinel.command('INFO', 'sentinel'));
        return info.includes(`slaves=${replicas},sentinels=3`);
      });
    }
    return group;
  }

  get url(): string {
    return this.sentinels.map(({ url }) => url).join(',');
  }

  /** The node that the sentinels name as primary. */
  async primary(): Promise<RedisNode> {
    for (const sentinel of this.sentinels) {
      const address = await sentinel
        .command('SENTINEL', 'get-master-addr-by-name', 'mymaster')
        .catch(() => undefined);
      const node = Array.isArray(address)
        ? this.nodes.find(({ port }) => String(port) === address[1])
        : undefined;
      if (node) return node;
    }
    throw new Error('no sentinel knows a primary');
  }

  async stop(): Promise<void> {
    await Promise.all([...this.sentinels, ...this.nodes].map((node) => node.stop()));
  }
}
