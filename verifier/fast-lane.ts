import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '#shared/errors.ts';
import type { Logger } from '#shared/log.ts';
import { readBuffer, readIntoBuffer } from '#shared/read-buffer.ts';
import { newRequestId } from '#shared/request-id.ts';
import type { AuthzSettings } from './authz.ts';
import type { HttpLimits } from './http.ts';
import { type RawAnswers, rawAuthz, rawJson } from './raw-answer.ts';
import type { Line } from './raw-response.ts';
import { type Recognised, recognise } from './recognise.ts';
import { type Call, recogniseCall } from './recognise-call.ts';
import type { Hooks } from './routes.ts';
import type { Verdict } from './verdict.ts';
import type { Answers } from './verify-key.ts';

/** What the lane answers with, and within which bounds. */
export interface LaneOptions {
  readonly answers: Answers;
  readonly limits: HttpLimits;
  /** undefined = gateways are not answered. */
  readonly authz: AuthzSettings | undefined;
  /** Answers a connection that sent nothing at all for `HEADERS_TIMEOUT_MS`, and closes it. */
  readonly tooSlow: (socket: Socket) => void;
  /** In proxy mode, what answers a call; then nothing else is asked here. */
  readonly passOn?: (call: Call, connection: Line & Hooks) => void;
  readonly log: Pick<Logger, 'error'>;
  /** Requests answered here, and connections given to Node. */
  readonly counts: { answered: number; handedOver: number };
}

/**
 * A lane in front of Node's HTTP server: it answers the common requests straight on the socket, at half the
 * cost. A connection that sends anything else is given, from that request on and for good, to the
 * server's own listener with its bytes, so that Node judges all that is not plainly common.
 */
export class FastLane {
  readonly options: LaneOptions;
  readonly rawAuthz: RawAnswers;
  /** Requests whose look-up runs, or that are passed on. */
  lookingUp = 0;
  /** Set, new requests are for Node, which answers them with `Connection: close`. */
  closing = false;
  readonly #connections = new Set<Connection>();

  /** Installs itself in a server that does not listen yet. */
  constructor(server: Server, options: LaneOptions) {
    this.options = options;
    this.rawAuthz = rawAuthz(options.authz?.withMeta ?? false);
    const [listener, ...others] = server.listeners('connection');
    if (listener === undefined || others.length > 0) throw new Error('the server is not as Node makes it');
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => {
      const connection = new Connection(socket, this, () => void listener.call(server, socket));
      this.#connections.add(connection);
    });
    // One timer for all connections: exact to its period, and it costs a request nothing.
    const { HEADERS_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS, STALL_TIMEOUT_MS } = options.limits;
    const sweepMs = Math.min(1000, HEADERS_TIMEOUT_MS / 2, KEEP_ALIVE_TIMEOUT_MS / 2, STALL_TIMEOUT_MS / 2);
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
  forget(connection: Connection): void {
    this.#connections.delete(connection);
  }
}

/** Answers gathered before they are written, characters; a reader that is slower than this is waited for. */
const WRITE_LENGTH_MAX = 65_536;

/** What is left from `at` on, to be kept. */
function restOf(bytes: Buffer, at: number): Buffer {
  if (bytes.buffer !== readBuffer.buffer) return bytes.subarray(at);
  const copy = Buffer.allocUnsafe(bytes.length - at);
  bytes.copy(copy, 0, at);
  return copy;
}

/** The request in hand: filled by `recognise`, read before anything else runs. */
const found: Recognised = { key: '', apiId: undefined, requestId: '', fromGateway: false, length: 0 };

const NOTHING = Buffer.alloc(0);

class Connection implements Line, Hooks {
  readonly socket: Socket;
  closed: (() => void) | undefined;
  readonly #lane: FastLane;
  readonly #giveToNode: () => void;
  /** `waiting`: for a look-up, for the API, or until the client has read. `given`: it is Node's. */
  #state: 'fresh' | 'reading' | 'waiting' | 'given' = 'fresh';
  #quietMs = 0;
  /** Whether a call is passed on. */
  #passing = false;
  /** What came while a request was answered. */
  #early: Buffer = NOTHING;

