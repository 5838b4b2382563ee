import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { LaneConnection } from './connection.ts';
import type { Lane, LaneOptions } from './lane.ts';
import { QuestionReader } from './question-reader.ts';

/**
 * A lane in front of Node's HTTP server: it answers common requests directly on the socket, at half the cost.
 * All other requests go to Node's server. If the end of such a request is certain, Node gets only that
 * request; otherwise Node gets the whole connection, for good.
 */
export class FastLane implements Lane {
  readonly options: LaneOptions;
  readonly reader: QuestionReader;
  /** Memory used by partial requests, in bytes. */
  heldBytes = 0;
  /** Requests whose body is arriving, whose look-up is running, or that are passed on. */
  inFlight = 0;
  /** True = new requests go to Node, which answers them with `Connection: close`. */
  closing = false;
  readonly #connections = new Set<LaneConnection>();

  /** Installs itself in a server that does not listen yet. */
  constructor(server: Server, options: LaneOptions) {
    this.options = options;
    this.reader = new QuestionReader(options.limits.BODY_BYTES_MAX, options.authz, options.callers);
    const [listener, ...more] = server.listeners('connection');
    if (listener === undefined || more.length > 0)
      throw new Error('the server has connection listeners besides that of Node');
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => {
      const connection = new LaneConnection(socket, this, (duplex) => void listener.call(server, duplex));
      this.#connections.add(connection);
    });
    // One timer for all connections. It is accurate only to its period, and costs nothing per request.
    const { limits } = options;
    const times = [limits.HEADERS_TIMEOUT_MS, limits.KEEP_ALIVE_TIMEOUT_MS, limits.STALL_TIMEOUT_MS];
    const sweepMs = Math.min(1000, ...times.map((timeMs) => timeMs / 2));
    const sweep = setInterval(() => {
      for (const connection of this.#connections) connection.age(sweepMs);
    }, sweepMs).unref();
    server.once('close', () => clearInterval(sweep));
  }

  /** Ends the connections without an open request. */
  endIdle(): void {
    for (const connection of this.#connections) connection.endIfIdle();
  }

  /** Forgets a connection that is closed or handed over to Node. */
  forget(connection: LaneConnection): void {
    this.#connections.delete(connection);
  }
}
