import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { addedLines } from '../doors/http/respond.ts';
import type { LaneConnection } from '../doors/lane/lane.ts';

/** The part of a response to a client that the proxy uses. */
export type Downstream = Pick<ServerResponse, 'destroyed' | 'headersSent' | 'flushHeaders'> & {
  /** The connection of a WebSocket request; else null. */
  readonly socket: Socket | null;
  writeHead(status: number, message: string, headers: string[]): unknown;
  write(chunk: Buffer): boolean;
  end(last: string | Buffer | undefined, encoding: 'latin1'): unknown;
  addTrailers(trailers: [string, string][]): void;
  once(event: 'drain', listener: () => void): unknown;
  destroy(): unknown;
};

/**
 * A response written without `node:http`, identical byte for byte to a response that `node:http` passes on.
 */
export class RawResponse implements Downstream {
  headersSent = false;
  readonly socket = null;
  readonly #connection: LaneConnection;
  readonly #toHead: boolean;
  /** The part of the head that is not written yet. */
  #head = '';
  #framing: 'none' | 'length' | 'chunked' = 'length';
  #trailers = '';

  /** @param toHead true if the request was a HEAD */
  constructor(connection: LaneConnection, toHead: boolean) {
    this.#connection = connection;
    this.#toHead = toHead;
  }

  get destroyed(): boolean {
    return this.#connection.socket.destroyed;
  }

  writeHead(status: number, message: string, headers: readonly string[]): void {
    if (FORBIDDEN.test(message)) throw new Error('not a reason phrase');
    let text = `HTTP/1.1 ${status} ${message}\r\n`;
    let [isDated, hasLength] = [false, false];
    for (let i = 0; i < headers.length; i += 2) {
      const name = headers[i] ?? '';
      const value = headers[i + 1] ?? '';
      text += line(name, value);
      if (name.length === DATE.length) isDated ||= name.toLowerCase() === DATE;
      else if (name.length === LENGTH.length) hasLength ||= name.toLowerCase() === LENGTH;
    }
    const isEmpty = this.#toHead || status === 204 || status === 304;
    this.#framing = isEmpty ? 'none' : hasLength ? 'length' : 'chunked';
    text += addedLines(isDated, this.#connection.keepAliveS);
    this.#head = this.#framing === 'chunked' ? `${text}Transfer-Encoding: chunked\r\n\r\n` : `${text}\r\n`;
    this.headersSent = true;
  }

  addTrailers(trailers: readonly (readonly [string, string])[]): void {
    for (const [name, value] of trailers) this.#trailers += line(name, value);
  }

  flushHeaders(): void {
    if (this.#head === '') return;
    this.#connection.noteProgress();
    this.#connection.socket.write(this.#head, 'latin1');
    this.#head = '';
  }

  /** @returns false if the caller must wait for `drain`, because the client reads slowly */
  write(chunk: Buffer): boolean {
    const { socket } = this.#connection;
    socket.cork();
    this.flushHeaders();
    if (this.#framing !== 'none' && chunk.length > 0) {
      this.#connection.noteProgress();
      if (this.#framing === 'chunked') socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
      socket.write(chunk);
      if (this.#framing === 'chunked') socket.write('\r\n', 'latin1');
    }
    socket.uncork();
    return !socket.writableNeedDrain;
  }

  /** @param last rest of the body; a string is Latin-1 */
  end(last: string | Buffer | undefined): void {
    if (typeof last === 'object') this.write(last);
    const body = typeof last === 'string' && this.#framing !== 'none' ? last : '';
    let text = this.#head;
    this.#head = '';
    if (this.#framing !== 'chunked') text += body;
    else {
      if (body !== '') text += `${body.length.toString(16)}\r\n${body}\r\n`;
      text += `0\r\n${this.#trailers}\r\n`;
    }
    if (text !== '') this.#connection.socket.write(text, 'latin1');
    this.#connection.finishAnswer();
  }

  /** Sends a complete response that was built elsewhere. */
  answer(text: string): void {
    this.headersSent = true;
    this.#connection.socket.write(
      this.#toHead ? text.slice(0, text.indexOf(HEAD_END) + HEAD_END.length) : text,
      'latin1',
    );
    this.#connection.finishAnswer();
  }

  once(event: 'drain', listener: () => void): void {
    this.#connection.socket.once(event, listener);
  }

  destroy(): void {
    this.#connection.socket.destroy();
  }
}

function line(name: string, value: string): string {
  if (FORBIDDEN.test(value)) throw new Error(`not a header's value: ${name}`);
  return `${name}: ${value}\r\n`;
}

const HEAD_END = '\r\n\r\n';
const DATE = 'date';
const LENGTH = 'content-length';
/** Characters that `node:http` allows in no header value and no reason phrase. */
const FORBIDDEN = /[^\t\x20-\x7e\x80-\xff]/;
