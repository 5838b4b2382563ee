import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { printPlainly } from './plain-log.ts';
import { spawnBound } from './redis-server.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const READY_MS_MAX = 60_000;
const POLL_MS = 100;
const STOP_MS_MAX = 15_000;

/** The processes of Keyfence that a command runs until Ctrl-C; their logs go to its output, in words for people. */
export class Processes {
  readonly #running: { name: string; child: ChildProcess; readyUrl: string }[] = [];
  readonly #fail: (message: string) => void;
  #isStopping = false;

  /** @param fail is called when one of them ends by itself. */
  constructor(fail: (message: string) => void) {
    this.#fail = fail;
  }

  run(name: string, file: string, settings: NodeJS.ProcessEnv & { ADMIN_PORT: string }): void {
    const child = spawnBound(process.execPath, [join(ROOT, file)], settings);
    if (child.stdout) printPlainly(child.stdout, name, console.log);
    this.#running.push({ name, child, readyUrl: `http://127.0.0.1:${settings.ADMIN_PORT}/readyz` });
    child.once('exit', (code) => !this.#isStopping && this.#fail(`the ${name} ended with status ${code}`));
  }

  /** Resolves when all are ready, or are to stop. Rejects after a minute. */
  async untilReady(): Promise<void> {
    const giveUpAtMs = performance.now() + READY_MS_MAX;
    for (const { name, readyUrl } of this.#running)
      while (!this.#isStopping) {
        const response = await fetch(readyUrl).catch(() => undefined);
        if (response?.ok) break;
        if (performance.now() > giveUpAtMs)
          throw new Error(`the ${name} is not ready after ${READY_MS_MAX} ms`);
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#running.map(({ child }) => untilExit(child)));
  }
}

async function untilExit(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
  await exit;
  clearTimeout(timer);
}
