import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from '#shared/log.ts';
import type { AuthzSettings } from './authz.ts';
import type { HttpLimits } from './http.ts';
import { LaneConnection } from './lane-connection.ts';
import { type RawAnswers, rawAuthz } from './raw-answer.ts';
import type { Line } from './raw-response.ts';
import type { Call } from './recognise-call.ts';
import type { Hooks } from './routes.ts';
import type { Answers } from './verify-key.ts';

/** What became of what came to the lane. */
export interface LaneCounts {
  /** Requests answered here. */
  answered: number;
  /** Requests that Node answered, of connections that stayed. */
  lent: number;
  /** Connections given to Node. */
  handedOver: number;
}

/** What the lane answers with, and within which bounds. */
export interface LaneOptions {
  readonly answers: Answers;
  readonly limits: HttpLimits;
  /** undefined = gateways are not answered. */
  readonly authz: AuthzSettings | undefined;
  /** Answers a connection whose request did not come in time, and closes it. */
  readonly tooSlow: (socket: Socket, requestId?: string) => void;
  /** In proxy mode, what answers a call; then nothing else is asked here. */
  readonly passOn?: (call: Call, connection: Line & Hooks) => void;
  readonly log: Pick<Logger, 'error'>;
  readonly counts: LaneCounts;
}

/**
 * A lane in front of Node's HTTP server: it answers the common requests straight on the socket, at half the
 * cost. So that Node judges all that is not plainly common, anything else is given to the server's own listener: a
 * request whose end is plain to all is lent to it alone, with any other its connection is given, and for good.
 */
export class FastLane {
  readonly options: LaneOptions;
  readonly rawAuthz: RawAnswers;
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
    this.rawAuthz = rawAuthz(options.authz?.withMeta ?? false);
    const [listener, ...others] = server.listeners('connection');
    if (listener === undefined || others.length > 0) throw new Error('the server is not as Node makes it');
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => {
      const connection = new LaneConnection(socket, this, (given) => void listener.call(server, given));
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
