/**
 * Locates a file that is read from disk. Only this file does so, because the image bundles the verifier into
 * one file in this folder: a relative path from any other folder would be wrong there.
 * @param path path below this folder, such as `redis/lua/sync.lua`
 */
export function asset(path: string): URL {
  return new URL(path, import.meta.url);
}
