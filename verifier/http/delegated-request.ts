import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { restOf } from '#shared/lang/read-buffer.ts';

/** A connection of which Node's server gets one request. */
export interface Delegator {
  readonly socket: Socket;
  /** Something came of the request, or of its answer. */
  noteProgress(): void;
  /** All has come of both, and the connection is to stay open. */
  takeBack(): void;
}

/**
 * A stand-in connection for Node's server: it carries exactly one request of a real connection, and its answer back.
 * Whatever else Node does to it, such as to pause or destroy it, is done to the real one.
 */
export class DelegatedRequest extends Duplex {
  readonly #delegator: Delegator;
  /** Bytes of the request that did not come yet. */
  #missing: number;
  #isHeld = false;
  #isAnswered = false;
  #isReturned = false;

  /** @param length of the request, bytes */
  constructor(delegator: Delegator, length: number) {
    super({ decodeStrings: false });
    this.#delegator = delegator;
    this.#missing = length;
  }

  /** True while Node wants nothing more. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  get remoteAddress(): string | undefined {
    return this.#delegator.socket.remoteAddress;
  }

  /** Carries what `bytes` hold of the request from their start on; returns how much that was. */
  carry(bytes: Buffer): number {
    const length = Math.min(this.#missing, bytes.length);
    if (length === 0) return 0;
    this.#missing -= length;
    this.#delegator.noteProgress();
    this.emit('data', restOf(bytes.subarray(0, length), 0));
    this.#return();
    return length;
  }

  /** Called when the response is closed, sent or not. */
  finishAnswer(): void {
    this.#isAnswered = true;
    this.#return();
  }

  /**
   * Gives the connection back once Node has answered and keeps it open. This one's parser is thrown away, whatever it
   * holds.
   */
  #return(): void {
    if (!this.#isAnswered || this.#missing > 0 || this.destroyed || this.writableEnded) return;
    this.#isReturned = true;
    this.destroy();
    this.#delegator.takeBack();
  }

  override _read(): void {
    // Data is emitted as it comes.
  }

  override pause(): this {
    this.#isHeld = true;
    this.#delegator.socket.pause();
    return this;
  }

  /** Reads on only where that undoes `pause`; else the delegator says when it reads. */
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

  /** As that of a socket. */
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
