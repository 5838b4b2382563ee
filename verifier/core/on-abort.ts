import type { Costs } from './question.ts';

/** Rules for what a request costs whose client left before the end of the response. */
export const ABORT_RULES = ['charge', 'release', 'last'] as const;

export type AbortRule = (typeof ABORT_RULES)[number];

/**
 * Returns what such a request costs, by name: with `charge` at least what was reserved, so that nobody saves by leaving; with
 * `release` nothing; with `last` what was said last. A name that is missing costs what was reserved.
 * @param costs what was said before
 * @param reserved amounts by name
 */
export function costsOnAbort(rule: AbortRule, costs: Costs, reserved: ReadonlyMap<string, number>): Costs {
  if (rule === 'last') return costs;
  if (rule === 'release') return Object.fromEntries([...reserved.keys()].map((name) => [name, 0]));
  return Object.fromEntries(Object.entries(costs).filter(([name, cost]) => cost > (reserved.get(name) ?? 0)));
}
