import { isUtf8 } from 'node:buffer';

/** Maximum length of a line: enough for 8 KiB of meta and all other fields of a key. */
export const LINE_BYTES_MAX = 65_536;

/** One line of a file, without its line break. */
export interface InputLine {
  /** Line number, from 1. */
  readonly number: number;
  /** Offset of the next line, in bytes from the start of the file. */
  readonly end: number;
  /** undefined = longer than LINE_BYTES_MAX, or not UTF-8. */
  readonly text: string | undefined;
}

/**
 * Yields the lines of a file; memory is bounded by a chunk and LINE_BYTES_MAX.
 * @param chunks the file from `after.end` on
 * @param after the line before the first
 */
export async function* readLines(
  chunks: AsyncIterable<Buffer>,
  after: Pick<InputLine, 'number' | 'end'>,
): AsyncGenerator<InputLine> {
  let { number, end } = after;
  let parts: Buffer[] = [];
  let heldBytes = 0;
  const next = (breakBytes: number): InputLine => {
    number += 1;
    end += heldBytes + breakBytes;
    const bytes = Buffer.concat(parts);
    const text = heldBytes <= LINE_BYTES_MAX && isUtf8(bytes) ? bytes.toString() : undefined;
    parts = [];
    heldBytes = 0;
    return { number, end, text };
  };
  const hold = (bytes: Buffer) => {
    heldBytes += bytes.length;
    if (heldBytes <= LINE_BYTES_MAX) parts.push(bytes);
    else parts = [];
  };
  for await (const chunk of chunks) {
    let from = 0;
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, from)) {
      hold(chunk.subarray(from, at));
      yield next(1);
      from = at + 1;
    }
    if (from < chunk.length) hold(chunk.subarray(from));
  }
  if (heldBytes > 0) yield next(0);
}
