/** The largest integer of 32 bits, which generators take for the type of every integer without a format. */
const INT32_MAX = 2_147_483_647;

/**
 * Returns a copy of an OpenAPI document from which generators make clients that compile: each integer says how many bits
 * it needs, and a choice between values is one `enum`, and what may be null says so in its type.
 */
export function forGenerators<T>(document: T): T {
  return rewritten(document) as T;
}

function rewritten(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rewritten);
  if (typeof value !== 'object' || value === null) return value;
  const copy: Schema = Object.fromEntries(
    Object.entries(value).map(([name, part]) => [name, SAMPLES.has(name) ? part : rewritten(part)]),
  );
  if (copy.type === 'integer' && copy.format === undefined)
    copy.format = Number(copy.maximum) <= INT32_MAX ? 'int32' : 'int64';
  if ('const' in copy && typeof copy.type === 'string') {
    copy.enum = [copy.const];
    delete copy.const;
  }
  const types = new Set(Array.isArray(copy.anyOf) ? copy.anyOf.map(({ type }) => type) : []);
  if (copy.anyOf?.every((one) => Array.isArray(one.enum)) && types.size === 1) {
    const { anyOf, ...rest } = copy;
    return { type: [...types][0], enum: anyOf.flatMap((one) => one.enum ?? []), ...rest };
  }
  const [kind, other, ...more] = copy.anyOf ?? [];
  if (kind && other?.type === 'null' && more.length === 0 && typeof kind.type === 'string') {
    const { anyOf: _, ...rest } = copy;
    const values = kind.enum === undefined ? {} : { enum: [...kind.enum, null] };
    return { ...kind, ...values, ...rest, type: [kind.type, 'null'] };
  }
  return copy;
}

/** Names of the parts that are values and not schemas. */
const SAMPLES: ReadonlySet<string> = new Set(['example', 'examples', 'default', 'enum', 'const']);

interface Schema {
  type?: unknown;
  format?: unknown;
  maximum?: unknown;
  const?: unknown;
  enum?: readonly unknown[];
  anyOf?: readonly Schema[];
}
