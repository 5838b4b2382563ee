/**
 * Replaces chance in a call with an Idempotency-Key, so that a repetition after an interruption creates the same thing,
 * and not another.
 */
export interface Draw {
  /** The name of the call, where Redis remembers changes by their names. */
  readonly name: string;
  /** When the first call began. */
  readonly nowMs: number;
  /** Returns the same bytes for the same length. */
  readonly random: (length: number) => Buffer;
}
