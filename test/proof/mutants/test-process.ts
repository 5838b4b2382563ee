import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { FROM_SOURCES } from '../../harness/built.ts';
import type { Order, Outcome } from './host.ts';

/** A run of a test file: as it ended, or why it did not. `killed` is a signal that came from somebody else. */
export type Ran = Outcome | 'too slow';

/** A process that runs test files one by one, with all that these start. */
export class TestProcess {
  readonly #child: ChildProcess;
  /** Reason why the process ended; resolves with it, whenever asked. */
  readonly #ended: Promise<Outcome>;
  #hasEnded = false;

  private constructor(child: ChildProcess) {
    this.#child = child;
    const killAtExit = () => this.#kill();
    process.once('exit', killAtExit);
    this.#ended = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.#hasEnded = true;
        process.off('exit', killAtExit);
        resolve(signal ? { killed: signal } : { failed: `the process of the tests ended with ${code}` });
      });
    });
    // What cannot be sent is said by how the process ended.
    child.on('error', () => undefined);
  }

  /** Tells whether it can run nothing more. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Resolves when it takes orders, or has ended before it could. */
  static async start(root: string): Promise<TestProcess> {
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST')),
    );
    const child = fork(join(import.meta.dirname, 'host.ts'), {
      cwd: root,
      // What a mistake was planted in is not built: that would be of the sources before.
      env: { ...env, ...FROM_SOURCES },
      detached: true,
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const started = new TestProcess(child);
    const ready = new Promise<void>((resolve) => child.once('message', () => resolve()));
    await Promise.race([ready, started.#ended]);
    return started;
  }

  /** Runs one test file. After anything but a whole run, the process is of no more use and is to be stopped. */
  async run(order: Order, limitMs: number): Promise<Ran> {
    if (this.#hasEnded) return this.#ended;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'too slow'>((resolve) => {
      timer = setTimeout(resolve, limitMs, 'too slow');
    });
    const answered = new Promise<Outcome>((resolve) => this.#child.once('message', resolve));
    this.#child.send(order);
    const ran = await Promise.race([answered, this.#ended, late]);
    clearTimeout(timer);
    this.#child.removeAllListeners('message');
    return ran;
  }

  /** Kills it, and resolves when it is gone. */
  async stop(): Promise<void> {
    this.#kill();
    await this.#ended;
  }

  /** Its whole group: a test that hangs does not end by being asked. */
  #kill(): void {
    const { pid } = this.#child;
    if (pid !== undefined && !this.#hasEnded) process.kill(-pid, 'SIGKILL');
  }
}
