import { type NamedLimit, wholeLimit, wholeNamedLimit } from '#shared/protocol/records/limit.ts';
import { count, printable } from '../cli/terminal/output.ts';
import type { FieldChange } from './compare.ts';
import { inWords } from './durations.ts';

type Fields = Readonly<Record<string, unknown>>;

/** Returns a difference as people read it, in lines: only what would change, of a list what it loses and gets. */
export function linesOf({ field, before, after }: FieldChange): string[] {
  const lines = differences(field, whole(field, before), whole(field, after));
  return lines.length > 0 ? lines : [arrow(field, before, after)];
}

const arrow = (path: string, before: unknown, after: unknown) =>
  printable(`${path}: ${valueText(path, before)} → ${valueText(path, after)}`);

function differences(path: string, before: unknown, after: unknown): string[] {
  const [a, b] = [before ?? [], after ?? []];
  if (isListOf(a, isText) && isListOf(b, isText)) return changedItems(path, a, b);
  if (isListOf(a, isNamed) && isListOf(b, isNamed)) {
    const names = new Set([...a, ...b].map(({ name }) => name));
    return [...names].flatMap((name) => {
      const [from, to] = [a, b].map((list) => list.find((each) => each.name === name));
      if (!from || !to) return [printable(`${path}: ${to ? '+' : '-'} ${textOfNamed(to ?? from)}`)];
      return differences(`${path}.${name}`, from, to);
    });
  }
  if (isFields(before) && isFields(after)) {
    // A file need not mention all fields of what is one field of the interface.
    const names = path === 'credits' ? Object.keys(after) : Object.keys({ ...before, ...after });
    return names.flatMap((name) => differences(`${path}.${name}`, before[name], after[name]));
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [arrow(path, before, after)];
}

function changedItems(path: string, before: readonly string[], after: readonly string[]): string[] {
  const removed = before.filter((item) => !after.includes(item)).map((item) => `- ${item}`);
  const added = after.filter((item) => !before.includes(item)).map((item) => `+ ${item}`);
  const all = [...removed, ...added];
  if (all.length > 0) return [printable(`${path}: ${all.join(', ')}`)];
  // Of some lists the order counts.
  return before.join() === after.join() ? [] : [arrow(path, before, after)];
}

/** Returns limits with their defaults, so that a default that a file leaves out is no difference. */
function whole(field: string, value: unknown): unknown {
  if (field === 'ratelimit' && isFields(value))
    return withoutLongest(wholeLimit(value as unknown as NamedLimit));
  if (field === 'ratelimits' && Array.isArray(value))
    return value.map((one) => withoutLongest(wholeNamedLimit(one)));
  if (field === 'concurrency' && Array.isArray(value))
    return value.map(({ per, ...others }) => (per === 'identity' ? { ...others, per } : others));
  return value;
}

/** The duration of a quota is that of its interval. */
const withoutLongest = ({ duration, ...limit }: { readonly duration: number; readonly interval?: string }) =>
  limit.interval === undefined ? { ...limit, duration } : limit;

const isText = (value: unknown): value is string => typeof value === 'string';
const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isNamed = (value: unknown): value is Fields & { readonly name: string } =>
  isFields(value) && isText(value['name']);
const isListOf = <T>(value: unknown, is: (item: unknown) => item is T): value is T[] =>
  Array.isArray(value) && value.every(is);

const textOfNamed = (item: (Fields & { readonly name: string }) | undefined) => {
  const { name = '', ...others } = item ?? {};
  const parts = Object.entries(others).map(([field, value]) => `${field} ${valueText(field, value)}`);
  return `${String(name)} (${parts.join(', ')})`;
};

function valueText(path: string, value: unknown): string {
  if (value === undefined || value === null) return 'none';
  if (typeof value !== 'number') return JSON.stringify(value);
  if (path === 'expires') return new Date(value).toISOString();
  return /(?:^|\.)duration$|Ms$/.test(path) ? inWords(value) : count(value);
}
