import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '#shared/errors.ts';
import { newRequestId } from '#shared/request-id.ts';
import { rawError, rawHead } from './answer.ts';
import type { HttpLimits } from './http.ts';
import { type Recognised, recognise } from './recognise.ts';
import { type Verdict, verdictBody } from './verdict.ts';
import type { Answers, VerdictCounts } from './verify-key.ts';

/** What the lane works with. */
export interface LaneOptions {
  readonly answers: Answers;
  readonly verdicts: VerdictCounts;
  readonly limits: HttpLimits;
  /** Answers a connection that sent nothing at all for `HEADERS_TIMEOUT_MS`, and closes it. */
  readonly tooSlow: (socket: Socket) => void;
  /** Requests answered here, and connections given to Node. */
  readonly counts: { answered: number; handedOver: number };
}

/**
 * A lane in front of Node's HTTP server: it answers the common verifyKey request straight on the socket, at
 * half the cost. A connection that sends anything else is given, from that request on and for good, to the
 * server's own listener with its bytes, so that Node judges all that is not plainly common.
 */
export class FastLane {
  readonly options: LaneOptions;
  /** Requests whose look-up runs. */
  lookingUp = 0;
  /** Set, new requests are for Node, which answers them with `Connection: close`. */
  closing = false;
  readonly #connections = new Set<Connection>();

  /** Installs itself in a server that does not listen yet. */
  constructor(server: Server, options: LaneOptions) {
    this.options = options;
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

/** The request in hand: filled by `recognise`, read before anything else runs. */
const found: Recognised = { key: '', apiId: undefined, requestId: '', length: 0 };

class Connection {
  readonly socket: Socket;
  readonly #lane: FastLane;
  readonly #giveToNode: () => void;
  /** `waiting`: paused for a look-up, or until the client has read. `given`: it is Node's. */
  #state: 'fresh' | 'reading' | 'waiting' | 'given' = 'fresh';
  #quietMs = 0;

  constructor(socket: Socket, lane: FastLane, giveToNode: () => void) {
    this.socket = socket;
    this.#lane = lane;
    this.#giveToNode = giveToNode;
    socket.on('data', this.#serve).on('end', this.#end).on('error', this.#end).on('close', this.#forget);
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

  /** The client has said all; what waits is answered before our side ends too. */
  readonly #end = () => {
    if (this.#state !== 'waiting') this.socket.end();
  };
  readonly #forget = () => this.#lane.forget(this);

  readonly #serve = (bytes: Buffer): void => {
    this.#state = 'reading';
    this.#quietMs = 0;
    let [at, out, ascii] = [0, '', true];
    while (at < bytes.length && out.length < WRITE_LENGTH_MAX) {
      const verdict = this.#judge(bytes, at);
      if (verdict === undefined || verdict === 'for Node') {
        if (out !== '') this.socket.write(out, ascii ? 'latin1' : 'utf8');
        if (verdict === undefined) void this.#lookUp(bytes.subarray(at));
        else this.#handOver(bytes.subarray(at));
        return;
      }
      out += this.#answer(verdict, found.requestId || newRequestId());
      ascii &&= verdict.entry?.details === undefined;
      at += found.length;
    }
    this.socket.write(out, ascii ? 'latin1' : 'utf8');
    if (at < bytes.length || this.socket.writableNeedDrain) this.#goOn(bytes.subarray(at));
  };

  /** The verdict on the request at `at`, left in `found`; undefined = it must be looked up. */
  #judge(bytes: Buffer, at: number): Verdict | undefined | 'for Node' {
    const { closing, options } = this.#lane;
    if (closing || !recognise(bytes, at, options.limits.BODY_BYTES_MAX, found)) return 'for Node';
    try {
      return options.answers.decide(found.key, found.apiId);
    } catch {
      // A bug of ours: the reference meets it again, and reports it.
      return 'for Node';
    }
  }

  #answer(verdict: Verdict, requestId: string): string {
    this.#lane.options.verdicts[verdict.code]++;
    this.#lane.options.counts.answered++;
    const body = verdictBody(verdict, requestId);
    const bytes = verdict.entry?.details === undefined ? body.length : Buffer.byteLength(body);
    return rawHead(200, requestId, bytes, this.#keepAliveS) + body;
  }

  /** Answers the first request of `bytes` by a look-up. Nothing after it is read meanwhile, which keeps the order. */
  async #lookUp(bytes: Buffer): Promise<void> {
    const { answers, limits } = this.#lane.options;
    if (this.#lane.lookingUp >= limits.REQUESTS_IN_FLIGHT_MAX) return this.#handOver(bytes);
    const { key, apiId, length } = found;
    const requestId = found.requestId || newRequestId();
    this.#state = 'waiting';
    this.socket.pause();
    this.#lane.lookingUp++;
    let answer: string | undefined;
    try {
      answer = this.#answer(await answers.lookUp(key, apiId), requestId);
    } catch (error) {
      if (error instanceof ApiError) answer = rawError(error, requestId, this.#keepAliveS);
    }
    this.#lane.lookingUp--;
    if (this.socket.destroyed) return;
    if (answer === undefined) return this.#handOver(bytes);
    this.socket.write(answer);
    if (this.#lane.closing) this.socket.destroySoon();
    else this.#goOn(bytes.subarray(length));
  }

  /** Serves the rest, and reads on, once the client has read what was written. */
  #goOn(rest: Buffer): void {
    if (this.socket.writableNeedDrain) {
      this.#state = 'waiting';
      this.socket.pause().once('drain', () => this.#goOn(rest));
      return;
    }
    this.#state = 'reading';
    if (rest.length > 0) this.#serve(rest);
    if (this.#state !== 'reading') return;
    if (this.socket.readableEnded) this.socket.end();
    else this.socket.resume();
  }

  /** From here on Node's listeners get what comes, beginning with `bytes`. */
  #handOver(bytes: Buffer): void {
    const { socket } = this;
    this.#state = 'given';
    this.#lane.options.counts.handedOver++;
    this.#lane.forget(this);
    socket.off('data', this.#serve).off('end', this.#end).off('error', this.#end).off('close', this.#forget);
    this.#giveToNode();
    socket.emit('data', bytes);
    if (socket.readableEnded) socket.emit('end');
    else socket.resume();
  }

  /** Seconds that the connection stays open after this answer; undefined = it does not. */
  get #keepAliveS(): number | undefined {
    const { closing, options } = this.#lane;
    return closing ? undefined : Math.floor(options.limits.KEEP_ALIVE_TIMEOUT_MS / 1000);
  }
}
