import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { spawnBound } from '../../deploy/dev/redis-server.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const START_MS_MAX = 30_000;
const OUTPUT_CHARS_MAX = 100_000;

/** One of our processes, as it runs in production, that can be killed and started again at the same address. */
export class Process {
  readonly #file: string;
  readonly #env: Readonly<Record<string, string>>;
  #child: ChildProcess | undefined;
  #port = '0';
  address = '';
  /** The last of what it logged. */
  output = '';

  constructor(file: 'control-plane/main.ts' | 'verifier/main.ts', env: Readonly<Record<string, string>>) {
    this.#file = file;
    this.#env = env;
  }

  /** Resolves when it listens. */
  async start(): Promise<void> {
    const env = {
      PATH: process.env['PATH'] ?? '',
      ADMIN_PORT: '0',
      LOG_LEVEL: 'info',
      ...this.#env,
      PORT: this.#port,
    };
    const child = spawnBound(process.execPath, [join(ROOT, this.#file)], env);
    this.#child = child;
    this.address = await new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.#file} does not listen`)), START_MS_MAX);
      let rest = '';
      child.once('exit', (code) => reject(new Error(`${this.#file} ended with ${code}`)));
      child.stdout?.on('data', (chunk: Buffer) => {
        this.output = (this.output + chunk.toString()).slice(-OUTPUT_CHARS_MAX);
        const lines = (rest + chunk.toString()).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          const { address } = JSON.parse(line) as { address?: string };
          if (!address) continue;
          clearTimeout(timer);
          resolve(address);
        }
      });
    });
    this.#port = new URL(this.address).port;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Resolves when it is gone. */
  async stop(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await exited;
  }
}
