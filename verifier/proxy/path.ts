/** Number of times that a path is decoded, because a server may decode it again after a gateway did. */
const DECODINGS = 3;

/**
 * Returns true if a server might read the path as one that leads above its beginning: with `..` in any
 * encoding, with `\` read as `/`, with parameters removed (`..;a`), or with empty segments ignored.
 * @param target path and query; only the path is checked
 */
export function mayClimb(target: string): boolean {
  const end = target.search(/[?#]/);
  let path = end < 0 ? target : target.slice(0, end);
  if (!/\.\.|%/.test(path)) return false;
  for (let i = 0; ; i++) {
    if (leads(path)) return true;
    const next = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
    if (next === path || i === DECODINGS) return false;
    path = next;
  }
}

function leads(path: string): boolean {
  let depth = 0;
  for (const segment of path.split(/[/\\]/)) {
    // Some servers cut off parameters, blanks, and everything after a NUL.
    const [name = ''] = segment.split(/[;\0\s]/, 1);
    if (name === '..') depth--;
    else if (name !== '' && name !== '.') depth++;
    if (depth < 0) return true;
  }
  return false;
}
