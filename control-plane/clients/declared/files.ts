import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import Schema from 'typebox/schema';
import {
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  LineCounter,
  type Node,
  parseAllDocuments,
  visit,
} from 'yaml';
import { fileError } from '../cli/commands/checkpoint.ts';
import { declaredDefinitions } from '../cli/declared-schema.ts';
import { CliError } from '../cli/exit.ts';
import { printable } from '../cli/terminal/output.ts';
import { EXACT_TIME_RULE, exactTime } from '../client/exact-time.ts';
import { msOf } from './durations.ts';
import { KIND_NAMES, type Kind, rulesOf } from './kinds.ts';

/** Limits of what is read, so that no file exhausts the memory. */
const FILES_MAX = 1000;
const BYTES_MAX = 16 * 1024 * 1024;
const OBJECTS_MAX = 20_000;
/** Levels of a document; a key's meta may have 32. */
const DEPTH_MAX = 40;
const TOO_DEEP = `nested deeper than ${DEPTH_MAX} levels`;
/** Maximum number of faults that are told. */
const FAULTS_MAX = 20;

/** A thing that a file declares. */
export interface Declared {
  readonly kind: Kind;
  /** The kind and the names of the thing, as people read it; no other thing has it. */
  readonly id: string;
  /** The fields as operations take them, without `secret`. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly secret?: { readonly file?: string; readonly sha256?: string };
  /** `file:line:column`. */
  readonly place: string;
}

/** Returns how people read a thing of these fields: `Key shop/acme-ci`. */
export const idOf = (kind: Kind, fields: Readonly<Record<string, unknown>>): string =>
  `${kind} ${rulesOf(kind)
    .ids.map((name) => String(fields[name]))
    .join('/')}`;

interface Validator {
  readonly definition: object;
  readonly isValid: (value: unknown) => boolean;
}

function validators(): Readonly<Record<Kind, Validator>> {
  const definitions = declaredDefinitions();
  const entries = KIND_NAMES.map((kind) => {
    const definition = definitions[kind] ?? {};
    const compiled = Schema.Compile(definition);
    return [kind, { definition, isValid: (value: unknown) => compiled.Check(value) }];
  });
  return Object.fromEntries(entries) as Record<Kind, Validator>;
}

/** Returns the YAML files at these paths; of a folder all, in the order of their names. */
function filesAt(paths: readonly string[]): string[] {
  const files = paths.flatMap((path) => {
    try {
      if (!statSync(path).isDirectory()) return [path];
      return readdirSync(path, { recursive: true, withFileTypes: true })
        .filter((entry) => /\.ya?ml$/.test(entry.name) && (entry.isFile() || entry.isSymbolicLink()))
        .map((entry) => join(entry.parentPath, entry.name))
        .filter((file) => statSync(file).isFile())
        .sort();
    } catch (error) {
      throw fileError(path, error);
    }
  });
  if (files.length > FILES_MAX)
    throw new CliError('USAGE', `-f: ${files.length} files are more than ${FILES_MAX}`);
  if (files.length === 0) throw new CliError('USAGE', `-f: no .yaml file in ${paths.join(', ')}`);
  return [...new Set(files)];
}

/**
 * Reads what files declare. Rejects with USAGE that names each fault by file, line and column; nothing of a file counts if one
 * has a fault.
 */
export function readDeclared(paths: readonly string[]): Declared[] {
  const rules = validators();
  const faults: string[] = [];
  const all = new Map<string, Declared>();
  const secrets = new Map<string, Declared>();
  let bytes = 0;
  for (const file of filesAt(paths)) {
    let text: string;
    try {
      bytes += statSync(file).size;
      if (bytes > BYTES_MAX) throw new CliError('USAGE', `-f: the files have more than ${BYTES_MAX} bytes`);
      text = readFileSync(file, 'utf8');
    } catch (error) {
      throw error instanceof CliError ? error : fileError(file, error);
    }
    for (const { value, at } of documentsIn(file, text, faults)) {
      const declared = declaredIn(value, at, rules, faults);
      if (!declared) continue;
      const twin = all.get(declared.id);
      if (twin)
        faults.push(`${declared.place}: ${declared.id} is declared at ${twin.place} already; keep one`);
      const { file: secretFile } = declared.secret ?? {};
      const other = secretFile === undefined ? undefined : secrets.get(secretFile);
      if (other && other.id !== declared.id)
        faults.push(`${declared.place}: secret.file: ${other.id} has the same; give each a file of its own`);
      if (secretFile !== undefined) secrets.set(secretFile, declared);
      all.set(declared.id, declared);
      if (all.size > OBJECTS_MAX) throw new CliError('USAGE', `-f: more than ${OBJECTS_MAX} things`);
    }
  }
  if (faults.length > 0) {
    const rest = faults.length > FAULTS_MAX ? [`and ${faults.length - FAULTS_MAX} more`] : [];
    throw new CliError('USAGE', [...faults.slice(0, FAULTS_MAX), ...rest].map(printable).join('\n'));
  }
  return [...all.values()];
}

