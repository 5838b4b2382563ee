import { SLUG } from '#shared/rules/slugs.ts';

/** A parsed permission query: one permission, or all or any of several. */
export type Query = string | { readonly needsAll: boolean; readonly parts: readonly Query[] };

/** A query, or the fault of an invalid one. */
export type ParsedQuery = { readonly query: Query } | { readonly fault: string };

/** Maximum number of permissions in a query, counted with repetitions. */
export const LEAVES_MAX = 100;
/** Maximum depth of nested `and`, `or` and parentheses. */
export const DEPTH_MAX = 20;
/** Maximum length of a query in text form, in characters. */
export const QUERY_LENGTH_MAX = 1000;

/** Returns true if the permissions in `slugSet` satisfy a query. There are no wildcards. */
export function allows(slugSet: ReadonlySet<string>, query: Query): boolean {
  if (typeof query === 'string') return slugSet.has(query);
  const { needsAll, parts } = query;
  for (const part of parts) if (allows(slugSet, part) !== needsAll) return !needsAll;
  return needsAll;
}

/** Returns the permissions that a query names, each once. */
export const slugsIn = (query: Query): string[] =>
  typeof query === 'string' ? [query] : [...new Set(query.parts.flatMap(slugsIn))];

/** Returns a query as the text that `parseQuery` reads. */
export function queryText(query: Query): string {
  if (typeof query === 'string') return query;
  const parts = query.parts.map((part) => (typeof part === 'string' ? part : `(${queryText(part)})`));
  return parts.join(query.needsAll ? ' AND ' : ' OR ');
}

/**
 * Parses a query: a permission, `{and: […]}` or `{or: […]}`, or a text such as `a AND (b OR c)`, in which AND
 * binds more closely than OR. A fault names the rule, never the value.
 */
export function parseQuery(value: unknown): ParsedQuery {
  try {
    return { query: typeof value === 'string' ? new QueryText(value).read() : objectQuery(value) };
  } catch (error) {
    if (!(error instanceof QueryFault)) throw error;
    return { fault: error.message };
  }
}

class QueryFault extends Error {}

const tooMany = () => new QueryFault(`must name at most ${LEAVES_MAX} permissions`);
const tooDeep = () => new QueryFault(`must have at most ${DEPTH_MAX} levels`);
const noSlug = () => new QueryFault(`permissions must match ${SLUG.source}`);

/** Parses a query in JSON, in which every string is one permission. */
function objectQuery(value: unknown): Query {
  let leaves = 0;
  const read = (part: unknown, depth: number): Query => {
    if (typeof part === 'string') {
      if (!SLUG.test(part)) throw noSlug();
      leaves += 1;
      if (leaves > LEAVES_MAX) throw tooMany();
      return part;
    }
    if (depth > DEPTH_MAX) throw tooDeep();
    const [[name, parts] = [], ...rest] = Object.entries(Object(part) as object);
    if (rest.length > 0 || (name !== 'and' && name !== 'or') || !Array.isArray(parts) || parts.length === 0)
      throw new QueryFault(
        'must be a permission, or an object whose only field is `and` or `or`, a non-empty list',
      );
    return combine(
      name === 'and',
      parts.map((child) => read(child, depth + 1)),
    );
  };
  return read(value, 1);
}

function combine(needsAll: boolean, parts: readonly Query[]): Query {
  const [part] = parts;
  return parts.length === 1 && part !== undefined ? part : { needsAll, parts };
}

/** A query in text form. */
class QueryText {
  readonly #tokens: readonly string[];
  #at = 0;
  #leaves = 0;

  constructor(text: string) {
    if (text.length > QUERY_LENGTH_MAX)
      throw new QueryFault(`must have at most ${QUERY_LENGTH_MAX} characters`);
    if (/[^A-Za-z0-9_:.*() \t\r\n-]/.test(text)) throw noSlug();
    this.#tokens = text.match(/[()]|[^() \t\r\n]+/g) ?? [];
  }

  read(): Query {
    const [token] = this.#tokens;
    // A permission may have the same name as an operator.
    if (this.#tokens.length === 1 && token !== undefined && SLUG.test(token)) return token;
    const query = this.#disjunction(1);
    if (this.#at < this.#tokens.length)
      throw new QueryFault('expected AND, OR or the end after a permission');
    return query;
  }

  #disjunction(depth: number): Query {
    const parts = [this.#conjunction(depth)];
    while (this.#takes('OR')) parts.push(this.#conjunction(depth));
    return combine(false, parts);
  }

  #conjunction(depth: number): Query {
    const parts = [this.#operand(depth)];
    while (this.#takes('AND')) parts.push(this.#operand(depth));
    return combine(true, parts);
  }

  #operand(depth: number): Query {
    const token = this.#tokens[this.#at++];
    if (token === '(') {
      if (depth > DEPTH_MAX) throw tooDeep();
      const inner = this.#disjunction(depth + 1);
      if (!this.#takes(')')) throw new QueryFault('a parenthesis is not closed');
      return inner;
    }
    if (token === undefined || token === ')' || /^(?:and|or)$/i.test(token))
      throw new QueryFault('expected a permission or a parenthesis');
    if (!SLUG.test(token)) throw noSlug();
    this.#leaves += 1;
    if (this.#leaves > LEAVES_MAX) throw tooMany();
    return token;
  }

  /** Consumes the next token if it is `token`. Operators may be in lower case. */
  #takes(token: string): boolean {
    if (this.#tokens[this.#at]?.toUpperCase() !== token) return false;
    this.#at += 1;
    return true;
  }
}
