/**
 * The same text, in one piece. V8 keeps a concatenation as its parts and joins them at every use, which is too slow for a
 * text that is part of every response.
 * @param text of Latin-1 only
 */
export function flattenString(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}
