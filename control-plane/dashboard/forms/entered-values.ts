import {
  type ConcurrencyInput,
  type LimitInput,
  limitOfText,
  limitText,
  type NamedLimit,
} from '#shared/protocol/records/limit.ts';
import { parseExactly } from '#shared/rules/json.ts';
import { InvalidField } from '../api/client.ts';

/** Formats named rate limits, one per line. */
export const limitsText = (limits: readonly NamedLimit[]): string =>
  limits.map((limit) => `${limit.name} ${limitText(limit)}`).join('\n');

/** Parses the form that `limitText` writes. Throws a Failure that names the field. */
export function limitOf(field: string, text: string): LimitInput {
  const limit = limitOfText(text, (json) => parseObject(field, json));
  if (limit === undefined) throw new InvalidField(field, 'must be a number of calls and a time');
  return limit;
}

/** Parses the form that `limitsText` writes. Throws a Failure that names the field. */
export const limitsOf = (field: string, text: string): NamedLimit[] =>
  text.split('\n').flatMap((line) => {
    const [name, ...rest] = line.trim().split(/\s+/);
    return name ? [{ name, ...limitOf(`${field}: ${name}`, rest.join(' ')) }] : [];
  });

/** Formats concurrency limits, one per line, such as `jobs 3`. */
export const concurrencyText = (limits: readonly ConcurrencyInput[]): string =>
  limits.map(({ name, limit }) => `${name} ${limit}`).join('\n');

/** Parses the form that `concurrencyText` writes. Throws a Failure that names the field. */
export const concurrencyOf = (field: string, text: string): ConcurrencyInput[] =>
  text.split('\n').flatMap((line) => {
    if (line.trim() === '') return [];
    const [, name, limit] = /^\s*(\S+)\s+(\d{1,10})\s*$/.exec(line) ?? [];
    if (name === undefined)
      throw new InvalidField(field, 'must be a name and a number a line, such as jobs 3');
    return [{ name, limit: Number(limit) }];
  });

/** Parses a JSON object that a user entered. Throws a Failure that names the field. */
export function parseObject(name: string, text: string): object {
  try {
    const value = parseExactly(text, () => {
      throw new Error('has a whole number of more than 53 bits; write it as a string');
    });
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch (error) {
    throw new InvalidField(name, (error as Error).message);
  }
  throw new InvalidField(name, 'must be a JSON object, such as {"plan": "pro"}');
}

/** Parses names that a user entered, separated by commas or lines. */
export const namesOf = (text: string): string[] =>
  text
    .split(/[,\n]/)
    .map((name) => name.trim())
    .filter((name) => name !== '');

/** Parses slugs that a user entered, separated by commas or spaces. */
export const slugsOf = (text: string): string[] => text.split(/[\s,]+/).filter((slug) => slug !== '');
