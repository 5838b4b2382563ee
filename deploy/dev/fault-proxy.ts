import { createConnection, createServer, type Server, type Socket } from 'node:net';

/** Effect of a fault on the bytes that pass. */
export type ProxyFault = 'none' | 'delay' | 'throttle' | 'blackhole' | 'half-open' | 'refuse';

const DELAY_MS = 150;
/** Bytes that pass in a millisecond, in each direction. */
const THROTTLE_BYTES = 20;

/**
 * A TCP proxy that hands every byte on as it is, or does not: `delay` holds both directions back, `throttle` lets little pass, `blackhole` swallows
 * both while connections stay open, `half-open` swallows what the server says, `refuse` ends every connection at once.
 * Bytes swallowed are gone for good, so after such a fault the connections that lost some are reset.
 */
export class FaultProxy {
  readonly #server: Server;
  readonly #target: () => number;
  readonly #delayMs: number;
  readonly #wayMs: number;
  readonly #pairs = new Set<{ client: Socket; upstream: Socket; damaged: boolean }>();
  #fault: ProxyFault = 'none';

  /**
   * @param target the port that connections are for, asked at each of them
   * @param delayMs what `delay` adds in each direction, in milliseconds
   * @param wayMs how long each direction takes anyway, in milliseconds
   */
  constructor(target: () => number, delayMs = DELAY_MS, wayMs = 0) {
    this.#wayMs = wayMs;
    this.#target = target;
    this.#delayMs = delayMs;
    this.#server = createServer({ noDelay: true }, (client) => this.#accept(client));
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return (this.#server.address() as { port: number }).port;
  }

  set(fault: ProxyFault): void {
    this.#fault = fault;
    for (const pair of this.#pairs) {
      if (fault === 'refuse' || (fault === 'none' && pair.damaged)) reset(pair);
    }
  }

  close(): void {
    this.#server.close();
    for (const pair of this.#pairs) reset(pair);
  }

  #accept(client: Socket): void {
    if (this.#fault === 'refuse') {
      client.resetAndDestroy();
      return;
    }
    const pair = {
      client,
      upstream: createConnection({ port: this.#target(), host: '127.0.0.1', noDelay: true }),
      damaged: false,
    };
    this.#pairs.add(pair);
    this.#carry(pair, client, pair.upstream, (fault) => fault === 'blackhole');
    this.#carry(pair, pair.upstream, client, (fault) => fault === 'blackhole' || fault === 'half-open');
  }

  #carry(
    pair: { client: Socket; upstream: Socket; damaged: boolean },
    from: Socket,
    to: Socket,
    swallows: (fault: ProxyFault) => boolean,
  ): void {
    // Delayed chunks keep their order: each waits for the one before it.
    let last = Promise.resolve();
    let throttledToMs = 0;
    from.on('data', (chunk: Buffer) => {
      if (swallows(this.#fault)) {
        pair.damaged = true;
        return;
      }
      const nowMs = performance.now();
      if (this.#fault === 'throttle')
        throttledToMs = Math.max(nowMs, throttledToMs) + chunk.length / THROTTLE_BYTES;
      const delayMs = this.#fault === 'delay' ? this.#delayMs : 0;
      const dueMs = Math.max(nowMs, throttledToMs) + this.#wayMs + delayMs;
      last = last.then(async () => {
        const waitMs = dueMs - performance.now();
        if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
        to.write(chunk);
      });
    });
    const end = () => {
      this.#pairs.delete(pair);
      reset(pair);
    };
    from.on('close', end);
    from.on('error', end);
  }
}

function reset({ client, upstream }: { client: Socket; upstream: Socket }): void {
  client.destroy();
  upstream.destroy();
}
