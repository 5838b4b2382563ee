import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ApiError } from '#shared/errors.ts';
import { readBuffer, readIntoBuffer, restOf } from '#shared/read-buffer.ts';
import { newRequestId } from '#shared/request-id.ts';
import { UNHANDLED } from '#shared/unhandled-error.ts';
import type { Verdict } from '../core/verdict.ts';
import { Loan } from '../http/loan.ts';
import type { RequestEvents } from '../http/router.ts';
import { Begun } from './begun.ts';
import type { Lane, LaneOptions } from './lane.ts';
import { parseCall } from './parse-call.ts';
import { type ParsedQuestion, parseQuestion } from './parse-question.ts';
import { plainLength } from './plain-request.ts';
import { type RawAnswers, rawJson } from './reply.ts';
import type { ClientConnection } from './response-writer.ts';

/** Answers gathered before they are written, characters; a reader that is slower than this is waited for. */
const WRITE_LENGTH_MAX = 65_536;

/** Requests in a row that Node gets one by one, which costs more each than its own connections do; then it gets those, too. */
const LENT_IN_A_ROW_MAX = 8;

/** The request in hand: filled by `parseQuestion`, read before anything else runs. */
const parsed: ParsedQuestion = {
  key: '',
  apiId: undefined,
  requestId: '',
  fromGateway: false,
  isLast: false,
  length: 0,
};

const NOTHING = Buffer.alloc(0);

/** A connection of the fast lane, until it is closed or Node's. */
export class LaneConnection implements ClientConnection, RequestEvents {
  readonly socket: Socket;
  onClose: (() => void) | undefined;
  readonly #lane: Lane;
  readonly #giveToNode: (connection: Duplex) => void;
  /**
   * `receiving`: a part of a request is here. `waiting`: for a look-up, for the API, or until the client has read. `over`: what
   * still comes is of no interest. `given`: it is Node's.
   */
  #state: 'fresh' | 'reading' | 'receiving' | 'waiting' | 'over' | 'given' = 'fresh';
  /** Since something moved; while a request is received, since that began. */
  #quietMs = 0;
  readonly #begun: Begun;
  /** True if the connection is closed after the answer to the request in hand. */
  #isLast = false;
  /** The loan by which Node answers the request in hand. */
  #loan: Loan | undefined;
  /** Requests that Node got since one was answered here. */
  #lentInARow = 0;
  /** True while a call is passed on. */
  #passing = false;
  /** Bytes that came while a request was answered. */
  #early: Buffer = NOTHING;

