/** Maximum number of ranges in a list. */
export const RANGES_MAX = 50;

/** An address as numbers of 32 bits: one for IPv4, four for IPv6. */
type Words = readonly [number] | readonly [number, number, number, number];

/**
 * Returns an address as numbers; undefined = it is none. An IPv4 address in the form of IPv6 (`::ffff:192.0.2.1`,
 * RFC 4291, 2.5.5.2) is an IPv4 address. The zone of a link-local address is ignored.
 */
export function wordsOf(address: string): Words | undefined {
  const v4 = wordOf(address, 0, address.length);
  if (v4 >= 0) return [v4];
  const zone = address.indexOf('%');
  if (zone >= 0 && !/^[0-9A-Za-z.:-]+$/.test(address.slice(zone + 1))) return undefined;
  const groups = groupsOf(address, zone < 0 ? address.length : zone);
  if (groups === undefined) return undefined;
  const word = (i: number) => (((groups[i] as number) << 16) | (groups[i + 1] as number)) >>> 0;
  const [a, b, c, d] = [word(0), word(2), word(4), word(6)];
  return a === 0 && b === 0 && c === 0xffff ? [d] : [a, b, c, d];
}

/** Returns the 32 bits of an IPv4 address; -1 for anything else. */
function wordOf(text: string, from: number, to: number): number {
  let word = 0;
  let parts = 0;
  for (let i = from; i <= to; i++) {
    const start = i;
    let part = 0;
    for (let digit = text.charCodeAt(i) - 48; digit >= 0 && digit <= 9; digit = text.charCodeAt(++i) - 48)
      part = part * 10 + digit;
    const length = i - start;
    if (length === 0 || length > 3 || part > 255 || (length > 1 && text.charCodeAt(start) === 48)) return -1;
    if (i < to && text.charCodeAt(i) !== DOT) return -1;
    word = word * 256 + part;
    if (++parts > 4) return -1;
  }
  return parts === 4 && text.charCodeAt(to - 1) !== DOT ? word : -1;
}

/** Returns the eight groups of an IPv6 address; undefined for anything else. */
function groupsOf(text: string, end: number): number[] | undefined {
  const groups = [0, 0, 0, 0, 0, 0, 0, 0];
  let count = 0;
  let gap = -1;
  let i = 0;
  if (text.startsWith('::')) {
    gap = 0;
    i = 2;
  }
  while (i < end) {
    if (count === 8) return undefined;
    const start = i;
    let group = 0;
    for (let digit = hexOf(text.charCodeAt(i)); i < end && digit >= 0; digit = hexOf(text.charCodeAt(++i)))
      group = group * 16 + digit;
    if (i < end && text.charCodeAt(i) === DOT) {
      const word = count > 6 ? -1 : wordOf(text, start, end);
      if (word < 0) return undefined;
      groups[count++] = word >>> 16;
      groups[count++] = word & 0xffff;
      break;
    }
    if (i === start || i - start > 4) return undefined;
    groups[count++] = group;
    if (i === end) break;
    if (text.charCodeAt(i++) !== COLON || i === end) return undefined;
    if (text.charCodeAt(i) !== COLON) continue;
    if (gap >= 0) return undefined;
    gap = count;
    i++;
  }
  if (gap < 0) return count === 8 ? groups : undefined;
  if (count === 8) return undefined;
  groups.copyWithin(8 - count + gap, gap, count).fill(0, gap, 8 - count + gap);
  return groups;
}

const [DOT, COLON] = [46, 58] as const;

/** Returns the value of a hexadecimal digit; -1 for any other character. */
function hexOf(code: number): number {
  if (code >= 48 && code <= 57) return code - 48;
  const letter = code | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}

const textOf = (words: Words): string =>
  words.length === 1
    ? [24, 16, 8, 0].map((shift) => (words[0] >>> shift) & 255).join('.')
    : new URL(
        `http://[${words.flatMap((word) => [(word >>> 16).toString(16), (word & 0xffff).toString(16)]).join(':')}]`,
      ).hostname.slice(1, -1);

