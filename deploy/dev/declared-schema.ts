// The JSON Schema of the files that `keyfence apply` reads, from the schemas of the operations that it calls.
import { KINDS, type KindRules } from '../../control-plane/clients/declared/kinds.ts';
import type { Operation } from '../../control-plane/core/serve/operation.ts';
import { operations } from '../../control-plane/operations.ts';

type Schema = Readonly<Record<string, unknown>>;

const NOT_DECLARED = ['managedBy', 'waitMs', 'ifSequence'];
const SECRET = {
  description:
    'Where the secret comes from. Of a key: a file, which gets a new secret before the key exists, or the SHA-256 of a secret. Of a webhook: the file for its signing secret.',
};
const PATH = {
  type: 'string',
  minLength: 1,
  maxLength: 1024,
  description: 'Relative to this file, or absolute.',
};
const secretOf = (kind: string) => ({
  type: 'object',
  additionalProperties: false,
  properties: {
    file: PATH,
    ...(kind === 'Key'
      ? { sha256: { type: 'string', pattern: '^([0-9a-fA-F]{64}|[A-Za-z0-9_-]{43})$' } }
      : {}),
  },
  ...{ minProperties: 1, maxProperties: 1, ...SECRET },
});

function named(name: string): Record<string, Schema> {
  const all: readonly Operation[] = operations;
  const request: unknown = all.find((operation) => operation.name === name)?.request;
  return (request as { properties: Record<string, Schema> }).properties;
}

/** A whole number of milliseconds, or the same in words. */
const inWords = (schema: Schema) => ({
  description: `${schema['description']} Or in words, such as 90s or 30d.`,
  anyOf: [schema, { type: 'string', pattern: '^[1-9]\\d{0,8}(ms|s|m|h|d)$' }],
});
const moment = (schema: Schema) => ({
  description: `${schema['description']} Or a date and a time (RFC 3339).`,
  anyOf: [
    schema,
    {
      type: 'string',
      pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,3})?)?(Z|[+-]\\d\\d:\\d\\d)$',
    },
  ],
});

/** Returns a schema as files have it: times in words, and texts where clients may also send objects. */
function inFiles(name: string, schema: Schema): Schema {
  const { properties, items, anyOf } = schema as {
    properties?: Record<string, Schema>;
    items?: Schema;
    anyOf?: Schema[];
  };
  if (anyOf) return { ...schema, anyOf: anyOf.map((one) => inFiles(name, one)) };
  if (schema['type'] === 'integer' && /^duration$|Ms$/.test(name)) return inWords(schema);
  if (schema['type'] === 'integer' && name === 'expires') return moment(schema);
  if (properties)
    return {
      ...schema,
      properties: Object.fromEntries(
        Object.entries(properties).map(([field, of]) => [field, inFiles(field, of)]),
      ),
    };
  const [text] = (items as { anyOf?: Schema[] } | undefined)?.anyOf ?? [];
  return items ? { ...schema, items: inFiles('', text?.['type'] === 'string' ? text : items) } : schema;
}

function ofKind(kind: string, rules: KindRules): Schema {
  const changed = named(rules.update);
  const fields = Object.entries({ ...changed, ...named(rules.create) }).filter(
    ([name]) =>
      (name in named(rules.create) || name === 'enabled') &&
      ![...NOT_DECLARED, ...(rules.without ?? [])].includes(name),
  );
  const isId = (name: string) => rules.ids.includes(name);
  const properties = fields.map(([name, schema]) => {
    const { default: _, ...field } = (isId(name) ? schema : (changed[name] ?? schema)) as Record<
      string,
      unknown
    >;
    return [name, inFiles(name, field)];
  });
  return {
    type: 'object',
    additionalProperties: false,
    required: ['kind', ...rules.ids, ...(kind === 'Webhook' ? ['url'] : [])],
    properties: {
      kind: { const: kind },
      ...Object.fromEntries(properties),
      ...(rules.onlyNew?.includes('secret') ? { secret: secretOf(kind) } : {}),
    },
  };
}

/** Returns the JSON Schema of one document of a file. */
export function declaredSchema(): object {
  const definitions = Object.fromEntries(
    Object.entries(KINDS).map(([kind, rules]) => [kind, ofKind(kind, rules)]),
  );
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Keyfence: what files declare',
    description: 'Absent fields are left alone, null removes, [] is none.',
    oneOf: Object.keys(definitions).map((kind) => ({ $ref: `#/definitions/${kind}` })),
    definitions,
  };
}
