import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';

/** The checker of accessibility, which the page's policy would not let in as a script. */
const AXE = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8');
const WCAG = {
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'],
  // Still an experiment of axe: who speaks says the words that are on a button.
  rules: { 'label-content-name-mismatch': { enabled: true } },
};
const CONTRAST = { runOnly: { type: 'rule', values: ['color-contrast'] } };

/** Lets a page be checked, until another is loaded. */
export const loadAxe = (page: Page): Promise<unknown> => page.evaluate(AXE);

/** Breaches of WCAG 2.2 AA, or of its contrast alone: the rule, and where. */
export const breachesOf = (page: Page, rules: 'all' | 'contrast' = 'all'): Promise<unknown[]> =>
  page.evaluate<unknown[]>(`axe
    .run(document, ${JSON.stringify(rules === 'all' ? WCAG : CONTRAST)})
    .then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(({ html }) => html)]))`);
