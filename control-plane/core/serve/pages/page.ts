import { readFileSync } from 'node:fs';
import { ERROR_DOCS_PATH } from '#shared/rules/errors.ts';

/** The path of `pageStyle`. */
export const STYLE_PATH = '/docs/page.css';
const STYLE = readFileSync(new URL('./page.css', import.meta.url), 'utf8');
/**
 * Returns the style of all pages outside the dashboard.
 * @param dashboard that of the dashboard, of which they have the colours and fonts, light and dark
 */
export function pageStyle(dashboard: string): string {
  const theme = dashboard.match(/(?:@media[^{}]*\{)?(?<!:root):root\{[^}]*\}+/g) ?? [];
  // Other pages have the typefaces at these addresses.
  const fonts = (dashboard.match(/@font-face\{[^}]*\}/g) ?? []).map((rule) =>
    rule.replace('./app.woff2', '/dashboard/app.woff2'),
  );
  return [...fonts, ...theme, STYLE].join('\n');
}

/** The header of all pages outside the dashboard: texts and paths, first the brand. */
const LINKS = [
  ['Keyfence', '/dashboard/'],
  ['Dashboard', '/dashboard/'],
  ['Reference', '/docs'],
  ['Errors', ERROR_DOCS_PATH],
] as const;

/** Headers of a page, which has no scripts. */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none';style-src 'self';font-src 'self';img-src 'self';base-uri 'none';form-action 'none';frame-ancestors 'none'",
};

/**
 * Returns the header of a page outside the dashboard.
 * @param path that of the page, if the header links to it
 * @param more HTML after the links
 */
export function headerHtml(path?: string, more = ''): string {
  const links = LINKS.map(
    ([text, to]) => `<a href="${to}"${to === path ? ' aria-current="page"' : ''}>${text}</a>`,
  );
  return `<header class="keyfence">${links.join('')}${more}</header>`;
}

/**
 * Returns a page outside the dashboard.
 * @param content HTML
 * @param path that of the page, if the header links to it
 */
export function pageHtml(title: string, content: string, path?: string): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${title} – Keyfence</title><link rel="icon" href="/dashboard/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="${STYLE_PATH}"></head><body>${headerHtml(path)}<main class="keyfence"><h1>${title}</h1>${content}</main></body></html>\n`;
}
