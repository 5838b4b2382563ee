import type { Socket } from 'node:net';
import { type Redis, SentinelConnector } from 'ioredis';

type ToSentinel = (...args: unknown[]) => Redis;

/** Called with the socket of a connection to a Sentinel, and the Sentinel's address. */
export type OnSentinel = (socket: Socket, address: string) => void;

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
    const { onSentinel } = options as { onSentinel: OnSentinel };
    const connect = Reflect.get(this, METHOD) as ToSentinel;
    Reflect.set(this, METHOD, (...args: unknown[]) => {
      const client = connect.apply(this, args);
      client.on('error', (error: Error) => {
        this.#cause = error;
      });
      client.once('connect', () =>
        onSentinel(client.stream, `${client.options.host}:${client.options.port}`),
      );
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
