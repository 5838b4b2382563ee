import { styleText } from 'node:util';

/**
 * Makes foreign text safe to show: escapes, as JSON does, control characters and characters that reorder text,
 * so that a key's name cannot control the terminal. JSON text stays equivalent JSON.
 */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Formats one line of JSON that is safe to show. */
export const json = (value: unknown): string => printable(JSON.stringify(value));

type Cell = string | number | boolean | undefined;

/** Formats a line for each item, in named columns; an undefined cell is shown as a dash. */
export function table<T>(items: readonly T[], columns: Readonly<Record<string, (item: T) => Cell>>): string {
  const names = Object.keys(columns);
  const cells = items.map((item) => Object.values(columns).map((of) => printable(String(of(item) ?? '–'))));
  const widths = names.map((name, i) => Math.max(name.length, ...cells.map((row) => row[i]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd();
  return [styleText('bold', line(names)), ...cells.map(line)].join('\n');
}

/** Formats names and values, one per line; undefined values are left out. */
export function list(fields: Readonly<Record<string, Cell>>): string {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  return present
    .map(([name, value]) => `${styleText('bold', name.padEnd(width))}  ${printable(String(value))}`)
    .join('\n');
}

/** Formats Unix milliseconds for people, in UTC. */
export function time(ms: number | undefined): string | undefined {
  return ms === undefined ? undefined : new Date(ms).toISOString();
}

/** Formats a number with thousands separators. */
export const count = (n: number): string => n.toLocaleString('en');
