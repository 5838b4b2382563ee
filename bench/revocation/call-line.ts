/** A call as a curl line tells it. */
export interface CallLine {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
}

/** Options with a value that a line may have. */
const VALUES: Readonly<Record<string, string>> = {
  ...{ '-X': 'method', '--request': 'method', '-H': 'header', '--header': 'header' },
  ...{
    '-d': 'data',
    '--data': 'data',
    '--data-raw': 'data',
    '--json': 'json',
    '--url': 'url',
    '-u': 'user',
    '--user': 'user',
  },
};
/** Options without a value that say nothing about the call. */
const FLAGS = /^(?:-[sSfLki]+|--silent|--show-error|--fail|--location|--compressed)$/;

/**
 * Reads a curl line with the options that calls of an API need.
 * @param where names the line in errors
 * @throws Error that names the line, what is wrong and what may stand there
 */
export function readCallLine(line: string, where: string): CallLine {
  const [command, ...given] = wordsOf(line, where);
  // curl takes `-sX POST` for `-s -X POST`.
  const words = given.map((word) => word.replace(/^-[sSfLki]+(?=[XHdu]$)/, '-'));
  if (command !== 'curl') throw new Error(`${where}: a line that begins with curl`);
  const headers: Record<string, string> = {};
  let [method, url, body]: (string | undefined)[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? '';
    if (FLAGS.test(word)) continue;
    if (!word.startsWith('-')) {
      if (url) throw new Error(`${where}: one address only, ${word} is a second one`);
      url = word;
      continue;
    }
    const kind = VALUES[word];
    const value = words[++i];
    if (!kind) throw new Error(`${where}: ${word} is not understood; use ${Object.keys(VALUES).join(', ')}`);
    if (value === undefined) throw new Error(`${where}: ${word} needs a value`);
    if (kind === 'method') method = value;
    else if (kind === 'url') url = value;
    else if (kind === 'header') {
      const at = value.indexOf(':');
      if (at < 1) throw new Error(`${where}: a header is written as 'Name: value'`);
      headers[value.slice(0, at).toLowerCase()] = value.slice(at + 1).trim();
    } else if (kind === 'user') headers['authorization'] = `Basic ${Buffer.from(value).toString('base64')}`;
    else {
      if (value.startsWith('@')) throw new Error(`${where}: a body stands in the line, not in a file`);
      body = value;
      headers['content-type'] ??= kind === 'json' ? 'application/json' : 'application/x-www-form-urlencoded';
    }
  }
  if (!url || !URL.canParse(url)) throw new Error(`${where}: an address such as http://127.0.0.1:3001/`);
  return { method: method ?? (body === undefined ? 'GET' : 'POST'), url, headers, body };
}

/** Splits a line as a shell does: quotes, and a backslash before one character. */
function wordsOf(line: string, where: string): string[] {
  const words: string[] = [];
  const parts = /\s+|'([^']*)'|"((?:\\.|[^"\\])*)"|\\([\s\S])|([^\s'"\\]+)|(.)/gy;
  let word: string | undefined;
  for (const [text, single, double, escaped, plain, stray] of line.matchAll(parts)) {
    if (stray !== undefined) throw new Error(`${where}: the quote ${stray} is not closed`);
    if (/^\s/.test(text) && escaped === undefined && single === undefined && double === undefined) {
      if (word !== undefined) words.push(word);
      word = undefined;
      continue;
    }
    if (escaped === '\n') continue;
    word = (word ?? '') + (single ?? double?.replaceAll(/\\(["\\$`])/g, '$1') ?? escaped ?? plain ?? '');
  }
  if (word !== undefined) words.push(word);
  return words;
}
