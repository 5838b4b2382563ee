/**
 * Locates a file that is read from disk. Here and nowhere else, because the image bundles the verifier into one file in
 * this folder: a path that begins anywhere else would lead elsewhere there.
 * @param path below this folder, such as `redis/lua/sync.lua`
 */
export function asset(path: string): URL {
  return new URL(path, import.meta.url);
}
