import type { Socket } from 'node:net';
import { UNHANDLED } from '#shared/contract/unhandled-error.ts';
import { readBuffer, readIntoBuffer } from '#shared/lang/read-buffer.ts';
import type { Logger } from '#shared/process/log.ts';

/**
 * Passes the bytes of a socket to the lane. If an error is not handled, it ends the socket instead of the
 * process.
 */
export class Intake {
  readonly #socket: Socket;
  readonly #take: (bytes: Buffer) => void;
  readonly #log: Pick<Logger, 'error'>;
  #isClosed = false;

  /** @param take serves the bytes, and keeps at most a copy of them */
  constructor(socket: Socket, take: (bytes: Buffer) => void, log: Pick<Logger, 'error'>) {
    this.#socket = socket;
    this.#take = take;
    this.#log = log;
  }

  open(): void {
    if (readIntoBuffer(this.#socket, this.#read)) this.#socket.resume();
    else this.#socket.on('data', this.serve);
  }

  /** Stops serving bytes: from now on they reach the socket's listeners as usual. */
  close(): void {
    this.#isClosed = true;
    this.#socket.off('data', this.serve);
  }

  /** Serves bytes that arrive now or arrived earlier. */
  readonly serve = (bytes: Buffer): void => {
    try {
      this.#take(bytes);
    } catch (error) {
      this.giveUp(error);
    }
  };

  /** Logs the error and ends this connection only. */
  readonly giveUp = (err: unknown): void => {
    this.#log.error({ err }, UNHANDLED);
    this.#socket.destroy();
  };

  /** Serves the bytes at the start of the shared memory. */
  readonly #read = (length: number): boolean => {
    const bytes = readBuffer.subarray(0, length);
    if (this.#isClosed) return this.#socket.push(Buffer.from(bytes));
    this.serve(bytes);
    return true;
  };
}
