import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createRawServer, type Socket } from 'node:net';
import type { Behind } from './side-by-side.ts';

/** Request as it arrived. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  /** As they came: names and values in turn. */
  readonly rawHeaders: readonly string[];
  /** Names in lower case. */
  readonly headers: IncomingMessage['headers'];
  /** The same, with every value of each. */
  readonly headersDistinct: IncomingMessage['headersDistinct'];
  /** Bytes that have come so far. */
  body: string;
  /** True if the sender broke off. */
  aborted: boolean;
}

type Handle = (request: IncomingMessage, response: ServerResponse, seen: Seen) => void;

/** A server behind the one that is tested: remembers every request and answers as told, `ok` unless told. */
export class Upstream {
  readonly seen: Seen[] = [];
  readonly server = createServer({ requestTimeout: 0, maxHeaderSize: 65_536 }, (request, response) =>
    this.#serve(request, response),
  );
  connections = 0;
  handle: Handle = (request, response) => {
    request.on('end', () => response.end('ok'));
  };

  static async start(): Promise<Upstream> {
    const upstream = new Upstream();
    upstream.server.on('connection', () => upstream.connections++);
    await new Promise<void>((resolve) => upstream.server.listen(0, '127.0.0.1', resolve));
    return upstream;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get address(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Requests that came since the last call. */
  take(): Seen[] {
    return this.seen.splice(0);
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { method = '', url = '', rawHeaders, headers, headersDistinct } = request;
    const seen: Seen = { method, url, rawHeaders, headers, headersDistinct, body: '', aborted: false };
    this.seen.push(seen);
    request.on('data', (chunk: Buffer) => {
      seen.body += chunk.toString('latin1');
    });
    response.on('close', () => {
      seen.aborted = !response.writableFinished;
    });
    this.handle(request, response, seen);
  }
}

/** In place of a piece: the connection is closed. */
export const END = '';
/** Answers by the first part of the path, piece by piece, as latin1. Heads are whole in a piece. */
type Pieces = Readonly<Record<string, readonly string[]>>;
const OTHER = ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'];

/** Answer to a request that its `head` begins; to HEAD no body. */
function piecesFor(head: string, answers: Pieces): string[] {
  const [, method, target = ''] = /^(\S+) \/behind\/([^ ?#]*)/.exec(head) ?? [];
  const pieces = answers[target] ?? OTHER;
  if (method !== 'HEAD') return [...pieces];
  const text = pieces.join('').replace(/((?:^|\r\n\r\n)HTTP\/1\.[01] [^1].*?\r\n\r\n).*/s, '$1');
  return pieces.includes(END) ? [text, END] : [text];
}

/** The body at the start of `text`, its chunks joined, and what is behind it; undefined = it is not whole yet. */
function bodyOf(head: string, text: string): [string, string | undefined] {
  if (!/\r\ntransfer-encoding: chunked\r\n/i.test(head)) {
    const length = Number(/\r\ncontent-length: (\d+)\r\n/i.exec(head)?.[1] ?? 0);
    return [text.slice(0, length), text.length < length ? undefined : text.slice(length)];
  }
  for (let [at, body] = [0, '']; ; ) {
    const [line = '', size = ''] = /^([0-9a-f]+)\r\n/.exec(text.slice(at)) ?? [];
    const end = at + line.length + Number.parseInt(size, 16) + 2;
    if (line === '' || text.length < end) return [body, undefined];
    if (line === '0\r\n') return [body, text.slice(end)];
    body += text.slice(at + line.length, end - 2);
    at = end;
  }
}

/** A request, or what has come of it, and the write of the client in which that began. */
interface Arrival {
  readonly round: number;
  text: string;
}
/** The two ends of a connection. */
interface Pair {
  readonly proxys?: Socket;
  readonly ours?: Socket;
}

/**
 * An API that writes down every byte of a request, but not how its body is cut, and says step by step what it is
 * told to. The next step is only taken when nothing moves any more, so that each run goes the same way.
 */
export class RawUpstream implements Behind {
  readonly #server = createRawServer({ noDelay: true }, (socket) => this.#serve(socket));
  /** Both ends of each connection until both are closed, by the proxy's port. */
  readonly #pairs = new Map<number, Pair>();
  readonly #connecting = new Set<Socket>();
  readonly #texts: Pieces;
  #answers: { readonly socket: Socket; readonly pieces: string[] }[] = [];
  #seen: Arrival[] = [];
  #round = 0;
  moved = 0;

  constructor(texts: Pieces) {
    this.#texts = texts;
  }

  async start(): Promise<URL> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    subscribe('net.client.socket', this.#onClient);
    return new URL(`http://127.0.0.1:${this.#port}/behind/`);
  }

  async stop(): Promise<void> {
    unsubscribe('net.client.socket', this.#onClient);
    await new Promise((resolve) => this.#server.close(resolve));
  }

  get calm(): boolean {
    for (const { proxys, ours } of this.#pairs.values()) {
      if (!proxys?.writable || !ours?.writable) return false;
      if (proxys.bytesWritten !== ours.bytesRead || ours.bytesWritten !== proxys.bytesRead) return false;
    }
    return this.#connecting.size === 0;
  }

  /**
   * The request that came last is answered first: a proxy that passes on several at once has to put that right. Large
   * bodies come last and all at once: a proxy does not read one before the client has the answers that come before it.
   */
  goOn(): boolean {
    const open = this.#answers.filter(({ socket, pieces }) => socket.writable && pieces.length > 0);
    const small = open.findLast(({ pieces: [piece = ''] }) => piece.length < 10_000);
    for (const { socket, pieces } of small ? [small] : open) {
      const piece = pieces.shift() ?? END;
      if (piece === END) socket.destroySoon();
      else socket.write(piece, 'latin1');
    }
    return open.length > 0;
  }

  begin(round: number): void {
    this.#round = round;
  }

  /** Sorted, because of requests on several connections none is the first. */
  take(): string[] {
    const seen = this.#seen.map(
      ({ round, text }) => `${round}: ${text.replace(`:${this.#port}\r\n`, '\r\n')}`,
    );
    this.#seen = [];
    this.#answers = [];
    this.#round = 0;
    return seen.toSorted();
  }

  get #port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  #serve(socket: Socket): void {
    this.#pair(socket.remotePort ?? 0, { ours: socket });
    socket.setEncoding('latin1').on('error', () => undefined);
    let text = '';
    let seen: Arrival | undefined;
    socket.on('data', (part: string) => {
      this.moved += part.length;
      text += part;
      while (text !== '') {
        if (seen === undefined) {
          seen = { round: this.#round, text: '' };
          this.#seen.push(seen);
        }
        const end = text.indexOf('\r\n\r\n') + 4;
        const head = text.slice(0, end);
        const [body, rest] = end < 4 ? [text, undefined] : bodyOf(head, text.slice(end));
        seen.text = `${head}${body}${rest === undefined ? ' and no more' : ''}`;
        if (rest === undefined) return;
        this.#answers.push({ socket, pieces: piecesFor(head, this.#texts) });
        [text, seen] = [rest, undefined];
      }
    });
  }

  readonly #onClient = (message: unknown) => {
    const { socket } = message as { socket: Socket };
    this.#connecting.add(socket);
    socket.once('close', () => this.#connecting.delete(socket));
    socket.once('connect', () => {
      this.#connecting.delete(socket);
      if (socket.remotePort === this.#port) this.#pair(socket.localPort ?? 0, { proxys: socket });
    });
  };

  #pair(port: number, end: Pair): void {
    const pair: Pair = Object.assign(this.#pairs.get(port) ?? {}, end);
    this.#pairs.set(port, pair);
    for (const socket of Object.values(end)) {
      socket.once('close', () => {
        if (pair.proxys?.destroyed !== false && pair.ours?.destroyed !== false) this.#pairs.delete(port);
      });
    }
  }
}
