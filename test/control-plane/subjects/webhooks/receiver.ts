import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';

/** An event as a consumer got it. */
export interface Received {
  readonly id: string;
  readonly type: string;
  readonly timestamp: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into data of every shape
  readonly data: any;
  readonly text: string;
  readonly headers: IncomingMessage['headers'];
}

/** A consumer of webhooks, which checks signatures with the library that others would use. */
export class Receiver {
  readonly received: Received[] = [];
  /** What it answers, in turn; the last one from then on. */
  answers: ({ status: number; body?: string; headers?: Record<string, string> } | 'hang')[] = [
    { status: 204 },
  ];
  secret = '';
  /** Requests whose signature was wrong. */
  unsigned = 0;
  #server: Server | undefined;
  #port = 0;

  static async start(port = 0): Promise<Receiver> {
    const receiver = new Receiver();
    await receiver.listen(port);
    return receiver;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/hook`;
  }

  /** Listens, again on the same port after `stop`. */
  async listen(port = this.#port): Promise<void> {
    const server = createServer((request, response) => {
      let text = '';
      request.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
      });
      request.on('end', () => {
        const answer = (this.answers.length > 1 ? this.answers.shift() : this.answers[0]) ?? { status: 204 };
        if (answer === 'hang') return;
        if (!this.#isSigned(request, text)) this.unsigned++;
        const { type, timestamp, data } = JSON.parse(text);
        const id = String(request.headers['webhook-id']);
        this.received.push({ id, type, timestamp, data, text, headers: request.headers });
        response.writeHead(answer.status, answer.headers).end(answer.body);
      });
    });
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }

  /** The types of what it got of one thing, each event once. */
  typesOf(id: string): string[] {
    const about = this.received.filter(({ data }) => Object.values(data).includes(id));
    const unique = about.filter((event, i) => about.findIndex((each) => each.id === event.id) === i);
    return unique.map(({ type }) => type);
  }

  #isSigned(request: IncomingMessage, text: string): boolean {
    if (!this.secret) return true;
    try {
      new Webhook(this.secret).verify(text, request.headers as Record<string, string>);
      return true;
    } catch {
      return false;
    }
  }
}
