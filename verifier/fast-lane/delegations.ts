import type { Duplex } from 'node:stream';
import { DelegatedRequest, type Delegator } from '../http/delegated-request.ts';
import { plainLength } from './plain-request.ts';
import type { Head } from './scan-head.ts';

/**
 * Maximum number of consecutive requests to delegate one by one. Each costs more than on a connection of
 * Node's own, so Node then gets the connection itself.
 */
const IN_A_ROW_MAX = 8;

/** The requests of a connection that Node answers one by one. */
export class Delegations {
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
