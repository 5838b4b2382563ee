/**
 * Locates a file that is read from disk. Only this file does so for what a verifier loads, because the image bundles the
 * verifier into one file in a folder beside this one: a relative path from any deeper folder would be wrong there.
 * @param path path from the project's root, such as `verifier/openapi.json`
 */
export function asset(path: string): URL {
  return new URL(`../${path}`, import.meta.url);
}
