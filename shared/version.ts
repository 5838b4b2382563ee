import { readFileSync } from 'node:fs';

/**
 * The version of this code, from package.json. In this folder, because the image bundles a verifier into a file of a folder
 * that lies as deep: a path from elsewhere would lead elsewhere there.
 */
export const VERSION: string = (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
