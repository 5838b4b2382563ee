import { type Redis, SentinelConnector } from 'ioredis';

type ToSentinel = (...args: unknown[]) => Redis;

/** ioredis makes every connection to a Sentinel with it; its types leave it out. */
const METHOD = 'connectToSentinel';

/**
 * Looks for the primary as ioredis does, but says why a Sentinel could not be asked: ioredis keeps that to itself where
 * it asks who is primary (`Connection is closed`), and writes it to stderr where it listens for failovers.
 */
export class ExplainingConnector extends SentinelConnector {
  #cause: Error | undefined;

  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof SentinelConnector>[0]);
    const connect = Reflect.get(this, METHOD) as ToSentinel;
    Reflect.set(this, METHOD, (...args: unknown[]) => {
      const client = connect.apply(this, args);
      client.on('error', (error: Error) => {
        this.#cause = error;
      });
      return client;
    });
  }

  /** Rejects with what the last Sentinel's connection failed of, where ioredis has no more to say. */
  override async connect(...args: Parameters<SentinelConnector['connect']>) {
    this.#cause = undefined;
    try {
      return await super.connect(...args);
    } catch (error) {
      throw this.#cause ?? error;
    }
  }
}