interface YamlDocument {
  readonly value: unknown;
  /** Returns the `file:line:column` of the part at a path. */
  readonly at: (path?: readonly string[]) => string;
}

function documentsIn(file: string, text: string, faults: string[]): YamlDocument[] {
  const lines = new LineCounter();
  const placeOf = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return `${file}:${line}:${col}`;
  };
  if (nesting(text) > DEPTH_MAX) {
    faults.push(`${file}:1:1: ${TOO_DEEP}`);
    return [];
  }
  // An alias makes a small file a large one, so there are none.
  const options = { lineCounter: lines, prettyErrors: false, logLevel: 'silent', merge: false } as const;
  let parsed: ReturnType<typeof parseAllDocuments>;
  try {
    parsed = parseAllDocuments(text, options);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    faults.push(`${file}:1:1: ${TOO_DEEP}`);
    return [];
  }
  return [...parsed].flatMap((document): YamlDocument[] => {
    const before = faults.length;
    for (const { message, pos } of [...document.errors, ...document.warnings])
      faults.push(`${placeOf(pos[0])}: ${/call stack/.test(message) ? TOO_DEEP : message}`);
    if (faults.length > before || document.contents === null) return [];
    visit(document, (_key, node, path) => {
      if (faults.length > before) return visit.BREAK;
      const isNode = isCollection(node) || isScalar(node) || isAlias(node);
      const offset = isNode ? (node.range?.[0] ?? 0) : 0;
      if (isAlias(node) || (isNode && node.anchor !== undefined))
        faults.push(`${placeOf(offset)}: must have no anchor and no alias; write the value out`);
      else if (path.length > 2 * DEPTH_MAX) faults.push(`${placeOf(offset)}: ${TOO_DEEP}`);
      else if (isScalar(node) && typeof node.value === 'number' && !isExact(node.value, node.source))
        faults.push(`${placeOf(offset)}: ${EXACT_NUMBER_RULE}`);
      else if (isPair(node) && !(isScalar(node.key) && typeof node.key.value === 'string'))
        faults.push(
          `${placeOf((node.key as Node | null)?.range?.[0] ?? 0)}: the name of a field must be a text`,
        );
      return undefined;
    });
    if (faults.length > before) return [];
    const at = (path: readonly string[] = []) => {
      let node: unknown = document.contents;
      let offset = isCollection(node) ? (node.range?.[0] ?? 0) : 0;
      for (const part of path) {
        if (isMap(node)) {
          const pair = node.items.find(({ key }) => isScalar(key) && key.value === part);
          if (!pair) break;
          offset = (pair.key as Node).range?.[0] ?? offset;
          node = pair.value;
        } else if (isCollection(node)) {
          node = node.items[Number(part)];
          offset = (node as Node | undefined)?.range?.[0] ?? offset;
        } else break;
      }
      return placeOf(offset);
    };
    return [{ value: document.toJS({ maxAliasCount: 0 }), at }];
  });
}

const EXACT_NUMBER_RULE =
  'must be a number in decimal digits, and a whole one of at most 9007199254740991; write text in quotes';

/** Tells whether a number is what people read: 017, 0o17, 0x1f, .nan and digits that would be rounded are not. */
const isExact = (value: number, source = '') =>
  /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(source) &&
  Number.isFinite(value) &&
  (!Number.isInteger(value) || Number.isSafeInteger(value));

/** Returns how deep the brackets of a text are nested, before a parser follows them. */
function nesting(text: string): number {
  let depth = 0;
  let most = 0;
  for (const char of text) {
    if (char === '[' || char === '{') most = Math.max(most, ++depth);
    else if (char === ']' || char === '}') depth = Math.max(0, depth - 1);
  }
  return most;
}

