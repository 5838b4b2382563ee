import { LRUCache } from 'lru-cache';
import { type Override, overridesIn } from '#shared/redis/namespace-record.ts';

/** The overrides of a namespace, arranged for look-ups. */
export class Overrides {
  readonly #exact = new Map<string, Override>();
  /** The patterns, the longest first. */
  readonly #patterns: { readonly expression: readonly string[]; readonly override: Override }[] = [];
  /** The results for the latest identifiers, as many as there are patterns. */
  readonly #latest: LRUCache<string, { readonly override: Override | undefined }>;

  /** @param meta the `meta` of the namespace's record, as JSON */
  constructor(meta: string) {
    for (const override of overridesIn(JSON.parse(meta))) {
      const { identifier } = override;
      if (identifier.includes('*')) this.#patterns.push({ expression: identifier.split('*'), override });
      else this.#exact.set(identifier, override);
    }
    this.#patterns.sort((a, b) => b.override.identifier.length - a.override.identifier.length);
    this.#latest = new LRUCache({ max: Math.max(1, this.#patterns.length) });
  }

  /** Returns the override of an identifier: one that names it, else the longest pattern that matches. */
  of(identifier: string): Override | undefined {
    const exact = this.#exact.get(identifier);
    if (exact !== undefined || this.#patterns.length === 0) return exact;
    let result = this.#latest.get(identifier);
    if (result === undefined) {
      const pattern = this.#patterns.find(({ expression }) => matches(identifier, expression));
      result = { override: pattern?.override };
      this.#latest.set(identifier, result);
    }
    return result.override;
  }
}

/**
 * Tells whether a text consists of these parts, in this order, with any characters between two parts. Takes the
 * first place of each part, so the time is linear in the text for each part; a regular expression could take
 * exponentially longer.
 */
function matches(text: string, parts: readonly string[]): boolean {
  const [first = '', ...others] = parts;
  const last = others.pop() ?? '';
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const place = text.indexOf(part, at);
    if (place < 0) return false;
    at = place + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
