import type { Readable } from 'node:stream';

/** Resolves with what `pattern` matches in a process's output, as soon as it is there. The rest of the output is dropped. */
export function untilPrinted(output: Readable, pattern: RegExp): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    let text = '';
    output.on('data', (chunk: Buffer) => {
      text += chunk;
      const found = pattern.exec(text);
      if (found) resolve(found);
    });
    output.once('end', () => reject(new Error(`ended without ${pattern}: ${text}`)));
  });
}
