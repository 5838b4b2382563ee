/**
 * Returns the words of a text that may be keys: those of a line of a log, a URL or a header. What is escaped (`\n`, `%3D`)
 * or in Basic credentials is read in both forms, because a letter after a backslash may also belong to the word.
 */
export function wordsIn(text: string): readonly string[] {
  const plain = text
    .replace(/%(?:25)*([0-9a-f]{2})|\\+(?:u00|x)([0-9a-f]{2})/gi, (_, percent, hex) =>
      String.fromCharCode(Number.parseInt(percent ?? hex, 16)),
    )
    .replace(/\\+[a-z]/gi, ' ');
  const credentials = [...plain.matchAll(/\bBasic\s+([\w+/-]+)/gi)].map(([, base64 = '']) => textOf(base64));
  return [text, plain, ...credentials].flatMap((form) => form.split(/[^0-9A-Za-z_]+/));
}

/** Decodes base64 or base64url; '' = it is neither. */
function textOf(base64: string): string {
  try {
    return atob(base64.replaceAll('-', '+').replaceAll('_', '/'));
  } catch {
    return '';
  }
}
