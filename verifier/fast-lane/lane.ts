import type { Socket } from 'node:net';
import type { Logger } from '#shared/process/log.ts';
import type { VerdictSource } from '../core/verdict/verdict.ts';
import type { AuthzSettings } from '../endpoints/authz.ts';
import type { HttpLimits } from '../http/http-settings.ts';
import type { ClientConnection } from '../http/raw-response.ts';
import type { RequestEvents } from '../http/router.ts';
import type { Call } from './parse-call.ts';
import type { QuestionReader } from './question-reader.ts';

/** Counts of a lane. */
export interface LaneCounts {
  /** Requests answered here. */
  answered: number;
  /** Requests that Node answered, of connections that stayed. */
  delegated: number;
  /** Connections given to Node. */
  handedOver: number;
}

/** Dependencies and limits of a lane. */
export interface LaneOptions {
  readonly verifier: VerdictSource;
  readonly limits: HttpLimits;
  /** undefined = gateways are not answered. */
  readonly authz: AuthzSettings | undefined;
  /** Answers a connection whose request did not come in time, and closes it. */
  readonly tooSlow: (socket: Socket, requestId?: string) => void;
  /** In proxy mode, what answers a call; then nothing else is asked here. */
  readonly passOn?: (call: Call, connection: ClientConnection & RequestEvents) => void;
  readonly log: Pick<Logger, 'error'>;
  readonly counts: LaneCounts;
}

/** Lane as its connections see it: what all of them share. */
export interface Lane {
  readonly options: LaneOptions;
  readonly reader: QuestionReader;
  /** Memory for requests of which only a part is here, bytes. */
  heldBytes: number;
  /** Requests whose body is on its way or whose look-up runs, or that are passed on. */
  inFlight: number;
  /** Set, new requests are for Node, which answers them with `Connection: close`. */
  readonly closing: boolean;
  /** Lets go of a connection that is closed or Node's. */
  forget(connection: ClientConnection): void;
}

/** Tells whether so many requests are in flight that one more is not answered here. */
export const isFull = ({ inFlight, options }: Lane): boolean =>
  inFlight >= options.limits.REQUESTS_IN_FLIGHT_MAX;
