import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { ROOT, startedFrom } from './built.ts';
import { keepWords } from './last-words.ts';
import { HOLDS_MS_MAX } from './waiting.ts';

/** Variable by which processes find what Node compiled of them before: a start takes about half as long. */
export const COMPILED: Readonly<Record<string, string>> = process.env['NODE_COMPILE_CACHE']
  ? { NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] }
  : {};
const OUTPUT_CHARS_MAX = 100_000;

/** One of our processes, as it runs in production, that can be killed and started again at the same address. */
export class Process {
  readonly #file: 'control-plane/main.ts' | 'verifier/main.ts';
  readonly #env: Readonly<Record<string, string>>;
  #child: ChildProcess | undefined;
  #port: string;
  #adminPort = '0';
  address = '';
  adminAddress = '';
  /** The last of what it logged. */
  output = '';

  /** Where its code is; another release's from the next start on. */
  root: string;

  constructor(
    file: 'control-plane/main.ts' | 'verifier/main.ts',
    env: Readonly<Record<string, string>>,
    root = ROOT,
  ) {
    this.root = root;
    this.#file = file;
    this.#env = env;
    this.#port = env['PORT'] ?? '0';
  }

  /** Resolves when it listens: where it did before, or elsewhere where somebody took its ports meanwhile. */
  async start(): Promise<void> {
    try {
      await this.#launch();
    } catch (error) {
      if (this.#port === '0') throw error;
      [this.#port, this.#adminPort] = ['0', '0'];
      await this.#launch();
    }
  }

  async #launch(): Promise<void> {
    const env = {
      PATH: process.env['PATH'] ?? '',
      LOG_LEVEL: 'info',
      ...COMPILED,
      ...this.#env,
      PORT: this.#port,
      ADMIN_PORT: this.#adminPort,
    };
    const file = this.root === ROOT ? startedFrom(this.#file) : join(this.root, this.#file);
    const child = spawnBound(process.execPath, [file], env);
    this.#child = child;
    const listening = await new Promise<{ address: string; adminAddress: string }>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.#file} does not listen`)), HOLDS_MS_MAX);
      let rest = '';
      child.once('exit', (code) => reject(new Error(`${this.#file} ended with ${code}`)));
      child.stdout?.on('data', (chunk: Buffer) => {
        this.output = (this.output + chunk.toString()).slice(-OUTPUT_CHARS_MAX);
        const lines = (rest + chunk.toString()).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          keepWords(this.#file, line);
          const { address, adminAddress } = JSON.parse(line) as { address?: string; adminAddress?: string };
          if (!address || !adminAddress) continue;
          clearTimeout(timer);
          resolve({ address, adminAddress });
        }
      });
    });
    this.address = listening.address;
    this.adminAddress = listening.adminAddress;
    this.#port = new URL(this.address).port;
    this.#adminPort = new URL(this.adminAddress).port;
  }

  /** Its number; undefined where it was never started. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Resolves when it is gone, with its status; undefined where it ended by a signal or was not running. */
  async stop(signal: NodeJS.Signals): Promise<number | undefined> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return undefined;
    const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await exited;
    return child.exitCode ?? undefined;
  }
}
