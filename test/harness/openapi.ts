import { Validator } from '@seriousme/openapi-schema-validator';
import fc from 'fast-check';
import { Value } from 'typebox/value';
import type { Answer } from './fleet.ts';

/** Parts of JSON Schema that our documents use. */
export interface Schema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly pattern?: string;
  readonly [rule: string]: unknown;
}

interface Response {
  readonly $ref?: string;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly content?: Readonly<Record<string, { readonly schema: Schema; readonly example?: unknown }>>;
}

export interface Operation {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly parameters?: readonly { name: string; required?: boolean; schema: Schema; example?: unknown }[];
  readonly requestBody?: {
    readonly content: Readonly<Record<string, { readonly schema: Schema; readonly example?: unknown }>>;
  };
  readonly responses: Readonly<Record<string, Response>>;
}

/** An OpenAPI document that a process serves, to hold its answers against. */
export class Document {
  // biome-ignore lint/suspicious/noExplicitAny: it comes from the wire
  readonly #document: any;

  constructor(document: unknown) {
    this.#document = document;
  }

  // biome-ignore lint/suspicious/noExplicitAny: it comes from the wire
  get whole(): any {
    return this.#document;
  }

  /** Throws where it is not OpenAPI 3.1. */
  async check(): Promise<void> {
    const result = await new Validator().validate(structuredClone(this.#document));
    if (!result.valid) throw new Error(JSON.stringify(result.errors));
    if (this.#document.openapi !== '3.1.0') throw new Error(`it says openapi ${this.#document.openapi}`);
  }

  get operations(): Operation[] {
    return Object.entries(this.#document.paths).flatMap(([path, methods]) =>
      Object.entries(methods as object).map(([method, operation]) => ({
        ...operation,
        method: method.toUpperCase(),
        path,
      })),
    );
  }

  /** Lists faults of an answer by the document: another status, another body, or more than it says. */
  faults({ responses }: Operation, answer: Answer): unknown[] {
    const described = responses[String(answer.status)];
    if (!described) return [`${answer.status} is not documented: ${JSON.stringify(answer.body)}`];
    const type = String(answer.headers['content-type']).split(';')[0] ?? '';
    const { content } = this.#resolve(described);
    if (!content && answer.body === '') return [];
    const schema = content?.[type]?.schema;
    if (!schema) return [`${answer.status} has no schema for ${type}`];
    const exact = closed(this.#resolve(schema));
    return Value.Check(exact, answer.body) ? [] : [...Value.Errors(exact, answer.body)];
  }

  #resolve<T extends object>(part: T & { readonly $ref?: unknown }): T {
    if (typeof part.$ref !== 'string') return part;
    return part.$ref
      .split('/')
      .slice(1)
      .reduce((at, name) => at[name], this.#document);
  }
}

/** The same, but no object may have more than is said. */
function closed(schema: Schema): Schema {
  const { properties, items, anyOf } = schema;
  return {
    ...schema,
    ...(items ? { items: closed(items) } : {}),
    ...(anyOf ? { anyOf: anyOf.map(closed) } : {}),
    ...(properties
      ? {
          properties: Object.fromEntries(Object.entries(properties).map(([name, of]) => [name, closed(of)])),
          additionalProperties: schema.additionalProperties ?? false,
        }
      : {}),
  };
}

/**
 * Generator of requests to an operation: fields that fit its schema, now and then one that does not or is too many.
 * @param known values that exist, for fields of these names
 */
export function inputsOf(
  operation: Operation,
  known: Readonly<Record<string, readonly string[]>>,
): fc.Arbitrary<Record<string, unknown>> {
  const schema: Schema = operation.requestBody?.content['application/json']?.schema ?? {
    type: 'object',
    properties: Object.fromEntries((operation.parameters ?? []).map(({ name, schema }) => [name, schema])),
    required: (operation.parameters ?? []).filter(({ required }) => required).map(({ name }) => name),
  };
  const { properties = {}, required = [] } = schema;
  const fields = Object.fromEntries(
    Object.entries(properties).map(([name, of]) => {
      const values = known[name];
      return [name, values ? fc.oneof(fc.constantFrom(...values), fitting(of)) : fitting(of)];
    }),
  );
  const good = fc.record(fields, { requiredKeys: [...required] });
  const names = fc.constantFrom(...Object.keys(properties), 'stray');
  const spoiled = fc
    .tuple(good, names, fc.jsonValue())
    .map(([input, name, value]) => ({ ...input, [name]: value }));
  return fc.oneof({ weight: 3, arbitrary: good }, { weight: 1, arbitrary: spoiled });
}

/** Those that somebody once forgot, lone surrogates among them. */
const CHARACTERS = fc.constantFrom(...'aZ0 -_."\\{}<&\u0000\u007fé漢', '😀', '\ud800');

function fitting(schema: Schema): fc.Arbitrary<unknown> {
  const { type, anyOf, properties, items, pattern } = schema;
  const bound = (name: string, byDefault: number) => Number(schema[name] ?? byDefault);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (anyOf) return fc.oneof(...anyOf.map(fitting));
  switch (type) {
    case 'string':
      return pattern
        ? fc.stringMatching(new RegExp(pattern))
        : fc.string({
            minLength: bound('minLength', 0),
            maxLength: bound('maxLength', 300),
            unit: CHARACTERS,
          });
    case 'integer':
      return fc.maxSafeInteger().map((n) => {
        const [min, max] = [bound('minimum', 0), bound('maximum', 2 ** 40)];
        return min + (Math.abs(n) % (max - min + 1));
      });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'array':
      return fc.uniqueArray(fitting(items ?? {}), {
        minLength: bound('minItems', 0),
        maxLength: 5,
        comparator: (a, b) => JSON.stringify(a) === JSON.stringify(b),
      });
    case 'object':
      return properties
        ? fc.record(Object.fromEntries(Object.entries(properties).map(([name, of]) => [name, fitting(of)])), {
            requiredKeys: [...(schema.required ?? [])],
          })
        : fc.dictionary(fc.string(), fc.jsonValue());
    default:
      return fc.jsonValue();
  }
}