  constructor(socket: Socket, lane: FastLane, giveToNode: () => void) {
    this.socket = socket;
    this.#lane = lane;
    this.#giveToNode = giveToNode;
    socket.on('end', this.#end).on('error', this.#end).on('close', this.#forget);
    if (readIntoBuffer(socket, this.#read)) socket.resume();
    else socket.on('data', this.#guarded);
  }

  /** Counts time that passed, and closes what was quiet for too long. */
  age(ms: number): void {
    const { limits, tooSlow } = this.#lane.options;
    this.#quietMs += ms;
    if (this.#state === 'waiting') {
      if (this.#quietMs > limits.STALL_TIMEOUT_MS) this.socket.destroy();
    } else if (this.#state === 'fresh') {
      if (this.#quietMs > limits.HEADERS_TIMEOUT_MS) tooSlow(this.socket);
    } else if (this.#quietMs > limits.KEEP_ALIVE_TIMEOUT_MS) {
      this.socket.destroySoon();
    }
  }

  endIfIdle(): void {
    if (this.#state !== 'waiting') this.socket.destroySoon();
  }

  /** The client has said all; what waits is answered before our side ends too, but what is passed on is given up. */
  readonly #end = () => {
    if (this.#state !== 'waiting') this.socket.end();
    else if (this.#lane.options.passOn) this.socket.destroySoon();
  };
  readonly #forget = () => {
    this.#lane.forget(this);
    const { closed } = this;
    if (this.#passing) this.#passedOn();
    closed?.();
  };

  /** What is read when the connection is Node's goes the way of other sockets' bytes. */
  readonly #read = (length: number): boolean => {
    const bytes = readBuffer.subarray(0, length);
    if (this.#state === 'given') return this.socket.push(Buffer.from(bytes));
    this.#guarded(bytes);
    return true;
  };

  /** Nobody is behind this: what it threw would end the process. */
  readonly #guarded = (bytes: Buffer): void => {
    try {
      this.#serve(bytes);
    } catch (error) {
      this.#giveUp(error);
    }
  };

  /** Ends this connection, and none else, on a bug of ours. */
  readonly #giveUp = (err: unknown): void => {
    this.#lane.options.log.error({ err }, 'a bug');
    this.socket.destroy();
  };

  /** Answers what `bytes` holds; keeps nothing of them but a copy. */
  #serve(bytes: Buffer): void {
    if (this.#state === 'waiting') {
      // A client that does not wait for its answer is read no further; most do, so that pausing is not worth its cost.
      this.#early = Buffer.concat([this.#early, bytes]);
      this.socket.pause();
      return;
    }
    const { passOn } = this.#lane.options;
    if (passOn) return void this.#passOn(bytes, passOn);
    this.#state = 'reading';
    this.#quietMs = 0;
    let [at, out, ascii] = [0, '', true];
    while (at < bytes.length && out.length < WRITE_LENGTH_MAX) {
      const verdict = this.#judge(bytes, at);
      if (verdict === undefined || verdict === 'for Node') {
        if (out !== '') this.socket.write(out, ascii ? 'latin1' : 'utf8');
        const rest = restOf(bytes, at);
        if (verdict === undefined) this.#lookUp(rest);
        else this.#handOver(rest);
        return;
      }
      this.#lane.options.counts.answered++;
      out += this.#raw.decided(verdict, found.requestId || newRequestId(), this.keepAliveS);
      ascii &&= verdict.entry?.details === undefined;
      at += found.length;
    }
    this.socket.write(out, ascii ? 'latin1' : 'utf8');
    if (at < bytes.length || this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
  }

  /** The verdict on the request at `at`, left in `found`; undefined = it must be looked up. */
  #judge(bytes: Buffer, at: number): Verdict | undefined | 'for Node' {
    const { closing, options } = this.#lane;
    if (closing || !recognise(bytes, at, options.limits.BODY_BYTES_MAX, options.authz, found))
      return 'for Node';
    try {
      return options.answers.decide(found.key, found.apiId);
    } catch {
      // A bug of ours: the reference meets it again, and reports it.
      return 'for Node';
    }
  }

  /** In which form the request in hand is answered. */
  get #raw(): RawAnswers {
    return found.fromGateway ? this.#lane.rawAuthz : rawJson;
  }

  /** Answers the first request of `bytes` by a look-up. What comes meanwhile is kept for after it, in order. */
  #lookUp(bytes: Buffer): void {
    const { answers, limits } = this.#lane.options;
    if (this.#lane.lookingUp >= limits.REQUESTS_IN_FLIGHT_MAX) return void this.#handOver(bytes);
    const { key, apiId, length } = found;
    const raw = this.#raw;
    const requestId = found.requestId || newRequestId();
    this.#state = 'waiting';
    this.#lane.lookingUp++;
    answers
      .lookUp(key, apiId)
      .then(
        (verdict) => this.#lookedUp(bytes, length, raw.decided(verdict, requestId, this.keepAliveS)),
        (error) => {
          const isExpected = error instanceof ApiError;
          const answer = isExpected ? raw.refused(error, requestId, this.keepAliveS) : undefined;
          this.#lookedUp(bytes, length, answer);
        },
      )
      .catch(this.#giveUp);
  }

  /** @param answer to the first `length` bytes; undefined = a bug of ours: the reference meets it again, and reports it */
  #lookedUp(bytes: Buffer, length: number, answer: string | undefined): void {
    this.#lane.lookingUp--;
    if (this.socket.destroyed) return;
    const all = this.#early.length === 0 ? bytes : Buffer.concat([bytes, this.#early]);
    this.#early = NOTHING;
    if (answer === undefined) return void this.#handOver(all);
    this.#lane.options.counts.answered++;
    this.socket.write(answer);
    if (this.#lane.closing) this.socket.destroySoon();
    else this.#goOn(all.subarray(length));
  }

  /** Has the call in `bytes` passed on. What is behind it, and what comes meanwhile, is kept for after it, in order. */
  #passOn(bytes: Buffer, passOn: NonNullable<LaneOptions['passOn']>): void {
    const { closing, lookingUp, options } = this.#lane;
    const isFree = !closing && lookingUp < options.limits.REQUESTS_IN_FLIGHT_MAX;
    const call = isFree && options.authz ? recogniseCall(bytes, options.authz) : undefined;
    if (call === undefined) return void this.#handOver(restOf(bytes, 0));
    this.#state = 'waiting';
    this.#quietMs = 0;
    this.#early = call.length === bytes.length ? NOTHING : restOf(bytes, call.length);
    this.#passing = true;
    this.#lane.lookingUp++;
    passOn(call, this);
  }

  moved(): void {
    this.#quietMs = 0;
  }

  answered(): void {
    if (!this.#passing) return;
    this.#passedOn();
    this.#lane.options.counts.answered++;
    // Later, lest answers that are here at once are nested as deep as a client sends requests.
    if (this.#early.length === 0) this.#next();
    else process.nextTick(this.#next);
  }

  readonly #next = () => {
    const early = this.#early;
    this.#early = NOTHING;
    if (this.socket.destroyed) return;
    if (this.#lane.closing) this.socket.destroySoon();
    else this.#goOn(early);
  };

  #passedOn(): void {
    this.#passing = false;
    this.closed = undefined;
    this.#lane.lookingUp--;
  }

  /** Serves the rest, and reads on, once the client has read what was written. */
  #goOn(rest: Buffer): void {
    if (this.socket.writableNeedDrain) {
      this.#state = 'waiting';
      this.socket.pause().once('drain', () => this.#goOn(rest));
      return;
    }
    this.#state = 'reading';
    this.#quietMs = 0;
    if (rest.length > 0) this.#guarded(rest);
    if (this.#state !== 'reading') return;
    if (this.#lane.closing || this.socket.readableEnded) this.socket.destroySoon();
    else this.socket.resume();
  }

  /** From here on Node's listeners get what comes, beginning with `bytes`. */
  #handOver(bytes: Buffer): void {
    const { socket } = this;
    this.#state = 'given';
    this.#lane.options.counts.handedOver++;
    this.#lane.forget(this);
    socket
      .off('data', this.#guarded)
      .off('end', this.#end)
      .off('error', this.#end)
      .off('close', this.#forget);
    this.#giveToNode();
    socket.emit('data', bytes);
    if (socket.readableEnded) socket.emit('end');
    // null: those bytes asked for an upgrade, and who has the connection now reads when it likes.
    else if (socket.readableFlowing !== null) socket.resume();
  }

  /** Seconds that the connection stays open after this answer; undefined = it does not. */
  get keepAliveS(): number | undefined {
    const { closing, options } = this.#lane;
    return closing ? undefined : Math.floor(options.limits.KEEP_ALIVE_TIMEOUT_MS / 1000);
  }
}
