import { type Run, Script } from './script.ts';

type Value = string | number;
/** Values by their names; the name `...list` stands for all further values, and the last ones with a `?` may be absent. */
type Inputs<Name extends string> = {
  readonly [N in Name as N extends `...${infer List}`
    ? List
    : N extends `${string}?`
      ? never
      : N]: N extends `...${string}` ? readonly Value[] : Value;
} & { readonly [N in Name as N extends `${infer Optional}?` ? Optional : never]?: Value };

/**
 * Declares a script with names for its keys and arguments, in their order. The script finds them in local variables of these names, and
 * those after `...` in a list.
 * @param file its location, usually `new URL('./lua/name.lua', import.meta.url)`
 * @param read reads the reply; see `row` and `oneOf`
 * @param locals further Lua that comes before the script's own
 */
export function command<Key extends string, Name extends string, T>(
  file: URL,
  keys: readonly Key[],
  args: readonly Name[],
  read: (reply: unknown) => T,
  locals = '',
): (inputs: Inputs<Key | Name>) => Run<T> {
  const script = new Script(file, localsOf('KEYS', keys) + localsOf('ARGV', args) + locals);
  const fieldsOf = (names: readonly string[]) => names.map((name) => name.replace(/^\.\.\.|\?$/, ''));
  const [keyFields, argFields] = [fieldsOf(keys), fieldsOf(args)];
  return (inputs) => ({
    script,
    keys: valuesOf(inputs, keyFields).map(String),
    args: valuesOf(inputs, argFields),
    read,
  });
}

function valuesOf(inputs: object, fields: readonly string[]): Value[] {
  const values: Value[] = [];
  for (const field of fields) {
    const value = (inputs as Readonly<Record<string, Value | readonly Value[] | undefined>>)[field];
    if (typeof value === 'object') for (const each of value) values.push(each);
    else if (value !== undefined) values.push(value);
  }
  return values;
}

/** Values that Lua's `unpack` may return, which is faster than a loop: its stack is limited. */
const UNPACKED_MAX = 1000;

/** Lua that names the values of a list. */
function localsOf(list: 'KEYS' | 'ARGV', names: readonly string[]): string {
  const single = names.filter((name) => !name.startsWith('...'));
  const count = single.length;
  const rest = names.slice(count).map((name) => name.slice(3));
  return [
    count > 0 ? `local ${single.join(', ').replaceAll('?', '')} = unpack(${list}, 1, ${count}) ` : '',
    ...rest.map(
      (name) =>
        `local ${name} = #${list} < ${UNPACKED_MAX} and {unpack(${list}, ${count + 1})} or {} for i = ${count + 1} + #${name}, #${list} do ${name}[i - ${count}] = ${list}[i] end `,
    ),
  ].join('');
}

/**
 * The name of a part of a reply: `a#` is a number, `a[]` a list of texts, `...a` a list of all further texts, `...a[]` one
 * of all further lists, any other a text, `''` where Redis has none.
 */
type Part<Name extends string> = Name extends `${string}#`
  ? number
  : Name extends `...${string}[]`
    ? readonly (readonly string[])[]
    : Name extends `...${string}` | `${string}[]`
      ? readonly string[]
      : string;
type Row<Name extends string> = {
  readonly [N in Name as N extends `...${infer List}[]` | `...${infer List}`
    ? List
    : N extends `${infer Other}#` | `${infer Other}[]`
      ? Other
      : N]: Part<N>;
};

/** Reads a list of texts, `''` where Redis has none. */
export const list = (reply: unknown): readonly string[] =>
  (reply as readonly unknown[]).map((text) => String(text ?? ''));

/** Reads a list of replies. */
export const each =
  <T>(read: (reply: unknown) => T) =>
  (replies: unknown): readonly T[] =>
    (replies as readonly unknown[]).map(read);

/** Reads a reply that is an empty list where there is nothing to read: undefined. */
export const unlessEmpty =
  <T>(read: (reply: unknown) => T) =>
  (reply: unknown): T | undefined =>
    (reply as readonly unknown[]).length === 0 ? undefined : read(reply);

/** Reads a list of parts. */
export const row = <Name extends string>(...names: readonly Name[]): ((reply: unknown) => Row<Name>) =>
  readerOf(names) as (reply: unknown) => Row<Name>;

/** Returns what reads parts of these names, which are understood once. */
function readerOf(names: readonly string[]): (parts: readonly unknown[]) => object {
  const fields = names.map((name, i): [string, (parts: readonly unknown[]) => unknown] => {
    if (/^\.{3}.*\[\]$/.test(name)) return [name.slice(3, -2), (parts) => parts.slice(i).map(list)];
    if (name.startsWith('...')) return [name.slice(3), (parts) => parts.slice(i)];
    if (name.endsWith('[]')) return [name.slice(0, -2), (parts) => list(parts[i] ?? [])];
    if (name.endsWith('#')) return [name.slice(0, -1), (parts) => Number(parts[i] ?? 0)];
    return [name, (parts) => parts[i] ?? ''];
  });
  return (parts) => {
    const result: Record<string, unknown> = {};
    for (const [field, read] of fields) result[field] = read(parts);
    return result;
  };
}

/**
 * Reads a reply that begins with its status, whose further parts depend on it. The status alone may be the reply.
 * @param tag name of the status in the result
 */
export function oneOf<Tag extends string, const Rows extends Readonly<Record<string, readonly string[]>>>(
  tag: Tag,
  rows: Rows,
) {
  const readers = new Map(Object.entries(rows).map(([status, names]) => [status, readerOf(names)]));
  return (reply: unknown) => {
    const [status, ...parts] = Array.isArray(reply) ? (reply as readonly unknown[]) : [reply];
    const read = readers.get(String(status));
    if (!read) throw new Error(`a script answered ${status}`);
    return { [tag]: status, ...read(parts) } as {
      [Status in keyof Rows]: { readonly [T in Tag]: Status } & Row<Rows[Status][number]>;
    }[keyof Rows];
  };
}
