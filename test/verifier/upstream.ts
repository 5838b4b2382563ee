import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What a request looked like where it arrived. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  /** As they came: names and values in turn. */
  readonly rawHeaders: readonly string[];
  /** Names in lower case. */
  readonly headers: IncomingMessage['headers'];
  /** What has come so far. */
  body: string;
  /** Whether the sender broke off. */
  aborted: boolean;
}

type Handle = (request: IncomingMessage, response: ServerResponse, seen: Seen) => void;

/** A server behind the one that is tested: remembers every request and answers as told, `ok` unless told. */
export class Upstream {
  readonly seen: Seen[] = [];
  readonly server = createServer({ requestTimeout: 0 }, (request, response) =>
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

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { method = '', url = '', rawHeaders, headers } = request;
    const seen: Seen = { method, url, rawHeaders, headers, body: '', aborted: false };
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
