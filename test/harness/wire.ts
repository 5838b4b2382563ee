import { connect, type Socket } from 'node:net';

/** One response as it came over the wire. */
export interface WireResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Every byte of it, as latin1. */
  readonly raw: string;
}

/** A bare connection, for saying exactly what no client library would say. */
export class Wire {
  readonly socket: Socket;
  #received = '';
  #ended = false;
  #wake = (): void => undefined;

  /** @param localAddress where it comes from; any address of 127.0.0.0/8 is one of this machine */
  constructor(address: string, localAddress?: string) {
    const from = localAddress === undefined ? {} : { localAddress };
    const target = address.startsWith('/') ? { path: address } : { ...targetOf(address), ...from };
    this.socket = connect({ ...target, allowHalfOpen: true, noDelay: true });
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text: string) => {
      this.#received += text;
      this.#wake();
    });
    const ended = () => {
      this.#ended = true;
      this.#wake();
    };
    this.socket.on('end', ended).on('close', ended).on('error', ended);
  }

  /** Bytes, or text as UTF-8; each call is a write of its own. */
  send(data: string | Uint8Array): this {
    this.socket.write(data);
    return this;
  }

  /** The next response. `head` = the answer to a HEAD request. Rejects when the connection ends before it. */
  async response(head = false): Promise<WireResponse> {
    for (;;) {
      const found = cut(this.#received, head);
      if (found !== undefined) {
        this.#received = this.#received.slice(found.raw.length);
        return found;
      }
      if (this.#ended) throw new Error(`ended with ${JSON.stringify(this.#received)} received`);
      await this.#change();
    }
  }

  /** Everything until the server closes. */
  async rest(): Promise<string> {
    while (!this.#ended) await this.#change();
    return this.#received;
  }

  /** Tells whether the server has closed the connection. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Received and not yet taken, as latin1. */
  get received(): string {
    return this.#received;
  }

  close(): void {
    this.socket.destroy();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }
}

function targetOf(address: string): { host: string; port: number } {
  const { hostname, port } = new URL(address);
  return { host: hostname, port: Number(port) };
}

function cut(text: string, head: boolean): WireResponse | undefined {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [first = '', ...lines] = text.slice(0, end).split('\r\n');
  const match = /^HTTP\/1\.1 (\d{3}) [\w -]+$/.exec(first);
  if (match === null) throw new Error(`not a response: ${JSON.stringify(text)}`);
  const status = Number(match[1]);
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(': ');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 2)];
    }),
  );
  const length = head || status < 200 ? 0 : Number(headers['content-length']);
  if (!Number.isInteger(length)) throw new Error(`no Content-Length: ${JSON.stringify(text)}`);
  if (text.length < end + 4 + length) return undefined;
  const raw = text.slice(0, end + 4 + length);
  return { status, headers, body: Buffer.from(raw.slice(end + 4), 'latin1').toString('utf8'), raw };
}

/** A verifyKey request as a plain client sends it; `headers` are lines without line ends. */
export function verifyKey(body: unknown, headers: readonly string[] = [], method = 'POST'): string {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return [
    `${method} /v1/keys.verifyKey HTTP/1.1`,
    'Host: verifier',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(text)}`,
    ...headers,
    '',
    text,
  ].join('\r\n');
}
