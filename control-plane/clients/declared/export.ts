import { declaredDefinitions } from '../cli/declared-schema.ts';
import type { Kind } from './kinds.ts';

type Fields = Readonly<Record<string, unknown>>;

/** Returns the names of the fields that a file may declare of a thing. */
export const fieldNames = (kind: Kind): string[] =>
  Object.keys(declaredDefinitions()[kind]?.properties ?? {}).filter((name) => name !== 'kind');

/** Returns the fields of a thing as a file declares them, without those that say nothing. */
export function fieldsOf(names: readonly string[], answer: Fields): Fields {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = declarable(name, answer[name]);
      const saysNothing = value === undefined || (name === 'enabled' && value === true) || isEmpty(value);
      return saysNothing ? [] : [[name, value]];
    }),
  );
}

const isEmpty = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

/** Returns a value without what only answers have. */
function declarable(name: string, value: unknown): unknown {
  if (name === 'expires' && typeof value === 'number') return new Date(value).toISOString();
  if (name === 'meta' || typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => declarable('', item));
  const {
    lastRefillAt: _,
    remainingHeld: __,
    remainingLost: ___,
    ...fields
  } = value as Record<string, unknown>;
  // Of a quota, answers also show the longest period; `async: true` is the default.
  if ('interval' in fields) delete fields['duration'];
  if (fields['async'] === true) delete fields['async'];
  return Object.fromEntries(Object.entries(fields).map(([field, of]) => [field, declarable(field, of)]));
}
