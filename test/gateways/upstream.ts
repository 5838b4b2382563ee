import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as the API behind a gateway saw it. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  /** Every value by name in lower case. */
  readonly headers: Readonly<Record<string, readonly string[] | undefined>>;
  readonly body: string;
}

/** The API behind a gateway: answers all with 200 and keeps what it saw. */
export class Upstream {
  readonly #server: Server;
  #seen: Seen[] = [];

  constructor() {
    this.#server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const { method = '', url = '', headersDistinct: headers } = request;
      this.#seen.push({ method, url, headers, body: Buffer.concat(chunks).toString('latin1') });
      response.end('from the API');
    });
  }

  /** Resolves with `host:port`. */
  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Requests that came since the last call. */
  take(): Seen[] {
    return this.#seen.splice(0);
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
