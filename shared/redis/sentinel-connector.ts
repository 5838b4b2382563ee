import { type Redis, SentinelConnector } from 'ioredis';

type ToSentinel = (...args: unknown[]) => Redis;

/** The method with which ioredis opens every connection to a Sentinel. Its types lack this method. */
const METHOD = 'connectToSentinel';

/**
 * A connector that finds the primary as ioredis does, but reports why a Sentinel could not be asked. ioredis
 * itself only says `Connection is closed` when it asks for the primary, and writes to stderr when it listens
 * for failovers.
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

  /** Rejects with the error of the last Sentinel's connection, if ioredis gives no better reason. */
  override async connect(...args: Parameters<SentinelConnector['connect']>) {
    this.#cause = undefined;
    try {
      return await super.connect(...args);
    } catch (error) {
      throw this.#cause ?? error;
    }
  }
}
