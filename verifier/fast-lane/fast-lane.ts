import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { LaneConnection } from './connection.ts';
import type { Lane, LaneOptions } from './lane.ts';
import { QuestionReader } from './question-reader.ts';

/**
 * A lane in front of Node's HTTP server: it answers the common requests straight on the socket, at half the cost.
 * Everything that is not plainly common goes to Node's server. Where the end of such a request is certain, Node gets
 * that request alone; otherwise it gets the whole connection, for good.
 */
export class FastLane implements Lane {
  readonly options: LaneOptions;
  readonly reader: QuestionReader;
  /** Memory for requests of which only a part is here. */
  heldBytes = 0;
  /** Requests whose body is on its way or whose look-up runs, or that are passed on. */
  inFlight = 0;
  /** Set, new requests are for Node, which answers them with `Connection: close`. */
  closing = false;
  readonly #connections = new Set<LaneConnection>();

  /** Installs itself in a server that does not listen yet. */
  constructor(server: Server, options: LaneOptions) {
    this.options = options;
    this.reader = new QuestionReader(options.limits.BODY_BYTES_MAX, options.authz);
    const [listener, ...more] = server.listeners('connection');
    if (listener === undefined || more.length > 0) throw new Error('the server is not as Node makes it');
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => {
      const connection = new LaneConnection(socket, this, (duplex) => void listener.call(server, duplex));
      this.#connections.add(connection);
    });
    // One timer for all connections: exact to its period, and it costs a request nothing.
    const { limits } = options;
    const times = [limits.HEADERS_TIMEOUT_MS, limits.KEEP_ALIVE_TIMEOUT_MS, limits.STALL_TIMEOUT_MS];
    const sweepMs = Math.min(1000, ...times.map((timeMs) => timeMs / 2));
    const sweep = setInterval(() => {
      for (const connection of this.#connections) connection.age(sweepMs);
    }, sweepMs).unref();
    server.once('close', () => clearInterval(sweep));
  }

  /** Ends the connections on which nothing waits. */
  endIdle(): void {
    for (const connection of this.#connections) connection.endIfIdle();
  }

  /** Lets go of a connection that is closed or Node's. */
  forget(connection: LaneConnection): void {
    this.#connections.delete(connection);
  }
}
