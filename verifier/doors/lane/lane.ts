import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Logger } from '#shared/process/log.ts';
import { readBuffer, readIntoBuffer, restOf } from '#shared/process/read-buffer.ts';
import { UNHANDLED } from '#shared/rules/errors.ts';
import type { Callers } from '../../core/callers.ts';
import type { HoldEnder, RefusalLog } from '../../core/ports.ts';
import type { VerdictSource } from '../../core/verdict.ts';
import type { AuthzSettings } from '../http/authz.ts';
import type { HttpLimits, RequestEvents } from '../http/server.ts';
import { DelegatedRequest, type Delegator } from '../node-internals/delegated-request.ts';
import { giveBytes, takeConnections } from '../node-internals/http-server.ts';
import {
  type Call,
  CONTENT_LENGTH,
  callPlacesOf,
  follows,
  type Head,
  HOST,
  headersOf,
  type KeyPlaces,
  parseCall,
  scanHead,
  TARGET,
  UPGRADE,
  VERSION,
} from './head.ts';
import {
  LaneRequest,
  type Outcome,
  QuestionReader,
  reply,
  replyByLookUp,
  serveFromMemory,
} from './questions.ts';
import { Output } from './reply.ts';

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
interface LaneOptions {
  readonly verifier: VerdictSource;
  /** Answers gateways; undefined = `verifier`. */
  readonly forGateways?: VerdictSource | undefined;
  /** undefined = nothing is held. */
  readonly holds?: HoldEnder | undefined;
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
  readonly passOn?: (call: Call, connection: LaneConnection) => void;
  readonly log: Pick<Logger, 'error'>;
  readonly counts: LaneCounts;
}

/**
 * A lane in front of Node's HTTP server: it answers common requests directly on the socket, at half the cost.
 * All other requests go to Node's server. Node gets only that request if its end is certain; otherwise, and after
 * IN_A_ROW_MAX of them in a row, it gets the whole connection, for good.
 */