  constructor(socket: Socket, lane: Lane, giveToNode: (connection: Duplex) => void) {
    this.socket = socket;
    this.#lane = lane;
    this.#giveToNode = giveToNode;
    this.#begun = new Begun(lane);
    socket.on('end', this.#end).on('error', this.#end).on('close', this.#forget);
    if (readIntoBuffer(socket, this.#read)) socket.resume();
    else socket.on('data', this.#guarded);
  }

  /** Counts time that passed, and closes what was quiet for too long. */
  age(ms: number): void {
    const { limits, tooSlow } = this.#lane.options;
    this.#quietMs += ms;
    if (this.#state === 'waiting' || this.#state === 'over') {
      if (this.#quietMs > limits.STALL_TIMEOUT_MS) this.socket.destroy();
    } else if (this.#state === 'fresh' || this.#state === 'receiving') {
      if (this.#quietMs <= this.#begun.longestMs) return;
      this.#begun.take();
      this.#state = 'over';
      tooSlow(this.socket, this.#begun.requestId || undefined);
    } else if (this.#quietMs > limits.KEEP_ALIVE_TIMEOUT_MS) {
      this.socket.destroySoon();
    }
  }

  endIfIdle(): void {
    if (this.#state === 'fresh' || this.#state === 'reading') this.socket.destroySoon();
  }

  /** The client has said all; what waits is answered before our side ends too, but what is passed on is given up. */
  readonly #end = () => {
    if (this.socket.destroyed) return;
    // Else it is the end of what is behind that request.
    if (this.#loan !== undefined && this.#early.length === 0) this.#loan.emit('end');
    else if (this.#state === 'receiving') this.#handOver(this.#begun.take());
    else if (this.#state !== 'waiting') this.socket.end();
    else if (this.#lane.options.passOn) this.socket.destroySoon();
  };
  readonly #forget = () => {
    this.#lane.forget(this);
    const { onClose } = this;
    if (this.#passing) this.#passedOn();
    this.#begun.take();
    this.#loan?.destroy();
    onClose?.();
  };

  /** Reads into the shared memory. Once the connection is Node's, bytes go the way of other sockets' bytes. */
  readonly #read = (length: number): boolean => {
    const bytes = readBuffer.subarray(0, length);
    if (this.#state === 'given') return this.socket.push(Buffer.from(bytes));
    this.#guarded(bytes);
    return true;
  };

  /** Serves bytes, and ends the connection on an unhandled error, which would otherwise end the process. */
  readonly #guarded = (bytes: Buffer): void => {
    try {
      this.#serve(bytes);
    } catch (error) {
      this.#giveUp(error);
    }
  };

  /** Ends this connection, and no other, on an unhandled error. */
  readonly #giveUp = (err: unknown): void => {
    this.#lane.options.log.error({ err }, UNHANDLED);
    this.socket.destroy();
  };

  /** Answers what `bytes` holds; keeps nothing of them but a copy. */
  #serve(came: Buffer): void {
    let bytes = came;
    if (this.#state === 'waiting') {
      const taken = this.#loan?.carry(bytes) ?? 0;
      if (taken === bytes.length) return;
      // A client that does not wait for its answer is read no further; most do, so that pausing is not worth its cost.
      this.#early = Buffer.concat([this.#early, bytes.subarray(taken)]);
      this.socket.pause();
      return;
    }
    if (this.#state === 'over') return;
    const sinceMs = this.#state === 'reading' ? 0 : this.#quietMs;
    if (this.#state === 'receiving') {
      const all = this.#begun.add(bytes);
      if (all === undefined) return;
      bytes = all;
    }
    this.#state = 'reading';
    this.#quietMs = 0;
    const { passOn } = this.#lane.options;
    if (passOn) return void this.#passOn(bytes, sinceMs, passOn);
    let [at, out, ascii] = [0, '', true];
    while (at < bytes.length && out.length < WRITE_LENGTH_MAX) {
      const verdict = this.#judge(bytes, at);
      if (typeof verdict !== 'object') {
        if (out !== '') this.socket.write(out, ascii ? 'latin1' : 'utf8');
        if (verdict === 'begun' && at > 0 && this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
        else if (verdict === undefined) this.#lookUp(restOf(bytes, at));
        else if (verdict === 'for Node' || !this.#receive(bytes, at, parsed.length, at > 0 ? 0 : sinceMs))
          this.#toNode(restOf(bytes, at));
        return;
      }
      this.#lane.options.counts.answered++;
      this.#lentInARow = 0;
      out += this.#raw.decided(verdict, parsed.requestId || newRequestId(), this.keepAliveS);
      ascii &&= verdict.entry?.details === undefined;
      at += parsed.length;
      if (this.#isLast) break;
    }
    this.socket.write(out, ascii ? 'latin1' : 'utf8');
    if (this.#isLast) this.#close();
    else if (at < bytes.length || this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
  }

  /** The verdict on the request at `at`, left in `parsed`; undefined = it must be looked up. */
  #judge(bytes: Buffer, at: number): Verdict | undefined | 'begun' | 'for Node' {
    const { closing, options } = this.#lane;
    if (closing) return 'for Node';
    const result = parseQuestion(bytes, at, options.limits.BODY_BYTES_MAX, options.authz, parsed);
    if (result !== 'whole') return result;
    this.#isLast = parsed.isLast;
    try {
      return options.answers.decide(parsed.key, parsed.apiId);
    } catch {
      // A bug of ours: the reference meets it again, and reports it.
      return 'for Node';
    }
  }

  /**
   * Keeps what is here of a request until the rest comes.
   * @param length of all of it; 0 = its head is not whole
   * @param sinceMs how long ago it began
   * @returns false where that would be more than may be kept
   */
  #receive(bytes: Buffer, at: number, length: number, sinceMs: number): boolean {
    if (!this.#begun.begin(bytes, at, length, length > 0 ? parsed.requestId : '')) return false;
    this.#state = 'receiving';
    this.#quietMs = sinceMs;
    return true;
  }

  /** Ends the connection once all is written. */
  #close(): void {
    this.#state = 'over';
    this.socket.destroySoon();
  }

  /** In which form the request in hand is answered. */
  get #raw(): RawAnswers {
    return parsed.fromGateway ? this.#lane.rawAuthz : rawJson;
  }

  /** Answers the first request of `bytes` by a look-up. What comes meanwhile is kept for after it, in order. */
  #lookUp(bytes: Buffer): void {
    const { answers, limits } = this.#lane.options;
    if (this.#lane.inFlight >= limits.REQUESTS_IN_FLIGHT_MAX) return void this.#handOver(bytes);
    const { key, apiId, length } = parsed;
    const raw = this.#raw;
    const requestId = parsed.requestId || newRequestId();
    this.#state = 'waiting';
    this.#lane.inFlight++;
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
    this.#lane.inFlight--;
    if (this.socket.destroyed) return;
    const all = this.#early.length === 0 ? bytes : Buffer.concat([bytes, this.#early]);
    this.#early = NOTHING;
    if (answer === undefined) return void this.#handOver(all);
    this.#lane.options.counts.answered++;
    this.#lentInARow = 0;
    this.socket.write(answer);
    if (this.#lane.closing || this.#isLast) this.#close();
    else this.#goOn(all.subarray(length));
  }

  /** Has the call in `bytes` passed on. What is behind it, and what comes meanwhile, is kept for after it, in order. */
  #passOn(bytes: Buffer, sinceMs: number, passOn: NonNullable<LaneOptions['passOn']>): void {
    const { closing, inFlight, options } = this.#lane;
    const isFree = !closing && inFlight < options.limits.REQUESTS_IN_FLIGHT_MAX;
    const call = isFree && options.authz ? parseCall(bytes, options.authz) : undefined;
    if (call === 'begun' && this.#receive(bytes, 0, 0, sinceMs)) return;
    if (call === undefined || call === 'begun') return void this.#toNode(restOf(bytes, 0));
    this.#isLast = call.isLast;
    this.#state = 'waiting';
    this.#quietMs = 0;
    this.#early = call.length === bytes.length ? NOTHING : restOf(bytes, call.length);
    this.#passing = true;
    this.#lane.inFlight++;
    passOn(call, this);
  }

  moved(): void {
    this.#quietMs = 0;
  }

  answered(): void {
    if (!this.#passing) return;
    this.#passedOn();
    this.#lane.options.counts.answered++;
    this.#lentInARow = 0;
    // Later, lest answers that are here at once are nested as deep as a client sends requests.
    if (this.#early.length === 0) this.#next();
    else process.nextTick(this.#next);
  }

  readonly #next = () => {
    const early = this.#early;
    this.#early = NOTHING;
    if (this.socket.destroyed) return;
    if (this.#lane.closing || this.#isLast) this.#close();
    else this.#goOn(early);
  };

  #passedOn(): void {
    this.#passing = false;
    this.onClose = undefined;
    this.#lane.inFlight--;
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
    this.#readOn();
  }

  #readOn(): void {
    const { readableEnded } = this.socket;
    if (this.#state === 'reading' && (this.#lane.closing || readableEnded)) this.socket.destroySoon();
    else if (this.#state === 'receiving' && readableEnded) this.#handOver(this.#begun.take());
    else if (this.#state === 'reading' || this.#state === 'receiving') this.socket.resume();
    // It was paused behind the request before: the rest of this one's body is still to come, or that the client leaves.
    else if (this.#early.length === 0 && (this.#passing || this.#loan?.isHeld === false))
      this.socket.resume();
  }

  /** Gives Node the request at the start of `bytes`: alone where its end is plain, else with its connection. */
  #toNode(bytes: Buffer): void {
    const isOver = this.#lane.closing || this.socket.readableEnded;
    const mayLend = !isOver && this.#lentInARow < LENT_IN_A_ROW_MAX;
    const length = mayLend ? plainLength(bytes) : 0;
    if (length === 0) return void this.#handOver(bytes);
    this.#isLast = false;
    this.#state = 'waiting';
    this.#loan = new Loan(this, length);
    this.#giveToNode(this.#loan);
    this.#early = bytes.subarray(this.#loan.carry(bytes));
  }

  returned(): void {
    this.#loan = undefined;
    this.#lentInARow++;
    this.#lane.options.counts.lent++;
    // Later: its last bytes may be in hand.
    process.nextTick(this.#next);
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
    this.#giveToNode(socket);
    socket.emit('data', bytes);
    if (socket.readableEnded) socket.emit('end');
    // null: those bytes asked for an upgrade, and who has the connection now reads when it likes.
    else if (socket.readableFlowing !== null) socket.resume();
  }

  /** Seconds that the connection stays open after this answer; undefined = it does not. */
  get keepAliveS(): number | undefined {
    const { closing, options } = this.#lane;
    return closing || this.#isLast ? undefined : Math.floor(options.limits.KEEP_ALIVE_TIMEOUT_MS / 1000);
  }
}