function declaredIn(
  value: unknown,
  at: YamlDocument['at'],
  rules: Readonly<Record<Kind, Validator>>,
  faults: string[],
): Declared | undefined {
  const kind = KIND_NAMES.find((name) => name === Object(value).kind);
  if (kind === undefined) {
    faults.push(`${at(['kind'])}: kind: must be one of ${KIND_NAMES.join(', ')}`);
    return undefined;
  }
  const { definition, isValid } = rules[kind];
  if (!isValid(value)) {
    for (const fault of schemaFaults(definition, value)) faults.push(`${at(fault.path)}: ${fault.text}`);
    return undefined;
  }
  const expires = Object(value).expires as unknown;
  if (typeof expires === 'string' && exactTime(expires) === undefined) {
    faults.push(`${at(['expires'])}: expires: ${EXACT_TIME_RULE}`);
    return undefined;
  }
  const { kind: _, secret, ...fields } = value as { secret?: Declared['secret'] } & Record<string, unknown>;
  const place = at();
  // Whole, so that a plan means the same file from another folder.
  const file = secret?.file && resolve(dirname(place.replace(/:\d+:\d+$/, '')), secret.file);
  return {
    ...{ kind, id: idOf(kind, fields), place, fields: inMs(fields) as Declared['fields'] },
    ...(secret ? { secret: file ? { file } : secret } : {}),
  };
}

interface Fault {
  readonly path: readonly string[];
  readonly text: string;
}

/** Returns what is wrong with a value: of several rules for one place, the first, or all forms that it may have. */
function schemaFaults(definition: object, value: unknown): Fault[] {
  const [, errors] = Schema.Errors(definition, value);
  const faults = new Map<string, Fault>();
  /** The places with a choice of forms. */
  const choices = new Set(
    errors.filter(({ keyword }) => keyword === 'anyOf').map((error) => error.instancePath),
  );
  for (const { keyword, instancePath, params, message } of errors) {
    const path = instancePath.split('/').slice(1).map(unescaped);
    const { additionalProperties, requiredProperties, allowedValues, limit } = params as Record<
      string,
      unknown
    >;
    const add = (to: readonly string[], rule: string) => {
      const field = to.join('.');
      const { text } = faults.get(field) ?? {};
      if (text === undefined) faults.set(field, { path: to, text: field ? `${field}: ${rule}` : rule });
      else if (choices.has(instancePath) && to.length === path.length && !text.includes(rule))
        faults.set(field, { path: to, text: `${text}, or ${rule}` });
    };
    if (Array.isArray(additionalProperties))
      for (const name of additionalProperties)
        add([...path, name], `unknown field${nearestIn(definition, path, name)}`);
    else if (Array.isArray(requiredProperties))
      for (const name of requiredProperties) add([...path, name], 'required');
    else if (keyword === 'boolean' || keyword === 'anyOf') continue;
    else
      add(
        path,
        `${message}${allowedValues ? ` ${String(allowedValues)}` : ''}${limit === undefined || message.includes(String(limit)) ? '' : ` (${String(limit)})`}`,
      );
  }
  return faults.size > 0 ? [...faults.values()] : [{ path: [], text: 'does not fit the schema' }];
}

const unescaped = (part: string) => part.replaceAll('~1', '/').replaceAll('~0', '~');

/** Names the fields that a thing may have, where one is unknown. */
function nearestIn(definition: object, path: readonly string[], name: string): string {
  if (path.length > 0) return '';
  const names = Object.keys((definition as { properties: object }).properties);
  const near = names.find(
    (each) => each.toLowerCase() === name.toLowerCase() || each.startsWith(name.slice(0, 4)),
  );
  return near ? `; did you mean ${near}?` : `; there are ${names.join(', ')}`;
}

/** Returns a value with its times in milliseconds, which files may have in words. */
function inMs(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => inMs(item));
  if (typeof value === 'object' && value !== null && name !== 'meta')
    return Object.fromEntries(Object.entries(value).map(([field, of]) => [field, inMs(of, field)]));
  if (typeof value !== 'string') return value;
  if (name === 'expires') return exactTime(value);
  return (/^duration$|Ms$/.test(name) ? msOf(value) : undefined) ?? value;
}