export class FastLane {
  readonly options: LaneOptions;
  readonly reader: QuestionReader;
  /** The places of keys in calls to pass on; undefined = Node must find all keys. */
  readonly callPlaces: KeyPlaces | undefined;
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
    this.callPlaces = options.authz && callPlacesOf(options.authz.sources);
    takeConnections(server, (socket, giveToNode) => {
      this.#connections.add(new LaneConnection(socket, this, giveToNode));
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

  /** True if the lane may not answer a further request, because REQUESTS_IN_FLIGHT_MAX is reached. */
  get isFull(): boolean {
    return this.inFlight >= this.options.limits.REQUESTS_IN_FLIGHT_MAX;
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

/** Characters of answers that are gathered before a write. The lane waits for slower clients. */
const WRITE_LENGTH_MAX = 65_536;

/** A connection of the fast lane, until it is closed or handed over to Node. */
export class LaneConnection implements RequestEvents {
  readonly socket: Socket;
  onClose: (() => void) | undefined;
  readonly #lane: FastLane;
  readonly #intake: Intake;
  #state: ConnectionState = 'fresh';
  /** Milliseconds since the last progress; while a request is received, since its beginning. */
  #quietMs = 0;
  readonly #request = new LaneRequest();
  readonly #output = new Output();
  readonly #partial: PartialRequest;
  readonly #delegations: Delegations;
  /** Bytes that arrived while a request was being answered. */
  #early: Buffer = NO_BYTES;

  constructor(socket: Socket, lane: FastLane, giveToNode: (connection: Duplex) => void) {
    this.socket = socket;
    this.#lane = lane;
    this.#delegations = new Delegations(giveToNode);
    this.#partial = new PartialRequest(lane);
    this.#intake = new Intake(socket, this.#serve, lane.options.log);
    socket.on('end', this.#end).on('error', this.#end).on('close', this.#forget);
    this.#intake.open();
  }

  /** Adds `ms` to the quiet time, and closes a connection that was quiet for too long. */
  age(ms: number): void {
    const { limits, tooSlow } = this.#lane.options;
    this.#quietMs += ms;
    const fault = timeoutFault(this.#state, this.#quietMs, this.#partial.longestMs, limits);
    if (fault === 'stalled') this.socket.destroy();
    else if (fault === 'idle') this.socket.destroySoon();
    else if (fault === 'too slow') {
      this.#partial.take();
      this.#state = 'over';
      tooSlow(this.socket, this.#partial.requestId || undefined);
    }
  }

  endIfIdle(): void {
    if (isIdle(this.#state)) this.socket.destroySoon();
  }

  /** Called when the client ends its side. Open requests are still answered, except in proxy mode. */
  readonly #end = () => {
    if (this.socket.destroyed) return;
    // If bytes follow the delegated request, the end comes after those bytes.
    if (this.#delegations.present !== undefined && this.#early.length === 0)
      this.#delegations.present.emit('end');
    else if (this.#state === 'receiving') this.#handOver(this.#partial.take());
    else if (!isBusy(this.#state)) this.socket.end();
    else if (this.#lane.options.passOn) this.socket.destroySoon();
  };
  readonly #forget = () => {
    this.#lane.forget(this);
    const { onClose } = this;
    if (this.#state === 'passed on') this.#endPassing();
    this.#partial.take();
    this.#delegations.present?.destroy();
    onClose?.();
  };

  /** Serves `chunk`, and keeps at most a copy of it. */
  readonly #serve = (chunk: Buffer): void => {
    let bytes = chunk;
    if (isBusy(this.#state)) {
      const carriedLength = this.#delegations.present?.carry(bytes) ?? 0;
      if (carriedLength === bytes.length) return;
      // Pauses only clients that send more without waiting: pausing each time would cost too much.
      this.#early = Buffer.concat([this.#early, bytes.subarray(carriedLength)]);
      this.socket.pause();
      return;
    }
    if (this.#state === 'over') return;
    const sinceMs = this.#state === 'reading' ? 0 : this.#quietMs;
    if (this.#state === 'receiving') {
      const all = this.#partial.add(bytes);
      if (all === undefined) return;
      bytes = all;
    }
    this.#state = 'reading';
    this.#quietMs = 0;
    const { passOn } = this.#lane.options;
    if (passOn) return void this.#passOn(bytes, sinceMs, passOn);
    this.#answer(bytes, sinceMs);
  };

  /** Answers consecutive requests in `bytes`, with one write. */
  #answer(bytes: Buffer, sinceMs: number): void {
    const output = this.#output;
    const request = this.#request;
    let at = 0;
    while (at < bytes.length && output.text.length < WRITE_LENGTH_MAX) {
      const outcome = serveFromMemory(this.#lane, bytes, at, request);
      if (outcome !== 'decided') {
        this.#write();
        return void this.#unlessDecided(outcome, bytes, at, at > 0 ? 0 : sinceMs);
      }
      this.#count();
      reply(output, request, this.keepAliveS);
      at += request.length;
      if (request.isLast) break;
    }
    this.#write();
    if (request.isLast || at < bytes.length || this.socket.writableNeedDrain) this.#finish(restOf(bytes, at));
  }

  /** Continues with the request at `at`, which has no verdict from memory. */
  #unlessDecided(outcome: Exclude<Outcome, 'decided'>, bytes: Buffer, at: number, sinceMs: number): void {
    const { length } = this.#request;
    if (outcome === 'partial' && at > 0 && this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
    else if (outcome === 'undecided') this.#lookUp(restOf(bytes, at));
    else if (outcome === 'for Node' || !this.#receive(bytes, at, length, sinceMs))
      this.#toNode(restOf(bytes, at));
  }

  /** Writes the output, and then clears it. */
  #write(): void {
    const { text, isAscii } = this.#output;
    if (text === '') return;
    this.#output.clear();
    this.socket.write(text, isAscii ? 'latin1' : 'utf8');
  }

  /** Counts a request that the lane answers. */
  #count(): void {
    this.#lane.options.counts.answered++;
    this.#delegations.inARow = 0;
  }

  /**
   * Keeps the beginning of a request until the rest arrives.
   * @param length length of the whole request; 0 = its head is incomplete
   * @param sinceMs milliseconds since the request began
   * @returns false if that would exceed the memory for partial requests
   */
  #receive(bytes: Buffer, at: number, length: number, sinceMs: number): boolean {
    if (!this.#partial.begin(bytes, at, length, length > 0 ? this.#request.head.requestId : '')) return false;
    this.#state = 'receiving';
    this.#quietMs = sinceMs;
    return true;
  }

  /** Answers the first request of `bytes` after a look-up. Bytes behind it are kept in order. */
  #lookUp(bytes: Buffer): void {
    if (this.#lane.isFull) return void this.#handOver(bytes);
    this.#state = 'looking up';
    this.#lane.inFlight++;
    replyByLookUp(this.#lane, this.#request, this.#output, bytes, this)
      .then((isAnswered) => this.#finishLookup(bytes, isAnswered))
      .catch(this.#intake.giveUp);
  }

  /** @param isAnswered true if the first request of `bytes` has its reply; otherwise Node has to answer it */
  #finishLookup(bytes: Buffer, isAnswered: boolean): void {
    this.#lane.inFlight--;
    if (this.socket.destroyed) return;
    const all = this.#early.length === 0 ? bytes : Buffer.concat([bytes, this.#early]);
    this.#early = NO_BYTES;
    if (!isAnswered) return void this.#handOver(all);
    this.#count();
    this.#write();
    this.#finish(all.subarray(this.#request.length));
  }

  /** Passes on the call in `bytes`. Bytes behind it, and bytes that arrive meanwhile, are kept in order. */
  #passOn(bytes: Buffer, sinceMs: number, passOn: NonNullable<LaneOptions['passOn']>): void {
    const { closing, callPlaces } = this.#lane;
    const mayPass = callPlaces !== undefined && !closing && !this.#lane.isFull;
    const call = mayPass ? parseCall(bytes, callPlaces, this.#request.head) : undefined;
    if (call === 'partial' && this.#receive(bytes, 0, 0, sinceMs)) return;
    if (call === undefined || call === 'partial') return void this.#toNode(restOf(bytes, 0));
    this.#request.isLast = call.isLast;
    this.#state = 'passed on';
    this.#quietMs = 0;
    this.#early = call.length === bytes.length ? NO_BYTES : restOf(bytes, call.length);
    this.#lane.inFlight++;
    passOn(call, this);
  }

  /** Called after each write of an answer from elsewhere. */
  noteProgress(): void {
    this.#quietMs = 0;
  }

  /** Called when the whole answer to a call is written. */
  finishAnswer(): void {
    if (this.#state !== 'passed on') return;
    this.#endPassing();
    this.#count();
    // In a later tick: otherwise immediate answers would nest as deep as a client's requests.
    if (this.#early.length === 0) this.#next();
    else process.nextTick(this.#next);
  }

  readonly #next = () => {
    const early = this.#early;
    this.#early = NO_BYTES;
    if (this.socket.destroyed) return;
    this.#finish(early);
  };

  /** Continues after an answered request, or ends the connection once everything is written. */
  #finish(rest: Buffer): void {
    if (!this.#lane.closing && !this.#request.isLast) return void this.#goOn(rest);
    this.#state = 'over';
    this.socket.destroySoon();
  }

  #endPassing(): void {
    this.#state = 'answered';
    this.onClose = undefined;
    this.#lane.inFlight--;
  }

  /** Serves the rest and reads on, after the client has read what was written. */
  #goOn(rest: Buffer): void {
    if (this.socket.writableNeedDrain) {
      this.#state = 'answered';
      this.socket.pause().once('drain', () => this.#goOn(rest));
      return;
    }
    this.#state = 'reading';
    this.#quietMs = 0;
    if (rest.length > 0) this.#intake.serve(rest);
    this.#readOn();
  }

  #readOn(): void {
    const { readableEnded } = this.socket;
    if (this.#state === 'reading' && (this.#lane.closing || readableEnded)) this.socket.destroySoon();
    else if (this.#state === 'receiving' && readableEnded) this.#handOver(this.#partial.take());
    else if (this.#state === 'reading' || this.#state === 'receiving') this.socket.resume();
    // Reading was paused behind the previous request; more of this one, or the client's end, may follow.
    else if (
      this.#early.length === 0 &&
      (this.#state === 'passed on' || this.#delegations.present?.isHeld === false)
    )
      this.socket.resume();
  }

  /** Gives Node the first request in `bytes`, alone if its end is certain, else with its connection. */
  #toNode(bytes: Buffer): void {
    const isOver = this.#lane.closing || this.socket.readableEnded;
    const length = isOver ? 0 : this.#delegations.lengthOf(bytes, this.#request.head);
    if (length === 0) return void this.#handOver(bytes);
    this.#request.isLast = false;
    this.#state = 'delegated';
    this.#early = this.#delegations.delegate(this, bytes, length);
  }

  takeBack(): void {
    this.#delegations.takeBack();
    this.#state = 'answered';
    this.#lane.options.counts.delegated++;
    // Continues in a later tick, because the caller may still be processing the request's last bytes.
    process.nextTick(this.#next);
  }

  /** Hands the connection over to Node, whose listeners get all further bytes, beginning with `bytes`. */
  #handOver(bytes: Buffer): void {
    const { socket } = this;
    this.#state = 'handed over';
    this.#lane.options.counts.handedOver++;
    this.#lane.forget(this);
    this.#intake.close();
    socket.off('close', this.#forget).off('end', this.#end).off('error', this.#end);
    this.#delegations.giveToNode(socket);
    giveBytes(socket, bytes);
  }

  /** Seconds for which the connection stays open after this answer; undefined = it is closed. */
  get keepAliveS(): number | undefined {
    const { closing, options } = this.#lane;
    return closing || this.#request.isLast
      ? undefined
      : Math.floor(options.limits.KEEP_ALIVE_TIMEOUT_MS / 1000);
  }
}

/**
 * State of a connection:
 * - `fresh`: nothing has arrived yet; `reading`: waits for a request; `receiving`: has a part of a request
 * - `looking up`: waits for a verdict; `passed on`: the API answers the request; `delegated`: Node answers it
 * - `answered`: the answer is written; the next request follows once the client has read it
 * - `over`: ignores everything that still arrives; `handed over`: the connection belongs to Node
 */
type ConnectionState =
  | 'fresh'
  | 'reading'
  | 'receiving'
  | 'looking up'
  | 'passed on'
  | 'delegated'
  | 'answered'
  | 'over'
  | 'handed over';

/** Returns true while a request is being answered. Bytes that arrive meanwhile have to wait. */
const isBusy = (state: ConnectionState): boolean =>
  state === 'looking up' || state === 'passed on' || state === 'delegated' || state === 'answered';

/** Returns true if the connection has no open request. */
const isIdle = (state: ConnectionState): boolean => state === 'fresh' || state === 'reading';

/**
 * Returns the reason to end a connection; undefined = it stays.
 * @param quietMs time since the last progress; while a request is received, since its beginning
 * @param requestMs longest time that a partial request may take
 */
function timeoutFault(
  state: ConnectionState,
  quietMs: number,
  requestMs: number,
  { STALL_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS }: HttpLimits,
): 'stalled' | 'too slow' | 'idle' | undefined {
  if (isBusy(state) || state === 'over') return quietMs > STALL_TIMEOUT_MS ? 'stalled' : undefined;
  if (state === 'fresh' || state === 'receiving') return quietMs > requestMs ? 'too slow' : undefined;
  return quietMs > KEEP_ALIVE_TIMEOUT_MS ? 'idle' : undefined;
}

/**
 * Passes the bytes of a socket to the lane. If an error is not handled, it ends the socket instead of the
 * process.
 */
class Intake {
  readonly #socket: Socket;
  readonly #take: (bytes: Buffer) => void;
  readonly #log: Pick<Logger, 'error'>;
  #isClosed = false;

  /** @param take serves the bytes, and keeps at most a copy of them */
  constructor(socket: Socket, take: (bytes: Buffer) => void, log: Pick<Logger, 'error'>) {
    this.#socket = socket;
    this.#take = take;
    this.#log = log;
  }

  open(): void {
    if (readIntoBuffer(this.#socket, this.#read)) this.#socket.resume();
    else this.#socket.on('data', this.serve);
  }

  /** Stops serving bytes: from now on they reach the socket's listeners as usual. */
  close(): void {
    this.#isClosed = true;
    this.#socket.off('data', this.serve);
  }

  /** Serves bytes that arrive now or arrived earlier. */
  readonly serve = (bytes: Buffer): void => {
    try {
      this.#take(bytes);
    } catch (error) {
      this.giveUp(error);
    }
  };

  /** Logs the error and ends this connection only. */
  readonly giveUp = (err: unknown): void => {
    this.#log.error({ err }, UNHANDLED);
    this.#socket.destroy();
  };

  /** Serves the bytes at the start of the shared memory. */
  readonly #read = (length: number): boolean => {
    const bytes = readBuffer.subarray(0, length);
    if (this.#isClosed) return this.#socket.push(Buffer.from(bytes));
    this.serve(bytes);
    return true;
  };
}

const NO_BYTES = Buffer.alloc(0);

/** The part of a request that has arrived. */
class PartialRequest {
  /**
   * The client's own request id, once the head is complete; `''` = none. Stays until the next request begins.
   */
  requestId = '';
  readonly #lane: FastLane;
  #bytes: Buffer = NO_BYTES;
  #length = 0;
  /** Length of the whole request, in bytes; 0 = not known, because the head is incomplete. */
  #wholeLength = 0;

  constructor(lane: FastLane) {
    this.#lane = lane;
  }

  /**
   * Longest time that the request may take, in milliseconds. As in Node, the time of a connection's first
   * request runs from the opening of the connection, that of a later request from its first byte.
   */
  get longestMs(): number {
    const { HEADERS_TIMEOUT_MS, REQUEST_TIMEOUT_MS } = this.#lane.options.limits;
    const wholeMs = REQUEST_TIMEOUT_MS || Number.POSITIVE_INFINITY;
    return this.#wholeLength > 0 ? wholeMs : Math.min(HEADERS_TIMEOUT_MS, wholeMs);
  }

  /**
   * Keeps a copy of `bytes` from `from` on.
   * @param wholeLength length of the whole request, in bytes; 0 = not known yet
   * @returns false if that would exceed the memory for partial requests; nothing is then kept
   */
  begin(bytes: Buffer, from: number, wholeLength: number, requestId: string): boolean {
    const lane = this.#lane;
    const { FAST_LANE_WAIT_BYTES_MAX } = lane.options.limits;
    const size = Math.max(wholeLength, bytes.length - from);
    if (lane.heldBytes + size > FAST_LANE_WAIT_BYTES_MAX) return false;
    if (wholeLength > 0 && lane.isFull) return false;
    if (wholeLength > 0) lane.inFlight++;
    lane.heldBytes += size;
    this.requestId = requestId;
    this.#wholeLength = wholeLength;
    this.#bytes = Buffer.allocUnsafe(size);
    this.#length = bytes.copy(this.#bytes, 0, from);
    return true;
  }

  /**
   * Adds bytes. Returns the whole request once it is complete and then keeps nothing; undefined = more is
   * needed.
   */
  add(bytes: Buffer): Buffer | undefined {
    const length = this.#length + bytes.length;
    if (length > this.#bytes.length) return Buffer.concat([this.take(), bytes], length);
    this.#length += bytes.copy(this.#bytes, this.#length);
    return length < this.#wholeLength ? undefined : this.take();
  }

  /** Returns the bytes so far and keeps nothing. */
  take(): Buffer {
    const bytes = this.#bytes.subarray(0, this.#length);
    if (this.#wholeLength > 0) this.#lane.inFlight--;
    this.#lane.heldBytes -= this.#bytes.length;
    this.#bytes = NO_BYTES;
    this.#length = 0;
    this.#wholeLength = 0;
    return bytes;
  }
}

/**
 * Maximum number of consecutive requests to delegate one by one. Each costs more than on a connection of
 * Node's own, so Node then gets the connection itself.
 */
export const IN_A_ROW_MAX = 8;

/** The requests of a connection that Node answers one by one. */
class Delegations {
  /** Gives Node a connection, as if Node had just accepted it. */
  readonly giveToNode: (connection: Duplex) => void;
  /** The request that Node is answering now. */
  present: DelegatedRequest | undefined;
  /** Requests delegated since the lane last answered one. */
  inARow = 0;

  constructor(giveToNode: (connection: Duplex) => void) {
    this.giveToNode = giveToNode;
  }

  /** Returns the length of the request at the start of `bytes` if it may be delegated; otherwise 0. */
  lengthOf(bytes: Buffer, head: Head): number {
    return this.inARow < IN_A_ROW_MAX ? plainLength(bytes, head) : 0;
  }

  /** Gives Node a request of the given `length`, and returns the bytes behind the request. */
  delegate(delegator: Delegator, bytes: Buffer, length: number): Buffer {
    const request = new DelegatedRequest(delegator, length);
    this.present = request;
    this.giveToNode(request);
    return bytes.subarray(request.carry(bytes));
  }

  takeBack(): void {
    this.present = undefined;
    this.inARow++;
  }
}

/**
 * Returns the length of the request at the start of `bytes`, with its body, which may still be arriving. The
 * length is read from the head alone, if the head is complete and so plain that every parser agrees on the
 * request's end; otherwise 0.
 */
function plainLength(bytes: Buffer, head: Head): number {
  const start = STARTS.find((text) => follows(bytes, 0, text));
  if (start === undefined) return 0;
  let i = start.length;
  while (TARGET[bytes[i] as number] === 1) i++;
  if (!follows(bytes, i, VERSION)) return 0;
  const body = scanHead(bytes, 0, i + VERSION.length, HEADERS, head);
  return body > 0 && (head.headerBits & HOST) !== 0 && (head.headerBits & UPGRADE) === 0
    ? body + head.length
    : 0;
}

/**
 * Methods that do not affect the connection, and that have a body only with a length. Each with the first
 * byte of the target.
 */
const STARTS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].map((method) =>
  Buffer.from(`${method} /`),
);

const HEADERS = headersOf({ 'content-length': CONTENT_LENGTH });
