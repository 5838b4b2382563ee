import { isMap, isNode, isScalar, type Pair, parseDocument, type YAMLMap } from 'yaml';

/** The parts of JSON Schema that the schema of a chart's values uses. */
interface Schema {
  readonly title?: string;
  readonly type?: string | string[];
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly properties?: Record<string, Schema>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly definitions?: Record<string, Schema>;
  readonly $ref?: string;
}

/** One value of a chart: its path, rule, default and comment. */
export interface ChartValue {
  readonly path: string;
  readonly rule: string;
  readonly byDefault: string;
  readonly help: string;
}

/**
 * Returns every value of a chart in the order of its values.yaml. Throws if the schema and the file do not
 * have the same values.
 */
export function chartValues(yaml: string, schemaText: string): ChartValue[] {
  const root = JSON.parse(schemaText) as Schema;
  const { contents } = parseDocument(yaml);
  if (!isMap(contents)) throw new Error('values.yaml is no map');
  return ofMap(contents, root, '');

  function ofMap(map: YAMLMap, schema: Schema, prefix: string): ChartValue[] {
    const pairs = map.items as Pair[];
    const names = pairs.map(({ key }) => String(key));
    const knownNames = Object.keys(schema.properties ?? {}).filter((name) => name !== 'global');
    for (const name of knownNames.filter((name) => !names.includes(name)))
      throw new Error(`values.schema.json has ${prefix}${name}, and values.yaml has not`);
    return pairs.flatMap(({ key, value }, index) => {
      const path = prefix + names[index];
      const property = schema.properties?.[names[index] ?? ''];
      if (!property) throw new Error(`values.yaml has ${path}, and values.schema.json has not`);
      const help =
        commentOf(isScalar(key) ? key.commentBefore : '') ||
        (index === 0 ? commentOf(map.commentBefore) : '');
      // A value that the schema defines as an object, such as resources, is one row.
      if (isMap(value) && property.properties) {
        const inner = ofMap(value, property, `${path}.`);
        return help ? [{ path, rule: '', byDefault: '', help }, ...inner] : inner;
      }
      return [
        {
          path,
          rule: ruleOf(resolve(property)),
          byDefault: valueText(isNode(value) ? value.toJSON() : value),
          help,
        },
      ];
    });
  }

  function resolve(schema: Schema): Schema {
    const name = schema.$ref?.split('/').at(-1);
    return name === undefined ? schema : (root.definitions?.[name] ?? {});
  }

  function ruleOf(schema: Schema): string {
    if (schema.title) return schema.title;
    if (schema.enum) return schema.enum.map((each) => (each === '' ? 'empty' : `\`${each}\``)).join(', ');
    if (schema.type === 'array') return `list: ${ruleOf(resolve(schema.items ?? {}))}`;
    if (schema.type === 'boolean') return '`true`, `false`';
    if (schema.type === 'integer')
      return `${schema.minimum ?? 0}${schema.maximum ? `–${schema.maximum}` : ' or more'}`;
    return schema.type === 'string' ? 'text' : 'object';
  }
}

const commentOf = (comment: string | null | undefined) =>
  (comment ?? '')
    .split('\n')
    .map((line) => line.trim())
    .join(' ')
    .trim();

const valueText = (value: unknown) => {
  if (value === '') return '';
  return `\`${typeof value === 'object' ? JSON.stringify(value) : String(value)}\``;
};
