import type { Clock } from '../process/clock.ts';

/** Time for which a password without an end is used for new connections. */
const KEPT_MS = 60_000;
/** A password is not used when it ends so soon: the connection must still be opened with it. */
const SPARE_MS = 2000;
const RUN_MS_MAX = 5000;
const OUTPUT_BYTES_MAX = 65_536;

/** Runs a program; resolves with what it prints. Rejects if it fails, takes too long or prints too much. */
type RunProgram = (file: string, args: readonly string[]) => Promise<string>;

const runProgram = async (clock: Clock, file: string, args: readonly string[]): Promise<string> => {
  // Who has no such program does not pay for the module.
  const { spawn } = await import('node:child_process');
  return new Promise((resolve, reject) => {
    // A group of its own, so that nothing that it started outlives it.
    const child = spawn(file, args, { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
    const chunks: Buffer[] = [];
    let bytes = 0;
    let fault: string | undefined;
    const end = (reason: string) => {
      fault ??= reason;
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has ended.
      }
      child.stdout.destroy();
    };
    const timer = clock.after(RUN_MS_MAX, () => end(`no answer within ${RUN_MS_MAX / 1000} s`));
    child.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > OUTPUT_BYTES_MAX) end(`it printed more than ${OUTPUT_BYTES_MAX / 1024} KiB`);
      else chunks.push(chunk);
    });
    // What it prints may be a secret, so no error repeats any of it.
    child.on('error', ({ code }: NodeJS.ErrnoException) => {
      timer.cancel();
      reject(new Error(`it failed (${code})`));
    });
    child.on('close', (code, signal) => {
      timer.cancel();
      const reason = fault ?? (code === 0 ? undefined : `it failed (${code ?? signal})`);
      if (reason === undefined) resolve(Buffer.concat(chunks).toString());
      else reject(new Error(reason));
    });
  });
};

interface Password {
  readonly text: string;
  /** Time after which no new connection uses it, on the wall clock. */
  readonly untilMs: number;
}

/** Passwords that a program prints, such as tokens of a cloud that end after minutes. */
export class PasswordCommand {
  readonly #file: string;
  readonly #args: readonly string[];
  readonly #clock: Clock;
  readonly #run: RunProgram;
  #present: Password | undefined;
  #running: Promise<Password> | undefined;

  /** @param command the program and its arguments, with blanks in between; no shell reads it */
  constructor(
    command: string,
    clock: Clock,
    run: RunProgram = (file, args) => runProgram(clock, file, args),
  ) {
    const [file = '', ...args] = command.trim().split(/\s+/);
    this.#file = file;
    this.#args = args;
    this.#clock = clock;
    this.#run = run;
  }

  /**
   * Resolves with a password for a new connection. Those who ask meanwhile share one run of the program. Rejects if it prints none.
   * @param refused the password that Redis has refused; it is not used again unless the program prints it again
   */
  async password(refused?: string): Promise<string> {
    const present = this.#present;
    if (present && present.text !== refused && this.#clock.wallMs() < present.untilMs) return present.text;
    this.#running ??= this.#print().finally(() => {
      this.#running = undefined;
    });
    this.#present = await this.#running;
    return this.#present.text;
  }

  async #print(): Promise<Password> {
    try {
      const output = await this.#run(this.#file, this.#args);
      return passwordIn(output.split(/\r?\n/, 1)[0] ?? '', this.#clock.wallMs());
    } catch (error) {
      throw new Error(`REDIS_PASSWORD_COMMAND: ${(error as Error).message}`);
    }
  }
}

/** Reads the first line that a program printed. Throws a sentence that repeats nothing of it. */
function passwordIn(line: string, nowMs: number): Password {
  if (line === '') throw new Error('must print the password in its first line');
  if (!line.startsWith('{')) return { text: line, untilMs: nowMs + KEPT_MS };
  let fields: { readonly password?: unknown; readonly expiresAt?: unknown };
  try {
    fields = JSON.parse(line);
  } catch {
    throw new Error('printed a line that begins with { but is not JSON');
  }
  const { password, expiresAt } = fields;
  const endsMs = typeof expiresAt === 'string' ? Date.parse(expiresAt) : expiresAt;
  if (typeof password !== 'string' || password === '') throw new Error('password: must be a text, not empty');
  if (typeof endsMs !== 'number' || !Number.isFinite(endsMs))
    throw new Error('expiresAt: must be Unix milliseconds, or a time of ISO 8601');
  return { text: password, untilMs: endsMs - SPARE_MS };
}
