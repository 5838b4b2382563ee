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
  for (const [file, text] of files) {
    const { program, errors } = parseSync(file, text, {});
    if (errors[0]) throw new Error(`${file} cannot be parsed: ${errors[0].message}`);
    visit(file, text, program, '');
  }
  return [...long].sort();
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
  /^control-plane\/(?:cli\/commands(?:\/keys)?|http\/operations|redis(?:\/(?:keys|shared-log))?)$|^shared\/contract$/;
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
