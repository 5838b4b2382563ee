/**
 * Returns the same text as one flat string. V8 stores a concatenation as its parts and joins them at every
 * use, which is too slow for a text that is part of every response.
 * @param text may contain only Latin-1
 */
export function flattenString(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}
