import type { Planting } from './planting.ts';

const SWAPPED: readonly (readonly [RegExp, string])[] = [
  [/==/g, '~='],
  [/~=/g, '=='],
  [/<(?!=)/g, '<='],
  [/>(?!=)/g, '>='],
  [/<=/g, '<'],
  [/>=/g, '>'],
  [/ and /g, ' or '],
  [/ or /g, ' and '],
  [/\bnot /g, ''],
  [/\bmath\.max\b/g, 'math.min'],
  [/(?<=[\w)]) \+ (?=\w)/g, ' - '],
  [/(?<=[\w)]) - (?=\w)/g, ' + '],
];

/** Mutants of a Lua script, found line by line. */
export function plantedInLua(text: string): Planting[] {
  const found: Planting[] = [];
  let at = 0;
  for (const line of text.split('\n')) {
    const code = codeOf(line);
    const add = (index: number, length: number, to: string) =>
      found.push({ start: at + index, end: at + index + length, to });
    // Operators only where no text stands.
    const bare = code.replace(/'[^']*'/g, (string) => '\0'.repeat(string.length));
    for (const [pattern, to] of SWAPPED)
      for (const match of bare.matchAll(pattern)) add(match.index, match[0].length, to);
    for (const match of bare.matchAll(/(?<![\w.])\d+(?![\w.])/g))
      add(match.index, match[0].length, String(Number(match[0]) + 1));
    for (const match of code.matchAll(/(?<!call\()'([^'\s]+)'/g)) add(match.index, match[0].length, "''");
    for (const match of bare.matchAll(/\b(?:if|elseif) (.+) then/g)) {
      const start = match.index + match[0].indexOf(match[1] ?? '');
      for (const to of ['true', 'false']) add(start, match[1]?.length ?? 0, to);
    }
    const statement = /^( *)(redis\.p?call\(.*\)|[\w.[\]]+(?:, [\w.[\]]+)* = .+|return .+)$/.exec(code);
    if (statement && !code.includes('local ')) {
      const [, indent = '', body = ''] = statement;
      if (!body.startsWith('return') && balanced(body)) add(indent.length, body.length, '');
    }
    at += line.length + 1;
  }
  return found;
}

function codeOf(line: string): string {
  if (line.startsWith('#!')) return '';
  const comment = line.replace(/'[^']*'/g, (string) => '\0'.repeat(string.length)).indexOf('--');
  return comment < 0 ? line : line.slice(0, comment);
}

function balanced(code: string): boolean {
  const count = (pattern: RegExp) => code.match(pattern)?.length ?? 0;
  return count(/[({[]/g) === count(/[)}\]]/g);
}
