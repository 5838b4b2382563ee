import type { Duplex } from 'node:stream';
import { DelegatedRequest, type Delegator } from '../node-internals/delegated-request.ts';
import {
  CONTENT_LENGTH,
  follows,
  type Head,
  HOST,
  headersOf,
  scanHead,
  TARGET,
  UPGRADE,
  VERSION,
} from './head.ts';

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
