import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { restOf } from '#shared/process/read-buffer.ts';

/** A connection that gives one request to Node's server. */
export interface Delegator {
  readonly socket: Socket;
  /** Called when a part of the request or of its answer has arrived. */
  noteProgress(): void;
  /** Called when the request and its answer are complete, and the connection is to stay open. */
  takeBack(): void;
}

/**
 * A stand-in connection for Node's server. It carries exactly one request of a real connection, and that
 * request's answer back. Other operations of Node on it, such as pausing or destroying, act on the real
 * connection. Node documents that its server takes any Duplex; that it reads from the events alone, and calls
 * `destroySoon`, it does not. If that ends, delegated requests get no answer, and their tests fail.
 */
export class DelegatedRequest extends Duplex {
  readonly #delegator: Delegator;
  /** Bytes of the request that have not arrived yet. */
  #missing: number;
  #isHeld = false;
  #isAnswered = false;
  #isReturned = false;

  /** @param length length of the request, in bytes */
  constructor(delegator: Delegator, length: number) {
    super({ decodeStrings: false });
    this.#delegator = delegator;
    this.#missing = length;
  }

  /** True while Node has paused reading. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  get remoteAddress(): string | undefined {
    return this.#delegator.socket.remoteAddress;
  }

  /** Passes on the bytes at the start of `bytes` that belong to the request, and returns their number. */
  carry(bytes: Buffer): number {
    const length = Math.min(this.#missing, bytes.length);
    if (length === 0) return 0;
    this.#missing -= length;
    this.#delegator.noteProgress();
    this.emit('data', restOf(bytes.subarray(0, length), 0));
    this.#return();
    return length;
  }

  /** Called when the response is closed, whether it was sent or not. */
  finishAnswer(): void {
    this.#isAnswered = true;
    this.#return();
  }

  /**
   * Returns the connection once Node has answered and keeps the connection open. Node's parser of this
   * stand-in is thrown away with everything in it.
   */
  #return(): void {
    if (!this.#isAnswered || this.#missing > 0 || this.destroyed || this.writableEnded) return;
    this.#isReturned = true;
    this.destroy();
    this.#delegator.takeBack();
  }

  override _read(): void {
    // Data is emitted as it arrives.
  }

  override pause(): this {
    this.#isHeld = true;
    this.#delegator.socket.pause();
    return this;
  }

  /** Resumes reading only after `pause`. Otherwise the delegator decides when to read. */
  override resume(): this {
    if (this.#isHeld) this.#delegator.socket.resume();
    this.#isHeld = false;
    return this;
  }

  override _write(chunk: string | Buffer, encoding: BufferEncoding, callback: () => void): void {
    const { socket } = this.#delegator;
    this.#delegator.noteProgress();
    if (socket.write(chunk, encoding)) callback();
    else socket.once('drain', callback);
  }

  override _writev(
    chunks: { chunk: string | Buffer; encoding: BufferEncoding }[],
    callback: () => void,
  ): void {
    const { socket } = this.#delegator;
    this.#delegator.noteProgress();
    socket.cork();
    for (const { chunk, encoding } of chunks) socket.write(chunk, encoding);
    socket.uncork();
    if (socket.writableNeedDrain) socket.once('drain', callback);
    else callback();
  }

  override _final(callback: () => void): void {
    this.#delegator.socket.end();
    callback();
  }

  /** Does the same as the method of a socket. */
  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.#delegator.socket.destroySoon();
    else this.once('finish', () => this.#delegator.socket.destroySoon());
  }

  override _destroy(_error: Error | null, callback: () => void): void {
    if (!this.#isReturned) this.#delegator.socket.destroy();
    callback();
  }
}
