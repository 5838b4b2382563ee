import { styleText } from 'node:util';
import { type AnsweredLimit, limitCell } from '#shared/protocol/records/limit.ts';

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

/**
 * Makes what a command prints safe to show, wherever in it is foreign text: as `printable`, but keeps line breaks and the
 * styles of this program.
 */
export const safe = (text: string): string =>
  text
    .split(OWN_STYLES)
    .map((part, i) => (i % 2 === 1 ? part : part.split('\n').map(printable).join('\n')))
    .join('');

/** Bold, and the colours of the foreground. */
const OWN_STYLES = new RegExp(`(${String.fromCharCode(27)}\\[(?:1|22|3\\d)m)`);

/** Formats one line of JSON that is safe to show. */
export const json = (value: unknown): string => printable(JSON.stringify(value));

/** The columns of a table by their names: a field, shown in the form that its name and its value ask for, or a text. */
export type Columns<T> = Readonly<Record<string, string | ((item: T) => string | number | undefined)>>;

/** Returns columns of fields: `keyId created:createdAt` shows `createdAt` under the name `created`. */
export const columns = (text: string): Readonly<Record<string, string>> =>
  Object.fromEntries(text.split(' ').map((word) => [word.replace(/:.*/, ''), word.replace(/.*:/, '')]));

/** Formats what an item has in a column, for people; undefined = nothing. */
function cell<T>(item: T, of: Columns<T>[string]): string | undefined {
  if (typeof of === 'function') return of(item)?.toString();
  const value: unknown = Object(item)[of];
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value === 'number')
    return /(?:At|Until)$|^(?:time|expires)$/.test(of) ? time(value) : count(value);
  if (/^(?:ratelimits?|concurrency)$/.test(of))
    return (
      ([value].flat() as AnsweredLimit[]).map((limit) => limitCell(limit, count)).join(', ') || undefined
    );
  if (of === 'events' && String(value) === '*') return 'all';
  if (!Array.isArray(value)) return typeof value === 'object' ? JSON.stringify(value) : String(value);
  const words = value.map((each) => (Object.keys(each).join() === 'id,name' ? each.name : each));
  if (words.some((word) => typeof word !== 'string')) return JSON.stringify(value);
  return words.join(words.some((word) => word.includes(' ')) ? ', ' : ' ') || undefined;
}

/** Space between two columns. */
export const GAP = '  ';
/** Characters below which no column is cut. */
const COLUMN_WIDTH_MIN = 10;

/** Characters in a line of the terminal; elsewhere any number. */
export const lineWidth = (): number => process.stdout.columns || Number.POSITIVE_INFINITY;

/**
 * Formats a line for each item, in named columns; an undefined cell is shown as a dash. If a terminal has no room for
 * it, cuts the widest columns, but never the first, and leaves out the last ones if need be.
 * @param width characters in a line
 * @param isLastLess true = the last column is cut before any other, and then the first like the others
 */
export function table<T>(
  items: readonly T[],
  columns: Columns<T>,
  width = lineWidth(),
  isLastLess = false,
): string {
  const names = Object.keys(columns);
  const cells = items.map((item) => Object.values(columns).map((of) => printable(cell(item, of) ?? '–')));
  const widest = names.map((name, i) => Math.max(name.length, ...cells.map((row) => row[i]?.length ?? 0)));
  if (isLastLess) {
    const excess = lengthOf(widest) - width;
    const last = widest.length - 1;
    if (excess > 0) widest[last] = Math.max(COLUMN_WIDTH_MIN, (widest[last] ?? 0) - excess);
  }
  const widths = fittingWidths(widest, width, isLastLess ? 0 : 1);
  const line = (row: readonly string[]) =>
    widths
      .map((room, i) => dotted(cut(row[i] ?? '', room).padEnd(room)))
      .join(GAP)
      .trimEnd();
  return [styleText('bold', line(names)), ...cells.map(line)].join('\n');
}

/** Colours the dot in front of a state. */
const dotted = (text: string) =>
  text.startsWith(DOT)
    ? styleText(/^. (?:enabled|active)/.test(text) ? 'green' : 'red', '●') + text.slice(1)
    : text;
/** Stands before a state in a table. */
export const DOT = '● ';

const lengthOf = (widths: readonly number[]) =>
  widths.reduce((sum, each) => sum + each + GAP.length, -GAP.length);

const cut = (text: string, width: number) =>
  text.length > width ? `${text.slice(0, width - 1).trimEnd()}…` : text;

/** Returns the widths of the columns that a line of `width` characters has room for; the first `whole` stay as they are. */
function fittingWidths(widest: readonly number[], width: number, whole: number): number[] {
  const widths = [...widest];
  for (;;) {
    const excess = lengthOf(widths) - width;
    if (excess <= 0 || widths.length === 1) return widths;
    const [most = 0, next = 0] = widths.slice(whole).sort((a, b) => b - a);
    // The widest, as far as the next one; then both in turns.
    const less = Math.min(excess, Math.max(1, most - Math.max(next, COLUMN_WIDTH_MIN)));
    if (most <= COLUMN_WIDTH_MIN) widths.pop();
    else widths[widths.lastIndexOf(most)] = most - less;
  }
}

/** Formats the columns of one item, by default all its fields, one per line; those without a value are left out. */
export function list<T extends object>(
  item: T,
  columns: Columns<T> = Object.fromEntries(Object.keys(item).map((name) => [name, name])),
): string {
  const cells = Object.entries(columns).flatMap(([name, of]) => {
    const text = cell(item, of);
    return text === undefined ? [] : [[name, printable(text)] as const];
  });
  const width = Math.max(...cells.map(([name]) => name.length));
  return cells.map(([name, text]) => `${styleText('bold', name.padEnd(width))}  ${text}`).join('\n');
}

/** Formats Unix milliseconds: in the time zone of a terminal, elsewhere in UTC. */
export function time(ms: number | undefined): string | undefined {
  if (ms === undefined) return undefined;
  const at = new Date(ms);
  if (!process.stdout.isTTY) return at.toISOString();
  at.setMinutes(at.getMinutes() - at.getTimezoneOffset());
  return at.toISOString().slice(0, 19).replace('T', ' ');
}

/** Formats a number with thousands separators; the tables of `toLocaleString` would take each command 10 ms. */
export const count = (n: number): string => String(Number(n)).replace(/(?<!\.\d*)\B(?=(\d{3})+(?!\d))/g, ',');

/** Formats a time that has passed, in the largest fitting unit. */
export function age(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172_800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86_400)} d`;
}
