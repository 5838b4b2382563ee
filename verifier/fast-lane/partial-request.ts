import { isFull, type Lane } from './lane.ts';

export const NO_BYTES = Buffer.alloc(0);

/** A request of which only a part is here. */
export class PartialRequest {
  /** The client's own, once the head is here; `''` = none was sent. Stays until the next one begins. */
  requestId = '';
  readonly #lane: Lane;
  #bytes: Buffer = NO_BYTES;
  #length = 0;
  /** Bytes of the whole request; 0 = its head is not whole, so that nobody knows. */
  #wholeLength = 0;

  constructor(lane: Lane) {
    this.#lane = lane;
  }

  /** The longest that it may take, milliseconds: as Node counts, from its first byte or from when the connection was opened. */
  get longestMs(): number {
    const { HEADERS_TIMEOUT_MS, REQUEST_TIMEOUT_MS } = this.#lane.options.limits;
    const wholeMs = REQUEST_TIMEOUT_MS || Number.POSITIVE_INFINITY;
    return this.#wholeLength > 0 ? wholeMs : Math.min(HEADERS_TIMEOUT_MS, wholeMs);
  }

  /**
   * Keeps a copy of what `bytes` hold from `from` on.
   * @param wholeLength bytes of the whole request; 0 = not known yet
   * @returns false where that would be more than may wait; then nothing is kept
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

  /** Adds what came; undefined = more is needed, else all of it, of which nothing is kept. */
  add(bytes: Buffer): Buffer | undefined {
    const length = this.#length + bytes.length;
    if (length > this.#bytes.length) return Buffer.concat([this.take(), bytes], length);
    this.#length += bytes.copy(this.#bytes, this.#length);
    return length < this.#wholeLength ? undefined : this.take();
  }

  /** Returns what is here of it and keeps nothing. */
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