/**
 * Returns whom an address counts for in limits: of IPv6 its network of 64 bits, since one caller has all of it.
 * Anything that is no address counts for itself.
 */
export function sourceOf(address: string): string {
  const words = wordsOf(address);
  if (words === undefined) return address.toLowerCase();
  return textOf(words.length === 1 ? words : [words[0], words[1], 0, 0]);
}

/** Returns the numbers that stand for a prefix of so many bits. */
const maskOf = (bits: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => {
    const own = Math.min(32, Math.max(0, bits - 32 * i));
    return own === 0 ? 0 : (0xffffffff << (32 - own)) >>> 0;
  });

/** A range, or the reason why a text is none. */
type Parsed = { readonly words: Words; readonly bits: number } | { readonly fault: string };

function parse(text: string): Parsed {
  const [address = '', length, ...rest] = text.split('/');
  const words = address.includes('%') ? undefined : wordsOf(address);
  if (words === undefined || rest.length > 0 || (length !== undefined && !/^(0|[1-9]\d{0,2})$/.test(length)))
    return { fault: 'must be an address or a range such as 192.0.2.0/24 or 2001:db8::/32' };
  const isMapped = words.length === 1 && address.includes(':');
  const bitsMax = 32 * words.length;
  const bits = length === undefined ? bitsMax : Number(length) - (isMapped ? 96 : 0);
  if (bits < 0 || bits > bitsMax)
    return { fault: `must have a length of ${isMapped ? 96 : 0} to ${bitsMax + (isMapped ? 96 : 0)} bits` };
  const masks = maskOf(bits, words.length);
  const base = words.map((word, i) => (word & (masks[i] ?? 0)) >>> 0) as unknown as Words;
  if (base.some((word, i) => word !== words[i]))
    return { fault: `must not have bits beyond its length; write ${textOf(base)}/${bits}` };
  return { words, bits };
}

/** Returns the rule that a range breaks, for a message; undefined = it is one. */
export function rangeFault(text: string): string | undefined {
  const parsed = parse(text);
  return 'fault' in parsed ? parsed.fault : undefined;
}

/**
 * Returns ranges in their form in Redis, the same for every spelling and order of the same ranges; `''` = none.
 * Each must be one.
 */
export function rangesText(ranges: readonly string[]): string {
  const texts = ranges.map((range) => {
    const parsed = parse(range);
    if ('fault' in parsed) throw new Error(`a range ${parsed.fault}`);
    const { words, bits } = parsed;
    return bits === 32 * words.length ? textOf(words) : `${textOf(words)}/${bits}`;
  });
  return [...new Set(texts)].sort().join(' ');
}

/** Ranges of addresses, arranged for look-ups. */
export class IpRanges {
  /** A base and a mask for each range of IPv4. */
  readonly #v4: Uint32Array;
  /** Four numbers of the base and four of the mask for each range of IPv6. */
  readonly #v6: Uint32Array;

  /** @param text result of `rangesText` */
  constructor(text: string) {
    const ranges = text.split(' ').flatMap((range) => {
      const parsed = parse(range);
      return 'fault' in parsed ? [] : [parsed];
    });
    const numbers = (count: number) =>
      ranges.flatMap(({ words, bits }) => (words.length === count ? [...words, ...maskOf(bits, count)] : []));
    this.#v4 = Uint32Array.from(numbers(1));
    this.#v6 = Uint32Array.from(numbers(4));
  }

  /** Tells whether an address is in any of the ranges. Anything that is no address is not. */
  has(address: string): boolean {
    const words = wordsOf(address);
    if (words === undefined) return false;
    if (words.length === 1) {
      const [word] = words;
      const v4 = this.#v4;
      for (let i = 0; i < v4.length; i += 2) if ((word & (v4[i + 1] as number)) >>> 0 === v4[i]) return true;
      return false;
    }
    const v6 = this.#v6;
    for (let i = 0; i < v6.length; i += 8) {
      let at = 0;
      while (at < 4 && ((words[at] as number) & (v6[i + 4 + at] as number)) >>> 0 === v6[i + at]) at++;
      if (at === 4) return true;
    }
    return false;
  }
}
