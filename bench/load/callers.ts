import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Answer } from '../servers.ts';
import { wire } from './load.ts';

/**
 * Callers of a control plane, each with its own connection. They are no client library, so that they leave most of their
 * core to Redis.
 */
export class Callers {
  readonly #sockets: readonly Socket[];
  readonly #port: number;
  readonly #headers: Readonly<Record<string, string>>;

  private constructor(sockets: readonly Socket[], port: number, rootKey: string) {
    this.#sockets = sockets;
    this.#port = port;
    this.#headers = { Authorization: `Bearer ${rootKey}`, 'Content-Type': 'application/json' };
  }

  static async open(address: string, count: number, rootKey: string): Promise<Callers> {
    const port = Number(new URL(address).port);
    const sockets = Array.from({ length: count }, () => connect(port, '127.0.0.1').setNoDelay());
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    return new Callers(sockets, port, rootKey);
  }

  /** Makes `count` calls, one at a time on each connection. Rejects with the first answer that is not 200. */
  call(
    operation: string,
    count: number,
    bodyOf: (i: number) => object,
    onAnswer: (i: number, answer: Answer) => void,
  ): Promise<void> {
    const request = { method: 'POST', path: `/v1/${operation}`, headers: this.#headers } as const;
    let [sent, answered] = [0, 0];
    return new Promise((resolve, reject) => {
      for (const socket of this.#sockets) {
        let i = 0;
        const next = () => {
          if (sent === count) return;
          i = sent++;
          socket.write(wire({ ...request, body: JSON.stringify(bodyOf(i)) }, this.#port));
        };
        // The answers are short: each arrives in one piece.
        socket.removeAllListeners('data').on('data', (bytes: Buffer) => {
          const text = bytes.toString();
          if (!text.startsWith('HTTP/1.1 200')) return reject(new Error(text));
          onAnswer(i, JSON.parse(text.slice(text.indexOf('\r\n\r\n'))) as Answer);
          if (++answered === count) resolve();
          else next();
        });
        next();
      }
    });
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}
