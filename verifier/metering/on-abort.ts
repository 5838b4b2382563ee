import type { Costs } from '../core/question.ts';

/** Rules for what a request costs whose client left before the end of the response. */
export const ABORT_RULES = ['charge', 'release', 'last'] as const;

export type AbortRule = (typeof ABORT_RULES)[number];

/**
 * The end of a request: `whole` = all of the response came from the API, even if the client left meanwhile; `cut` = the
 * response broke off; `left` = the client left before its end; `unsent` = the request did not reach the API.
 */
export type Ended = 'whole' | 'cut' | 'left' | 'unsent';

/**
 * Returns what a request costs, by name. A name that is missing costs what was reserved. A request that did not reach the API
 * costs nothing. One whose client left costs by the rule: with `charge` at least what was reserved, so that nobody saves by
 * leaving; with `release` nothing; with `last` what was said last.
 * @param costs what was said before
 * @param reserved amounts by name
 */
export function costsAtEnd(
  ended: Ended,
  rule: AbortRule,
  costs: Costs,
  reserved: ReadonlyMap<string, number>,
): Costs {
  if (ended === 'unsent' || (ended === 'left' && rule === 'release'))
    return Object.fromEntries([...reserved.keys()].map((name) => [name, 0]));
  if (ended !== 'left' || rule === 'last') return costs;
  return Object.fromEntries(Object.entries(costs).filter(([name, cost]) => cost > (reserved.get(name) ?? 0)));
}
