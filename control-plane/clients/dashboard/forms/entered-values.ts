import { type LimitInput, limitOfText } from '#shared/protocol/records/limit.ts';
import { parseExactly } from '#shared/rules/json.ts';
import { InvalidField } from '../api/client.ts';

/** Parses the form that `limitText` writes. Throws a Failure that names the field. */
export function limitOf(field: string, text: string): LimitInput {
  const limit = limitOfText(text, (json) => parseObject(field, json));
  if (limit === undefined) throw new InvalidField(field, 'must be a number of calls and a time');
  return limit;
}

/** Parses the list of limits that `LimitRows` gives to a form. */
export const limitsOf = <T>(text: string): T[] => JSON.parse(text || '[]');

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
