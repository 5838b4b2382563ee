import type { Socket } from 'node:net';
import type { Logger } from '#shared/process/log.ts';
import type { Callers } from '../core/callers.ts';
import type { RefusalLog, VerdictSource } from '../core/verdict.ts';
import type { AuthzSettings } from '../http/authz.ts';
import type { HttpLimits } from '../http/http-settings.ts';
import type { ClientConnection } from '../http/raw-response.ts';
import type { RequestEvents } from '../http/router.ts';
import type { Call } from './parse-call.ts';
import type { QuestionReader } from './question-reader.ts';

/** The counts of a lane. */
export interface LaneCounts {
  /** Requests that the lane answered. */
  answered: number;
  /** Requests that Node answered and whose connections stayed in the lane. */
  delegated: number;
  /** Connections handed over to Node. */
  handedOver: number;
}

/** Dependencies and limits of a lane. */
export interface LaneOptions {
  readonly verifier: VerdictSource;
  /** undefined = anybody may ask about keys. */
  readonly callers?: Callers | undefined;
  /** undefined = nobody remembers refusals. */
  readonly refusals?: RefusalLog | undefined;
  readonly limits: HttpLimits;
  /** undefined = gateways get no answer. */
  readonly authz: AuthzSettings | undefined;
  /** Answers a connection whose request did not arrive in time, and closes it. */
  readonly tooSlow: (socket: Socket, requestId?: string) => void;
  /** Passes on a call in proxy mode; the lane then answers nothing else. */
  readonly passOn?: (call: Call, connection: ClientConnection & RequestEvents) => void;
  readonly log: Pick<Logger, 'error'>;
  readonly counts: LaneCounts;
}

/** The part of a lane that all its connections share. */
export interface Lane {
  readonly options: LaneOptions;
  readonly reader: QuestionReader;
  /** Memory used by partial requests, in bytes. */
  heldBytes: number;
  /** Requests whose body is arriving, whose look-up is running, or that are passed on. */
  inFlight: number;
  /** True = new requests go to Node, which answers them with `Connection: close`. */
  readonly closing: boolean;
  /** Forgets a connection that is closed or handed over to Node. */
  forget(connection: ClientConnection): void;
}

/** Returns true if the lane may not answer a further request, because REQUESTS_IN_FLIGHT_MAX is reached. */
export const isFull = ({ inFlight, options }: Lane): boolean =>
  inFlight >= options.limits.REQUESTS_IN_FLIGHT_MAX;
