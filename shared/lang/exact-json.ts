/** A run of digits that may be a whole number beyond the 53 bits of a double. */
const LONG_NUMBER = /\d{16}/;

/**
 * Parses JSON as `JSON.parse` does, but does not round whole numbers silently: one that no double holds is what `instead`
 * returns, or the error that it throws. Common parsers round it, or refuse it.
 */
export function parseExactly(text: string, instead: () => unknown): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  const reviver = (_name: string, value: unknown, context?: { readonly source?: string }) =>
    typeof value === 'number' && isRounded(value, context?.source ?? '') ? instead() : value;
  return JSON.parse(text, reviver);
}

const isRounded = (value: number, source: string): boolean =>
  /^-?\d{16,}$/.test(source) && (!Number.isFinite(value) || BigInt(source) !== BigInt(value));
