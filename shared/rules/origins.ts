/** Maximum number of origins in a list. */
export const ORIGINS_MAX = 50;

/** Maximum length of an origin: a name of 253 characters, with scheme and port. */
export const ORIGIN_LENGTH_MAX = 300;

/** Scheme, `*.`, host and port, in lower case. */
const ORIGIN = /^([a-z][a-z\d+.-]*):\/\/(\*\.)?([a-z\d_](?:[a-z\d_.-]*[a-z\d_])?|\[[\da-f:.]+\])(:\d{1,5})?$/;

/** The ports that browsers leave out of an origin. */
const PORTS: Readonly<Record<string, string>> = { http: ':80', https: ':443' };

interface Parsed {
  readonly start: string;
  readonly isWildcard: boolean;
  /** Host and port. */
  readonly place: string;
}

function parse(text: string): Parsed | undefined {
  const [, scheme = '', wildcard, host, port = ''] = ORIGIN.exec(text.toLowerCase()) ?? [];
  if (host === undefined || Number(port.slice(1)) > 65_535) return undefined;
  return {
    start: `${scheme}://`,
    isWildcard: wildcard !== undefined,
    place: host + (port === PORTS[scheme] ? '' : port),
  };
}

/** Returns the rule that an entry of a list breaks, for a message; undefined = it is one. */
export function originFault(text: string): string | undefined {
  const parsed = parse(text);
  if (parsed === undefined)
    return 'must be an origin such as https://app.example.com, https://*.example.com or http://localhost:3000, without a path or a slash at its end';
  return parsed.isWildcard && !/^[^[.]+\.[^.]/.test(parsed.place)
    ? 'must have two labels or more after *., as in https://*.example.com'
    : undefined;
}

/** Returns origins in their form in Redis, the same for every spelling and order; `''` = none. Each must be one. */
export function originsText(origins: readonly string[]): string {
  const texts = origins.map((origin) => {
    const parsed = parse(origin);
    if (parsed === undefined) throw new Error('not an origin');
    return `${parsed.start}${parsed.isWildcard ? '*.' : ''}${parsed.place}`;
  });
  return [...new Set(texts)].sort().join(' ');
}

/** Returns the origin of an `Origin` header or of a URL, as in lists; undefined = it has none. */
export function originOf(text: string): string | undefined {
  const parsed = parse(/^[^/]*\/\/[^/?#]*/.exec(text)?.[0] ?? '');
  return parsed && !parsed.isWildcard ? parsed.start + parsed.place : undefined;
}

/** Origins, arranged for look-ups. */
export class Origins {
  readonly #exact = new Set<string>();
  /** Beginning and end of what matches: `https://` and `.example.com`. */
  readonly #wildcards: (readonly [start: string, end: string])[] = [];

  /** @param text result of `originsText` */
  constructor(text: string) {
    for (const origin of text.split(' ')) {
      const [start, end] = origin.split('*');
      if (start !== undefined && end !== undefined) this.#wildcards.push([start, end]);
      else this.#exact.add(origin);
    }
  }

  /** Tells whether the origin of an `Origin` header or of a URL is one of these. Anything else is not. */
  has(text: string): boolean {
    const origin = originOf(text);
    if (origin === undefined) return false;
    return (
      this.#exact.has(origin) ||
      this.#wildcards.some(([start, end]) => origin.startsWith(start) && origin.endsWith(end))
    );
  }
}
