import type { Duplex } from 'node:stream';
import { type Lender, Loan } from '../http/loan.ts';
import { plainLength } from './plain-request.ts';

/** Requests in a row that Node gets one by one, which costs more each than its own connections do; then it gets those, too. */
const IN_A_ROW_MAX = 8;

/** The requests of a connection that Node answers one by one. */
export class Loans {
  /** Gives Node a connection, as if it had been accepted just now. */
  readonly giveToNode: (connection: Duplex) => void;
  /** The loan by which Node answers the request in hand. */
  present: Loan | undefined;
  /** Requests that Node got since one was answered in the lane. */
  inARow = 0;

  constructor(giveToNode: (connection: Duplex) => void) {
    this.giveToNode = giveToNode;
  }

  /** The length of the request at the start of `bytes`, where it may be lent; 0 = it may not. */
  lendable(bytes: Buffer): number {
    return this.inARow < IN_A_ROW_MAX ? plainLength(bytes) : 0;
  }

  /** Lends Node a request of `length`. @returns the bytes that are not of that request */
  lend(lender: Lender, bytes: Buffer, length: number): Buffer {
    const loan = new Loan(lender, length);
    this.present = loan;
    this.giveToNode(loan);
    return bytes.subarray(loan.carry(bytes));
  }

  returned(): void {
    this.present = undefined;
    this.inARow++;
  }
}
