import { basename, dirname } from 'node:path';
import { parseSync } from 'rolldown/utils';

/** Texts of files by their paths. */
type Files = ReadonlyMap<string, string>;

const linesIn = (text: string) => text.trimEnd().split('\n').length;

/** Lists the functions of more than `max` lines as `file: name`; one without a name has that of what holds it. */
export function longFunctions(files: Files, max: number): string[] {
  const long = new Set<string>();
  const visit = (file: string, text: string, node: object, holder: string) => {
    const { type = '', id, key, start = 0, end = 0 } = node as Partial<FunctionNode>;
    const name = id?.name ?? key?.name ?? holder;
    if (/^(?:Arrow)?Function/.test(type) && linesIn(text.slice(start, end)) > max)
      long.add(`${file}: ${name}`);
    for (const child of Object.values(node).flat())
      if (typeof child === 'object' && child !== null) visit(file, text, child, name);
  };
  for (const [file, text] of files) visit(file, text, parse(file, text), '');
  return [...long].sort();
}

function parse(file: string, text: string): object {
  const { program, errors } = parseSync(file, text, {});
  if (errors[0]) throw new Error(`${file} cannot be parsed: ${errors[0].message}`);
  return program;
}

/** Participles and pronouns that stand for no thing, and words that the glossary in CONTRIBUTING.md replaces. */
const NO_NAMES = new Set(
  [
    'asked given found known told shown said made meant taken left begun lent heard brought came wanted needed chosen',
    'nobody somebody anybody everybody nothing something anything everything none',
    'these those ours mine theirs which who what how why',
    'ties rights grants claims owner customer workspace journey trail loan lender decider ordinary isagain terms',
  ].flatMap((words) => words.split(' ')),
);

/** Lists the declared names that are among those words, as `file: name`. */
export function noNames(files: Files): string[] {
  const wrong = new Set<string>();
  for (const [file, text] of files) {
    const check = (node: unknown) => {
      for (const name of boundNames(node))
        if (NO_NAMES.has(name.replace(/^_/, '').toLowerCase())) wrong.add(`${file}: ${name}`);
    };
    const visit = (node: object) => {
      const { type = '', id, key, params, param, computed } = node as Partial<DeclarationNode>;
      if (/Declarat|^(?:Arrow)?Function|^Class/.test(type)) check(id);
      if (/^(?:PropertyDefinition|MethodDefinition|TSPropertySignature|TSMethodSignature)$/.test(type))
        if (!computed) check(key);
      if (Array.isArray(params)) params.forEach(check);
      if (type === 'CatchClause') check(param);
      for (const child of Object.values(node).flat())
        if (typeof child === 'object' && child !== null) visit(child);
    };
    visit(parse(file, text));
  }
  return [...wrong].sort();
}

/** Returns the names that a pattern, or a single name, binds. */
function boundNames(pattern: unknown): string[] {
  const { type = '', name, ...rest } = Object(pattern) as Partial<PatternNode>;
  if (/^(?:Private)?Identifier$/.test(type)) return [name ?? ''];
  const { properties, elements, left, argument, value, parameter } = rest;
  return [...(properties ?? []), ...(elements ?? []), left, argument, value, parameter].flatMap((part) =>
    typeof part === 'object' && part !== null ? boundNames(part) : [],
  );
}

interface DeclarationNode {
  readonly type: string;
  readonly id: unknown;
  readonly key: unknown;
  readonly computed: boolean;
  readonly params: unknown;
  readonly param: unknown;
}

interface PatternNode {
  readonly type: string;
  readonly name: string;
  readonly properties: readonly unknown[];
  readonly elements: readonly unknown[];
  readonly left: unknown;
  readonly argument: unknown;
  readonly value: unknown;
  readonly parameter: unknown;
}

interface FunctionNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly id: { readonly name?: string } | null;
  readonly key: { readonly name?: string };
}

/** Lists the files of more than `max` lines. */
export const longFiles = (files: Files, max: number): string[] =>
  [...files]
    .filter(([, text]) => linesIn(text) > max)
    .map(([file]) => file)
    .sort();

/** Lists the folders with more than `max` files. */
export function fullFolders(files: readonly string[], max: number): string[] {
  const folders = Map.groupBy(files, dirname);
  return [...folders].flatMap(([folder, { length }]) => (length > max ? [folder] : [])).sort();
}

/** Programs that share no names with each other: verifier, control plane, dashboard. */
const PROGRAMS = {
  verifier: /^(shared|verifier)\//,
  'control-plane': /^(shared|control-plane\/(?!dashboard))/,
  dashboard: /^control-plane\/dashboard/,
};
/** Folders that have a file for each resource, named after it: one thing, seen from several sides. */
const SIDES =
  /^control-plane\/(?:cli\/commands(?:\/keys)?|http\/operations|redis(?:\/(?:callers|keys|shared-log))?)$|^shared\/contract$/;
const sideOf = (file: string) => /^(?:control-plane\/(?:cli|http\/\w+|redis)|shared)/.exec(file)?.[0];

/** Lists the names that several files of a program have, as `program: name`, but for the sides of one resource, and `main`, in which a process begins. */
export function sharedNames(files: readonly string[]): string[] {
  const shared = Object.entries(PROGRAMS).flatMap(([program, pattern]) => {
    const named = Map.groupBy(
      files.filter((file) => pattern.test(file) && nameOf(file) !== 'main'),
      nameOf,
    );
    return [...named]
      .filter(([, same]) => same.length > 1 && !isOneResource(same))
      .map(([name]) => `${program}: ${name}`);
  });
  return shared.sort();
}

const nameOf = (file: string) => basename(file).replace(/\.tsx?$/, '');

const isOneResource = (files: readonly string[]) =>
  files.every((file) => SIDES.test(dirname(file))) && new Set(files.map(sideOf)).size === files.length;

/** Lists the names of exported types that one program has twice. */
export function namedTwice(files: Files): string[] {
  return Object.values(PROGRAMS).flatMap((program) => {
    const names = [...files]
      .filter(([file]) => program.test(file))
      .flatMap(([, text]) => [...text.matchAll(/^export (?:abstract )?(?:class|interface|type) (\w+)/gm)])
      .map(([, name = '']) => name);
    return names.filter((name, i) => names.indexOf(name) !== i);
  });
}

/** Lists the doc comments that begin with a question, which a reader has to turn into a statement first. */
export const asRiddles = (text: string): (string | undefined)[] =>
  [...text.matchAll(/\/\*\*\s+(?:\* )?((?:What|Who|Whose|How|Whether|Where|Why|Which)\b[^\n]*)/g)].map(
    ([, said]) => said,
  );
