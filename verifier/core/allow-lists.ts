import { LRUCache } from 'lru-cache';
import { IpRanges } from '#shared/lang/ip-ranges.ts';

/** Allow lists by their text in Redis. */
const rangesByText = new LRUCache<string, IpRanges>({ max: 1000 });

/** Returns a key's allow list, from its text in Redis; undefined = none. */
export function rangesOf(text: string): IpRanges | undefined {
  if (text === '') return undefined;
  let ranges = rangesByText.get(text);
  if (ranges === undefined) {
    ranges = new IpRanges(text);
    rangesByText.set(text, ranges);
  }
  return ranges;
}
