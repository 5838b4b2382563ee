import { isFull, type Lane } from './lane.ts';

export const NO_BYTES = Buffer.alloc(0);

/** The part of a request that has arrived. */
export class PartialRequest {
  /**
   * The client's own request id, once the head is complete; `''` = none. Stays until the next request begins.
   */
  requestId = '';
  readonly #lane: Lane;
  #bytes: Buffer = NO_BYTES;
  #length = 0;
  /** Length of the whole request, in bytes; 0 = not known, because the head is incomplete. */
  #wholeLength = 0;

  constructor(lane: Lane) {
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
    if (wholeLength > 0 && isFull(lane)) return false;
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
