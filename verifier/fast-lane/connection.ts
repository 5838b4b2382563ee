import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { readBuffer, readIntoBuffer, restOf } from '#shared/read-buffer.ts';
import { UNHANDLED } from '#shared/unhandled-error.ts';
import type { RequestEvents } from '../http/router.ts';
import { Begun } from './begun.ts';
import { isFull, type Lane, type LaneOptions } from './lane.ts';
import { Loans } from './loans.ts';
import { type ConnectionState, overdue } from './overdue.ts';
import { parseCall } from './parse-call.ts';
import { inHand, judge, replyByLookUp, replyTo } from './question-in-hand.ts';
import { written } from './reply.ts';
import type { ClientConnection } from './response-writer.ts';

/** Answers gathered before they are written, characters; a reader that is slower than this is waited for. */
const WRITE_LENGTH_MAX = 65_536;

const NOTHING = Buffer.alloc(0);

/** A connection of the fast lane, until it is closed or Node's. */
export class LaneConnection implements ClientConnection, RequestEvents {
  readonly socket: Socket;
  onClose: (() => void) | undefined;
  readonly #lane: Lane;
  #state: ConnectionState = 'fresh';
  /** Since something moved; while a request is received, since that began. */
  #quietMs = 0;
  readonly #begun: Begun;
  /** True if the connection is closed after the answer to the request in hand. */
  #isLast = false;
  readonly #loans: Loans;
  /** True while a call is passed on. */
  #passing = false;
  /** Bytes that came while a request was answered. */
  #early: Buffer = NOTHING;

  constructor(socket: Socket, lane: Lane, giveToNode: (connection: Duplex) => void) {
    this.socket = socket;
    this.#lane = lane;
    this.#loans = new Loans(giveToNode);
    this.#begun = new Begun(lane);
    socket.on('end', this.#end).on('error', this.#end).on('close', this.#forget);
    if (readIntoBuffer(socket, this.#read)) socket.resume();
    else socket.on('data', this.#guarded);
  }

  /** Counts time that passed, and closes what was quiet for too long. */
  age(ms: number): void {
    const { limits, tooSlow } = this.#lane.options;
    this.#quietMs += ms;
    const fault = overdue(this.#state, this.#quietMs, this.#begun.longestMs, limits);
    if (fault === 'stalled') this.socket.destroy();
    else if (fault === 'idle') this.socket.destroySoon();
    else if (fault === 'too slow') {
      this.#begun.take();
      this.#state = 'over';
      tooSlow(this.socket, this.#begun.requestId || undefined);
    }
  }

  endIfIdle(): void {
    if (this.#state === 'fresh' || this.#state === 'reading') this.socket.destroySoon();
  }

  /** The client has said all; what waits is answered before our side ends too, but what is passed on is given up. */
  readonly #end = () => {
    if (this.socket.destroyed) return;
    // With bytes behind the lent request, the end belongs to those.
    if (this.#loans.present !== undefined && this.#early.length === 0) this.#loans.present.emit('end');
    else if (this.#state === 'receiving') this.#handOver(this.#begun.take());
    else if (this.#state !== 'waiting') this.socket.end();
    else if (this.#lane.options.passOn) this.socket.destroySoon();
  };
  readonly #forget = () => {
    this.#lane.forget(this);
    const { onClose } = this;
    if (this.#passing) this.#passedOn();
    this.#begun.take();
    this.#loans.present?.destroy();
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
      const taken = this.#loans.present?.carry(bytes) ?? 0;
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
      const verdict = judge(this.#lane, bytes, at);
      if (typeof verdict !== 'object') {
        if (out !== '') this.socket.write(out, ascii ? 'latin1' : 'utf8');
        if (verdict === 'begun' && at > 0 && this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
        else if (verdict === undefined) this.#lookUp(restOf(bytes, at));
        else if (verdict === 'for Node' || !this.#receive(bytes, at, inHand.length, at > 0 ? 0 : sinceMs))
          this.#toNode(restOf(bytes, at));
        return;
      }
      this.#isLast = inHand.isLast;
      this.#lane.options.counts.answered++;
      this.#loans.inARow = 0;
      out += replyTo(this.#lane, verdict, this.keepAliveS);
      ascii &&= written.isAscii;
      at += inHand.length;
      if (this.#isLast) break;
    }
    this.socket.write(out, ascii ? 'latin1' : 'utf8');
    if (this.#isLast) this.#close();
    else if (at < bytes.length || this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
  }

  /**
   * Keeps what is here of a request until the rest comes.
   * @param length of all of it; 0 = its head is not whole
   * @param sinceMs how long ago it began
   * @returns false where that would be more than may be kept
   */
  #receive(bytes: Buffer, at: number, length: number, sinceMs: number): boolean {
    if (!this.#begun.begin(bytes, at, length, length > 0 ? inHand.requestId : '')) return false;
    this.#state = 'receiving';
    this.#quietMs = sinceMs;
    return true;
  }

  /** Ends the connection once all is written. */
  #close(): void {
    this.#state = 'over';
    this.socket.destroySoon();
  }

  /** Answers the first request of `bytes` by a look-up. What comes meanwhile is kept for after it, in order. */
  #lookUp(bytes: Buffer): void {
    if (isFull(this.#lane)) return void this.#handOver(bytes);
    const { length } = inHand;
    this.#isLast = inHand.isLast;
    this.#state = 'waiting';
    this.#lane.inFlight++;
    replyByLookUp(this.#lane, this)
      .then((reply) => this.#lookedUp(bytes, length, reply))
      .catch(this.#giveUp);
  }

  /** @param reply to the first `length` bytes; undefined = Node has to answer them */
  #lookedUp(bytes: Buffer, length: number, reply: string | undefined): void {
    this.#lane.inFlight--;
    if (this.socket.destroyed) return;
    const all = this.#early.length === 0 ? bytes : Buffer.concat([bytes, this.#early]);
    this.#early = NOTHING;
    if (reply === undefined) return void this.#handOver(all);
    this.#lane.options.counts.answered++;
    this.#loans.inARow = 0;
    this.socket.write(reply);
    if (this.#lane.closing || this.#isLast) this.#close();
    else this.#goOn(all.subarray(length));
  }

  /** Has the call in `bytes` passed on. What is behind it, and what comes meanwhile, is kept for after it, in order. */
  #passOn(bytes: Buffer, sinceMs: number, passOn: NonNullable<LaneOptions['passOn']>): void {
    const { closing, options } = this.#lane;
    const mayPass = options.authz !== undefined && !closing && !isFull(this.#lane);
    const call = mayPass ? parseCall(bytes, options.authz) : undefined;
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
    this.#loans.inARow = 0;
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
    // Reading was paused behind the request before. Go on: the rest of this one's body is still to come, or the client's leaving.
    else if (this.#early.length === 0 && (this.#passing || this.#loans.present?.isHeld === false))
      this.socket.resume();
  }

  /** Gives Node the request at the start of `bytes`: alone where its end is plain, else with its connection. */
  #toNode(bytes: Buffer): void {
    const isOver = this.#lane.closing || this.socket.readableEnded;
    const length = isOver ? 0 : this.#loans.lendable(bytes);
    if (length === 0) return void this.#handOver(bytes);
    this.#isLast = false;
    this.#state = 'waiting';
    this.#early = this.#loans.lend(this, bytes, length);
  }

  returned(): void {
    this.#loans.returned();
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
    socket.off('data', this.#guarded).off('close', this.#forget);
    socket.off('end', this.#end).off('error', this.#end);
    this.#loans.giveToNode(socket);
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
