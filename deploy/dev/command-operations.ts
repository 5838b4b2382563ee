import type { Field, OperationRow } from '../../control-plane/clients/cli/operations.ts';
import type { Operation } from '../../control-plane/core/serve/operation.ts';
import { operations } from '../../control-plane/operations.ts';
import { ALIASES } from '../../shared/protocol/records/key-record.ts';
import { MOMENT_PATTERN, UNIX_MS_MIN } from '../../shared/rules/unix-ms.ts';

/** The parts of a JSON schema that decide how a value is given on a command line. */
interface Schema {
  readonly type?: string;
  readonly anyOf?: readonly Schema[];
  readonly const?: unknown;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly default?: unknown;
  readonly description?: string;
  readonly items?: Schema;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
}

/** Returns what the command line has to know of the operations. */
export const commandOperations = (): OperationRow[] =>
  (operations as readonly Operation[]).map(
    ({ name, summary, description, request, response, example, adds }) => {
      const { properties = {}, required = [] } = request as Schema;
      const list = listOf(response);
      const isPaged = list !== undefined && 'cursor' in properties;
      const fields = Object.entries(properties)
        .filter(([field]) => !(field in ALIASES) && !(isPaged && /^(limit|cursor)$/.test(field)))
        .map(([field, schema]) => fieldOf(field, schema, required.includes(field)));
      const row = {
        name,
        words: wordsOf(name),
        summary,
        description,
        fields,
        example: { ...example },
        ...(adds ? { adds } : {}),
      };
      return list ? { ...row, list: { ...list, paged: isPaged } } : row;
    },
  );

/** Returns the words of a command: the group and the verb, and the noun if it is not what the group is about. */
function wordsOf(name: string): string {
  const [group = '', method = ''] = name.split('.');
  const [, verb = method, noun = ''] = /^([a-z]+)(.*)$/.exec(method) ?? [];
  const created = operations.flatMap(({ name }) => name.split(`${group}.create`)[1] ?? []);
  const own = [group.replace(/ies$/, 'y').replace(/s$/, ''), ...created].map((thing) =>
    (verb === 'list' ? `${thing.replace(/(?<![aeiou])y$/, 'ie')}s` : thing).toLowerCase(),
  );
  const words = `${group} ${own.includes(noun.toLowerCase()) ? verb : method}`;
  return words.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function fieldOf(name: string, schema: Schema, required: boolean): Field {
  const forms = (schema.anyOf ?? [schema]).filter(({ type }) => type !== 'null');
  const choices = forms.flatMap((form) => (form.const === undefined ? [] : [String(form.const)]));
  const [form = schema] = forms;
  const isFlag = form.type === 'boolean' || /^true(,false)?$/.test(choices.join());
  const kind = isFlag ? 'flag' : kindOf(name, form);
  const bounds = [form.minimum ?? 0, form.maximum ?? Number.MAX_SAFE_INTEGER] as const;
  return {
    ...{ name, kind },
    help: form.description ?? schema.description ?? '',
    ...(required && schema.default === undefined ? { required } : {}),
    ...(forms.length < (schema.anyOf?.length ?? 0) ? { clearable: true } : {}),
    ...(isFlag && schema.default !== undefined ? { byDefault: String(schema.default) === 'true' } : {}),
    ...(choices.length > 0 && !isFlag ? { choices } : {}),
    ...(kind === 'whole' ? { bounds } : {}),
  };
}

function kindOf(name: string, { type, pattern, minimum, items }: Schema): Field['kind'] {
  if (name === 'key') return 'secret';
  if (pattern === MOMENT_PATTERN || minimum === UNIX_MS_MIN) return 'time';
  if (type === 'array') return (items?.anyOf?.[0] ?? items)?.type === 'string' ? 'names' : 'list';
  return type === 'integer' ? 'whole' : type === 'object' ? 'object' : 'text';
}

/** The field of a response that is a list of objects (`''`: it is itself), and the fields of these that fit a cell. */
function listOf(response: Schema): { field: string; columns: string[] } | undefined {
  const fields = Object.entries(response.properties ?? {}).filter(([name]) => !/^(cursor|total)$/.test(name));
  const [[field, { items }] = ['', response]] = fields;
  if (!items?.properties || fields.length > 1) return undefined;
  const columns = Object.entries(items.properties).filter(([, { type = '' }]) => !/object|array/.test(type));
  return { field, columns: columns.map(([name]) => name) };
}
