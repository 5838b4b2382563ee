import { readFileSync } from 'node:fs';

/**
 * The version of this code, read from package.json. This file is in this folder because the image bundles a
 * verifier into a file at the same depth: only from this depth does the relative path lead to package.json in
 * both places.
 */
export const VERSION: string = (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
