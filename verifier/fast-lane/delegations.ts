import type { Duplex } from 'node:stream';
import { DelegatedRequest, type Delegator } from '../http/delegated-request.ts';
import { plainLength } from './plain-request.ts';
import type { Head } from './scan-head.ts';

/** Requests in a row that Node gets one by one, which costs more each than its own connections do; then it gets those, too. */
const IN_A_ROW_MAX = 8;

/** The requests of a connection that Node answers one by one. */
export class Delegations {
  /** Gives Node a connection, as if it had been accepted just now. */
  readonly giveToNode: (connection: Duplex) => void;
  /** The request that Node answers now. */
  present: DelegatedRequest | undefined;
  /** Requests that Node got since one was answered in the lane. */
  inARow = 0;

  constructor(giveToNode: (connection: Duplex) => void) {
    this.giveToNode = giveToNode;
  }

  /** Returns the length of the request at the start of `bytes`, where Node may get it alone; 0 = it may not. */
  lengthOf(bytes: Buffer, head: Head): number {
    return this.inARow < IN_A_ROW_MAX ? plainLength(bytes, head) : 0;
  }

  /** Gives Node a request of `length`. @returns the bytes that are not of that request */
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
