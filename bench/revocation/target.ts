import { type CallLine, readCallLine } from './call-line.ts';

/** Tells an answer apart by its status and by a text in its body. */
export interface Expectation {
  readonly status: number;
  /** A text that the body has; undefined = any body. */
  readonly has: string | undefined;
}

/** A system whose revocations are measured. */
export interface Target {
  readonly name: string;
  /** Text for people: what must run before, and what is special. */
  readonly about: string;
  /** Variables for the lines after it, each with its path in the answer, such as `key` or `data.id`. */
  readonly take: Readonly<Record<string, string>>;
  create(): CallLine;
  /** A line for each instance that is asked. */
  asks(variables: Variables): CallLine[];
  readonly accepted: Expectation;
  revoke(variables: Variables): CallLine;
  /** The answer that claims that the key is refused from now on. */
  readonly claim: Expectation;
}

export type Variables = Readonly<Record<string, string | undefined>>;

/**
 * Reads a target file.
 * @param environment variables that lines may use as `$NAME`, besides those that `take` names
 * @throws Error that names the field, the rule and the fix
 */
export function readTarget(text: string, environment: Variables): Target {
  const file = objectOf(parsed(text), 'the file', ['name', 'about', 'create', 'ask', 'revoke']);
  const create = objectOf(file['create'], 'create', ['curl', 'take']);
  const ask = objectOf(file['ask'], 'ask', ['curl', 'accepted']);
  const revoke = objectOf(file['revoke'], 'revoke', ['curl', 'claim']);
  const take = Object.fromEntries(
    Object.entries(objectOf(create['take'], 'create.take')).map(([name, path]) => [
      name,
      textOf(path, `create.take.${name}`),
    ]),
  );
  const asks = Array.isArray(ask['curl']) ? ask['curl'] : [ask['curl']];
  const lines = asks.map((line, i) => textOf(line, `ask.curl[${i}]`));
  if (lines.length === 0) throw new Error('ask.curl: at least one line');
  const read = (line: string, where: string, taken: Variables) =>
    readCallLine(filled(line, where, { ...environment, ...taken }), where);
  return {
    name: textOf(file['name'], 'name'),
    about: file['about'] === undefined ? '' : textOf(file['about'], 'about'),
    take,
    create: () => read(textOf(create['curl'], 'create.curl'), 'create.curl', {}),
    asks: (taken) => lines.map((line, i) => read(line, `ask.curl[${i}]`, taken)),
    accepted: expectationOf(ask['accepted'], 'ask.accepted'),
    revoke: (taken) => read(textOf(revoke['curl'], 'revoke.curl'), 'revoke.curl', taken),
    claim: expectationOf(revoke['claim'], 'revoke.claim'),
  };
}

/** True if this is the answer that is expected. */
export const fits = ({ status, has }: Expectation, answer: { status: number; body: string }): boolean =>
  answer.status === status && (has === undefined || answer.body.includes(has));

/** The values that `take` names, out of the answer to `create`. */
export function takenFrom(take: Target['take'], body: string): Record<string, string> {
  return Object.fromEntries(
    Object.entries(take).map(([name, path]) => {
      let value: unknown = parsed(body);
      for (const part of path.split('.')) value = (value as Record<string, unknown> | undefined)?.[part];
      if (typeof value !== 'string' && typeof value !== 'number')
        throw new Error(`create.take.${name}: the answer has no ${path}`);
      return [name, String(value)];
    }),
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`not JSON: ${(error as Error).message}`);
  }
}

/** Fills in `$NAME`, everywhere in a line: the lines of a target are no program of a shell. */
function filled(line: string, where: string, variables: Variables): string {
  return line.replaceAll(/\$([A-Z][A-Z0-9_]*)/g, (_, name: string) => {
    const value = variables[name];
    if (value === undefined)
      throw new Error(`${where}: $${name} is not known; set it in the environment or take it`);
    return value;
  });
}

function objectOf(value: unknown, where: string, fields?: readonly string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error(`${where}: an object with ${fields ? fields.join(', ') : 'names and paths'}`);
  const other = Object.keys(value).find((name) => fields && !fields.includes(name));
  if (other) throw new Error(`${where}: ${other} is not known; it has ${fields?.join(', ')}`);
  return value as Record<string, unknown>;
}

function textOf(value: unknown, where: string): string {
  if (typeof value !== 'string' || value === '') throw new Error(`${where}: a text`);
  return value;
}

function expectationOf(value: unknown, where: string): Expectation {
  const { status, has } = objectOf(value, where, ['status', 'has']);
  if (typeof status !== 'number') throw new Error(`${where}.status: the number of a status, such as 200`);
  return { status, has: has === undefined ? undefined : textOf(has, `${where}.has`) };
}
