import type { Socket } from 'node:net';
import { UNHANDLED } from '#shared/contract/unhandled-error.ts';
import { readBuffer, readIntoBuffer } from '#shared/lang/read-buffer.ts';
import type { Logger } from '#shared/process/log.ts';

/** Bytes of a socket on their way to the lane. An unhandled error, which would otherwise end the process, ends the socket. */
export class Intake {
  readonly #socket: Socket;
  readonly #take: (bytes: Buffer) => void;
  readonly #log: Pick<Logger, 'error'>;
  #isClosed = false;

  /** @param take serves bytes, and keeps nothing of them but a copy */
  constructor(socket: Socket, take: (bytes: Buffer) => void, log: Pick<Logger, 'error'>) {
    this.#socket = socket;
    this.#take = take;
    this.#log = log;
  }

  open(): void {
    if (readIntoBuffer(this.#socket, this.#read)) this.#socket.resume();
    else this.#socket.on('data', this.serve);
  }

  /** From here on bytes go the way of other sockets' bytes. */
  close(): void {
    this.#isClosed = true;
    this.#socket.off('data', this.serve);
  }

  /** Serves bytes that came, now or before. */
  readonly serve = (bytes: Buffer): void => {
    try {
      this.#take(bytes);
    } catch (error) {
      this.giveUp(error);
    }
  };

  /** Ends this connection, and no other. */
  readonly giveUp = (err: unknown): void => {
    this.#log.error({ err }, UNHANDLED);
    this.#socket.destroy();
  };

  /** Reads into the shared memory. */
  readonly #read = (length: number): boolean => {
    const bytes = readBuffer.subarray(0, length);
    if (this.#isClosed) return this.#socket.push(Buffer.from(bytes));
    this.serve(bytes);
    return true;
  };
}
