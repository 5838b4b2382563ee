import { parseSync } from 'rolldown/utils';

/** Texts of files by their paths. */
type Files = ReadonlyMap<string, string>;

function parse(file: string, text: string): object {
  const { program, errors } = parseSync(file, text, {});
  if (errors[0]) throw new Error(`${file} cannot be parsed: ${errors[0].message}`);
  return program;
}

/** Participles and pronouns that stand for no thing, and words that CONTRIBUTING.md replaces. */
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

/** Lists the doc comments that begin with a question, which a reader has to turn into a statement first. */
export const asRiddles = (text: string): (string | undefined)[] =>
  [...text.matchAll(/\/\*\*\s+(?:\* )?((?:What|Who|Whose|How|Whether|Where|Why|Which)\b[^\n]*)/g)].map(
    ([, said]) => said,
  );
