import { ApiError } from '#shared/contract/errors.ts';

/** A part of a query. `text` is in lower case, except that of a quoted text. */
interface Token {
  readonly kind: 'word' | 'number' | 'text' | 'symbol' | 'end';
  readonly text: string;
  /** The word as it was written. */
  readonly written: string;
  /** Position of its first character, from 1. */
  readonly position: number;
}

const SPACE = /(?:\s+|--[^\n]*(?:\n|$))+/y;
const FORMS = [
  ['word', /[A-Za-z][A-Za-z0-9_]{0,63}(?![A-Za-z0-9_])/y],
  ['number', /[0-9]{1,15}(?![A-Za-z0-9_.])/y],
  ['text', /'(?:[^'\\]|'')*'/y],
  ['symbol', /<=|>=|!=|<>|[=<>(),*;-]/y],
] as const;

const UNDERSTOOD =
  'understood are SELECT columns and sums FROM key_verifications_v1, key_verifications_per_hour_v1 or key_verifications_per_day_v1 WHERE conditions joined by AND GROUP BY columns ORDER BY columns LIMIT number; see control-plane/analytics.md';

/** Reads a query from its beginning to its end. It never repeats the query, which could contain a secret. */
export class Reader {
  readonly #tokens: readonly Token[];
  #next = 0;

  constructor(query: string) {
    this.#tokens = tokensOf(query);
  }

  /** Takes the next word if it is one of these, which are in lower case. */
  takeWord<Word extends string>(...words: readonly Word[]): Word | undefined {
    return this.#takeIf('word', words);
  }

  takeSymbol<Symbol extends string>(...symbols: readonly Symbol[]): Symbol | undefined {
    return this.#takeIf('symbol', symbols);
  }

  /** Takes a number, or a number in quotes. */
  takeNumber(): number | undefined {
    const { kind, text } = this.#token;
    if (kind !== 'number' && !(kind === 'text' && /^[0-9]{1,15}$/.test(text))) return undefined;
    this.#next++;
    return Number(text);
  }

  takeText(): string | undefined {
    const { kind, text } = this.#token;
    if (kind !== 'text') return undefined;
    this.#next++;
    return text;
  }

  /** Takes these words. */
  words(...words: readonly string[]): void {
    for (const word of words) if (this.takeWord(word) === undefined) this.fail(word.toUpperCase());
  }

  symbol(symbol: string): void {
    if (this.takeSymbol(symbol) === undefined) this.fail(`a ${symbol}`);
  }

  /** Takes a name that the query introduces, as it was written. */
  name(): string {
    const { kind, written } = this.#token;
    if (kind !== 'word') this.fail('a name');
    this.#next++;
    return written;
  }

  /** Takes items that are separated by commas. Throws BAD_REQUEST if they are more than `max`. */
  list<Item>(clause: string, max: number, item: () => Item): Item[] {
    const items = [item()];
    while (this.takeSymbol(',')) {
      if (items.length === max) throw new ApiError('BAD_REQUEST', `query: ${clause}: at most ${max} items`);
      items.push(item());
    }
    return items;
  }

  end(): void {
    this.takeSymbol(';');
    if (this.#token.kind !== 'end') this.fail('the end');
  }

  /** Throws BAD_REQUEST: something else is in this place. */
  fail(expected: string): never {
    const { kind, position } = this.#token;
    const place = kind === 'end' ? 'the end' : `character ${position}`;
    throw new ApiError('BAD_REQUEST', `query: at ${place}, ${expected} is required; ${UNDERSTOOD}`);
  }

  get #token(): Token {
    return this.#tokens[this.#next] ?? { kind: 'end', text: '', written: '', position: 0 };
  }

  #takeIf<Text extends string>(kind: Token['kind'], texts: readonly Text[]): Text | undefined {
    const token = this.#token;
    const text = token.kind === kind ? texts.find((each) => each === token.text) : undefined;
    if (text !== undefined) this.#next++;
    return text;
  }
}

function tokensOf(query: string): Token[] {
  const tokens: Token[] = [];
  for (let at = skipSpace(query, 0); at < query.length; ) {
    const token = tokenAt(query, at);
    tokens.push(token);
    at = skipSpace(query, at + token.written.length);
  }
  return tokens;
}

function tokenAt(query: string, at: number): Token {
  for (const [kind, form] of FORMS) {
    form.lastIndex = at;
    const written = form.exec(query)?.[0];
    if (written === undefined) continue;
    const text = kind === 'text' ? written.slice(1, -1).replaceAll("''", "'") : written.toLowerCase();
    return { kind, text, written, position: at + 1 };
  }
  throw new ApiError(
    'BAD_REQUEST',
    `query: character ${at + 1} begins no word, number or text; ${UNDERSTOOD}`,
  );
}

function skipSpace(query: string, at: number): number {
  SPACE.lastIndex = at;
  return at + (SPACE.exec(query)?.[0].length ?? 0);
}
