import { write, writeSync } from 'node:fs';
import { systemClock } from '../lang/clock.ts';

/** Characters that wait at most, when nothing can be written. */
const WAITING_LENGTH_MAX = 1_048_576;
/** Longest wait for a reader that takes nothing more, milliseconds. */
const FULL_PIPE_MS = 100;

type Write = (fd: number, bytes: Buffer, done: (error: Error | null, written: number) => void) => void;

/**
 * A file or pipe that lines are written to while the process goes on. What it does not take, as when the disk is full or
 * the reader has gone, waits for the next line, and beyond a bound is lost: to fall silent is better than to stop
 * answering. (pino's own destination ends the process then, and on the way waits for ever for what it cannot write.)
 */
export class LogOutput {
  readonly #fd: number;
  readonly #write: Write;
  #waiting = '';
  /** The rest of the line that is being written. */
  #line: Buffer = Buffer.alloc(0);
  #busy = false;

  constructor(fd: number, writeTo: Write = write) {
    this.#fd = fd;
    this.#write = writeTo;
  }

  write(line: string): void {
    if (this.#waiting.length + line.length > WAITING_LENGTH_MAX) return;
    this.#waiting += line;
    this.#writeOn();
  }

  /** Writes at once as much as goes; for a process that is about to end. */
  flushSync(): void {
    try {
      // Skip lines that are being written: they would come twice.
      while (!this.#busy && this.#hasMore()) {
        this.#line = this.#line.subarray(writeSync(this.#fd, this.#line));
      }
    } catch {
      // There is nowhere to report this: the log itself has failed.
    }
  }

  #hasMore(): boolean {
    if (this.#line.length === 0) {
      this.#line = Buffer.from(this.#waiting);
      this.#waiting = '';
    }
    return this.#line.length > 0;
  }

  readonly #writeOn = (): void => {
    if (this.#busy || !this.#hasMore()) return;
    this.#busy = true;
    this.#write(this.#fd, this.#line, this.#afterWrite);
  };

  readonly #afterWrite = (error: NodeJS.ErrnoException | null, length: number): void => {
    this.#busy = false;
    if (error?.code === 'EAGAIN') systemClock.after(FULL_PIPE_MS, this.#writeOn);
    if (error) return;
    this.#line = this.#line.subarray(length);
    this.#writeOn();
  };
}
