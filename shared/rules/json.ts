/** A number that JSON may write otherwise: one of many digits, or with an exponent. Hashes and ids in texts do not count. */
const LONG_NUMBER = /[:[,]\s*-?(?:[\d.]{16}|[\d.]+[eE])/;

/**
 * Parses JSON as `JSON.parse` does, but does not round whole numbers silently: one that would be written as another number
 * is what `instead` returns, or the error that it throws. Common parsers round it, or refuse it.
 */
export function parseExactly(text: string, instead: () => unknown): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  const reviver = (_name: string, value: unknown, context?: { readonly source?: string }) =>
    typeof value === 'number' && isRounded(value, context?.source ?? '') ? instead() : value;
  return JSON.parse(text, reviver);
}

function isRounded(value: number, source: string): boolean {
  const { digits, exponent } = decimal(source);
  if (digits === '' || exponent < 0) return digits !== '' && value === 0;
  const written = decimal(JSON.stringify(value));
  return written.digits !== digits || written.exponent !== exponent;
}

/** Returns the digits of a number without zeros at either end, and the power of ten of the last one. */
function decimal(text: string): { readonly digits: string; readonly exponent: number } {
  const [, whole = '', fraction = '', power = '0'] =
    /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const all = `${whole}${fraction}`.replace(/^0+/, '');
  const digits = all.replace(/0+$/, '');
  return { digits, exponent: Number(power) - fraction.length + all.length - digits.length };
}

/** A mark that some editors put before a text. RFC 8259 forbids it before JSON, and no body may begin with it. */
export const BYTE_ORDER_MARK = '\ufeff';
/** The error about a body that does. */
export const MARKED = 'body: is not JSON; leave out the byte-order mark at its beginning';
