import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { restOf } from '#shared/lang/read-buffer.ts';
import type { ClientConnection } from '../http/raw-response.ts';
import type { RequestEvents } from '../http/router.ts';
import { type ConnectionState, isBusy, isIdle, timeoutFault } from './connection-state.ts';
import { Delegations } from './delegations.ts';
import { Intake } from './intake.ts';
import { type Judgement, judge, reply, replyByLookUp } from './judge.ts';
import { isFull, type Lane, type LaneOptions } from './lane.ts';
import { LaneRequest } from './lane-request.ts';
import { parseCall } from './parse-call.ts';
import { NO_BYTES, PartialRequest } from './partial-request.ts';
import { Output } from './reply.ts';

/** Characters of answers that are gathered before a write. The lane waits for slower clients. */
const WRITE_LENGTH_MAX = 65_536;

/** A connection of the fast lane, until it is closed or handed over to Node. */
export class LaneConnection implements ClientConnection, RequestEvents {
  readonly socket: Socket;
  onClose: (() => void) | undefined;
  readonly #lane: Lane;
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

  constructor(socket: Socket, lane: Lane, giveToNode: (connection: Duplex) => void) {
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
      const judgement = judge(this.#lane, bytes, at, request);
      if (judgement !== 'decided') {
        this.#write();
        return void this.#unlessDecided(judgement, bytes, at, at > 0 ? 0 : sinceMs);
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
  #unlessDecided(judgement: Exclude<Judgement, 'decided'>, bytes: Buffer, at: number, sinceMs: number): void {
    const { length } = this.#request;
    if (judgement === 'partial' && at > 0 && this.socket.writableNeedDrain) this.#goOn(restOf(bytes, at));
    else if (judgement === 'undecided') this.#lookUp(restOf(bytes, at));
    else if (judgement === 'for Node' || !this.#receive(bytes, at, length, sinceMs))
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
    if (isFull(this.#lane)) return void this.#handOver(bytes);
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
    const { closing, options } = this.#lane;
    const mayPass = options.authz !== undefined && !closing && !isFull(this.#lane);
    const call = mayPass ? parseCall(bytes, options.authz, this.#request.head) : undefined;
    if (call === 'partial' && this.#receive(bytes, 0, 0, sinceMs)) return;
    if (call === undefined || call === 'partial') return void this.#toNode(restOf(bytes, 0));
    this.#request.isLast = call.isLast;
    this.#state = 'passed on';
    this.#quietMs = 0;
    this.#early = call.length === bytes.length ? NO_BYTES : restOf(bytes, call.length);
    this.#lane.inFlight++;
    passOn(call, this);
  }

  noteProgress(): void {
    this.#quietMs = 0;
  }

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
    socket.emit('data', bytes);
    if (socket.readableEnded) socket.emit('end');
    // null: the bytes asked for an upgrade, and the new owner of the connection decides when to read.
    else if (socket.readableFlowing !== null) socket.resume();
  }

  /** Seconds for which the connection stays open after this answer; undefined = it is closed. */
  get keepAliveS(): number | undefined {
    const { closing, options } = this.#lane;
    return closing || this.#request.isLast
      ? undefined
      : Math.floor(options.limits.KEEP_ALIVE_TIMEOUT_MS / 1000);
  }
}
