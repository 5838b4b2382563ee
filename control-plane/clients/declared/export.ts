import { stringify } from 'yaml';
import { declaredDefinitions } from '../cli/declared-schema.ts';
import { inWords } from './durations.ts';
import { idOf } from './files.ts';
import { type Kind, rulesOf } from './kinds.ts';
import { type Call, READERS } from './present.ts';

type Fields = Readonly<Record<string, unknown>>;

/** Returns what a set declares, or everything, as documents of a file: the same text each time while nobody changes anything. */
export async function exported(
  call: Call,
  kinds: readonly Kind[],
  managedBy: string | undefined,
): Promise<string> {
  let text = '';
  for (const kind of kinds) {
    const names = Object.keys(declaredDefinitions()[kind]?.properties ?? {}).filter(
      (name) => name !== 'kind',
    );
    const answers = (await READERS[kind](call, [], managedBy, true)).filter(
      (answer) =>
        (managedBy === undefined || answer['managedBy'] === managedBy) &&
        rulesOf(kind).ids.every((name) => answer[name] !== undefined),
    );
    const ids = new Map(answers.map((answer) => [answer, idOf(kind, answer)]));
    const idIn = (answer: Fields) => ids.get(answer) ?? '';
    for (const answer of answers.toSorted((a, b) => (idIn(a) < idIn(b) ? -1 : 1)))
      text += `---\n${stringify({ kind, ...fieldsOf(names, answer) })}`;
  }
  return text;
}

/** Returns the fields of a thing as a file declares them, without those that say nothing. */
function fieldsOf(names: readonly string[], answer: Fields): Fields {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = declarable(name, name === 'remaining' ? beginOf(answer) : answer[name]);
      const saysNothing = value === undefined || (name === 'enabled' && value === true) || isEmpty(value);
      return saysNothing ? [] : [[name, value]];
    }),
  );
}

const isEmpty = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

/** Credits are spent: of those that are refilled, a new key begins with what a refill gives. */
const beginOf = ({ refill, remaining }: Fields): unknown =>
  remaining === undefined ? undefined : (Object(refill).amount ?? remaining);

/** Returns a value without what only answers have. */
function declarable(name: string, value: unknown): unknown {
  if (typeof value === 'number' && name === 'expires')
    return new Date(value).toISOString().replace('.000Z', 'Z');
  if (typeof value === 'number' && /^duration$|Ms$/.test(name)) return inWords(value);
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
  if (name === 'credits') fields['remaining'] = beginOf(fields);
  return Object.fromEntries(Object.entries(fields).map(([field, of]) => [field, declarable(field, of)]));
}
