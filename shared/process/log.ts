import { write, writeSync } from 'node:fs';
import { type DestinationStream, type LoggerOptions, pino } from 'pino';
import { type Clock, systemClock } from './clock.ts';

/** Maximum number of characters that wait while the output accepts nothing. */
export const WAITING_LENGTH_MAX = 1_048_576;
/**
 * Time during which lines are gathered for one write, in milliseconds. With a write as soon as possible, the log took a
 * fifth of a control plane's CPU time under load.
 */
const TOGETHER_MS = 10;
/** Longest wait for a reader that accepts nothing more, in milliseconds. */
const FULL_PIPE_MS = 100;

type Write = (fd: number, bytes: Buffer, done: (error: Error | null, written: number) => void) => void;

/**
 * A file or pipe to which the process writes lines without waiting. If it does not accept a line, because the
 * disk is full or the reader has gone, the line waits for the next one. Beyond a bound, lines are lost: a
 * silent process is better than one that stops answering. (pino's own destination would end the process,
 * after waiting for ever for the lines that it cannot write.)
 */
export class LogOutput {
  readonly #fd: number;
  readonly #write: Write;
  readonly #clock: Pick<Clock, 'after'>;
  #waiting = '';
  /** The rest of the line that is being written. */
  #line: Buffer = Buffer.alloc(0);
  #busy = false;
  #isDue = false;

  constructor(fd: number, writeTo: Write = write, clock: Pick<Clock, 'after'> = systemClock) {
    this.#fd = fd;
    this.#write = writeTo;
    this.#clock = clock;
  }

  write(line: string): void {
    if (this.#waiting.length + line.length > WAITING_LENGTH_MAX) return;
    this.#waiting += line;
    this.#writeAfter(TOGETHER_MS);
  }

  /** Writes immediately as much as possible. For a process that is about to end. */
  flushSync(): void {
    try {
      // Skips a line that is being written, which would otherwise appear twice.
      while (!this.#busy && this.#hasMore()) {
        this.#line = this.#line.subarray(writeSync(this.#fd, this.#line));
      }
    } catch {
      // There is nowhere to report this, because the log itself has failed.
    }
  }

  #hasMore(): boolean {
    if (this.#line.length === 0) {
      this.#line = Buffer.from(this.#waiting);
      this.#waiting = '';
    }
    return this.#line.length > 0;
  }

  #writeAfter(ms: number): void {
    if (this.#busy || this.#isDue) return;
    this.#isDue = true;
    this.#clock.after(ms, this.#writeOn);
  }

  readonly #writeOn = (): void => {
    this.#isDue = false;
    if (this.#busy || !this.#hasMore()) return;
    this.#busy = true;
    this.#write(this.#fd, this.#line, this.#afterWrite);
  };

  readonly #afterWrite = (error: NodeJS.ErrnoException | null, length: number): void => {
    this.#busy = false;
    if (error?.code === 'EAGAIN') this.#writeAfter(FULL_PIPE_MS);
    if (error) return;
    this.#line = this.#line.subarray(length);
    if (this.#line.length > 0) this.#writeOn();
    else if (this.#waiting !== '') this.#writeAfter(TOGETHER_MS);
  };
}

/** The part of a logger that modules need. */
export type Logger = Pick<pino.Logger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'>;

const SECRETS = new Set(['key', 'secret', 'rootKey', 'password', 'authorization']);
const PLACEHOLDER = '[redacted]';

/**
 * Creates the process's logger, which writes JSON lines to standard output. It removes fields that could
 * contain a secret, wherever a careless caller puts them. No code here logs a request's headers or body.
 */
export function createLogger(
  process: 'control-plane' | 'verifier' | 'operator',
  level: string,
  destination: DestinationStream = standardOutput(),
): pino.Logger {
  const options: LoggerOptions = {
    level,
    base: { process },
    formatters: { log: (fields) => withoutSecrets(fields) },
    serializers: { err: (error: unknown) => withoutSecrets(withoutCommand(error)) },
    timestamp: isoTime,
  };
  const logger = pino(options, destination);
  const { child } = logger;
  // pino does not apply formatters to the fields that a child logs with each line.
  return Object.assign(logger, {
    child(this: pino.Logger, bindings: pino.Bindings, childOptions?: pino.ChildLoggerOptions): pino.Logger {
      return Reflect.apply(child, this, [withoutSecrets(bindings), childOptions]);
    },
  });
}

function standardOutput(): LogOutput {
  const output = new LogOutput(1);
  process.once('exit', () => output.flushSync());
  return output;
}

let time = { ms: 0, text: '' };

/** Returns the time of a line. Lines of the same millisecond share one text. */
function isoTime(): string {
  const ms = systemClock.wallMs();
  if (ms !== time.ms) time = { ms, text: `,"time":"${new Date(ms).toISOString()}"` };
  return time.text;
}

/**
 * Returns the fields, and their own fields, without those that could contain a secret. Written by hand,
 * because pino's own redaction costs 7 µs per line.
 */
function withoutSecrets(fields: Record<string, unknown>, isPart = false): Record<string, unknown> {
  let safe = fields;
  for (const [name, value] of Object.entries(fields)) {
    const safeValue = SECRETS.has(name)
      ? PLACEHOLDER
      : isPart || !isPlain(value)
        ? value
        : withoutSecrets(value, true);
    if (safeValue === value) continue;
    if (safe === fields) safe = { ...fields };
    safe[name] = safeValue;
  }
  return safe;
}

/** Returns true if a value is logged field by field. An Error is not, until it is serialized. */
const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !(value instanceof Error);

/**
 * Returns an error without the Redis command that ioredis attaches: the arguments of AUTH contain a password.
 */
function withoutCommand(error: unknown): Record<string, unknown> {
  if (typeof error !== 'object' || error === null) return { message: String(error) };
  const { command: _, ...rest } = pino.stdSerializers.err(error as Error) as object as Record<
    string,
    unknown
  >;
  return rest;
}
