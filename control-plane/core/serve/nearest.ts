/** Texts longer than this have no nearest word: comparing costs the product of both lengths. */
const LENGTH_MAX = 64;

/**
 * Returns the word that a caller most likely meant, or undefined if none is near: case, hyphens and underscores do
 * not count, and at most a third of the letters may differ.
 */
export function nearest(text: string, words: Iterable<string>): string | undefined {
  if (text.length > LENGTH_MAX) return undefined;
  const typed = plain(text);
  let best: string | undefined;
  let distanceMax = Math.floor(typed.length / 3) + 1;
  for (const word of words) {
    const candidate = plain(word);
    if (Math.abs(candidate.length - typed.length) >= distanceMax) continue;
    const distance = distanceOf(typed, candidate);
    if (distance >= distanceMax) continue;
    best = word;
    distanceMax = distance;
  }
  return best;
}

const plain = (text: string) => text.slice(0, LENGTH_MAX).toLowerCase().replaceAll(/[-_]/g, '');

/** Number of letters to insert, remove or replace, or of neighbours to swap, between two texts. */
function distanceOf(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const line = [row];
    for (let column = 1; column <= b.length; column++) {
      const isSame = a[row - 1] === b[column - 1];
      const isSwap = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      line[column] = Math.min(
        at(last, column) + 1,
        at(line, column - 1) + 1,
        at(last, column - 1) + (isSame ? 0 : 1),
        isSwap ? at(beforeLast, column - 2) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    beforeLast = last;
    last = line;
  }
  return at(last, b.length);
}

const at = (line: readonly number[], column: number) => line[column] ?? Number.POSITIVE_INFINITY;
