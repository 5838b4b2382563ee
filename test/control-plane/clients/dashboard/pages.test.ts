import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { lacking } from '../../../harness/programs.ts';
import { HOLDS_MS_MAX } from '../../../harness/waiting.ts';
import { breachesOf, loadAxe } from './axe.ts';
import { executable, startChromium } from './chromium.ts';

/** The pages outside the dashboard: one look, and for people only. */
describe.skipIf(!executable)(`pages outside the dashboard${lacking(executable ? [] : ['chromium'])}`, () => {
  let fleet: Fleet;
  let browser: Browser;
  let base: string;
  beforeAll(async () => {
    fleet = await Fleet.start({ verifiers: 0 });
    base = fleet.controlPlanes[0]?.address ?? '';
    browser = await startChromium();
  }, HOLDS_MS_MAX);
  afterAll(async () => {
    await browser.close();
    await fleet.stop();
  });

  const COLOR_SCHEMES = ['light', 'dark'] as const;
  const backs = new Map<string, string[]>(COLOR_SCHEMES.map((scheme) => [scheme, []]));

  test.each([
    ['/docs/errors', 'Errors'],
    ['/nowhere', undefined],
    ['/v1/apis.listKey', undefined],
    ['/docs', 'Reference'],
  ])('%s has the common look and keeps WCAG 2.2 AA', async (path, current) => {
    for (const colorScheme of COLOR_SCHEMES) {
      const viewport = { width: 390, height: 844 };
      const context = await browser.newContext({ viewport, isMobile: true, colorScheme });
      const page = await context.newPage();
      page.setDefaultTimeout(HOLDS_MS_MAX);
      await page.goto(base + path);
      const header = page.locator('header.keyfence');
      const texts = (await header.locator('a').allTextContents()).filter((text) => !/^Sign/.test(text));
      expect(texts).toEqual(['Keyfence', 'Dashboard', 'Reference', 'Errors']);
      expect(await header.locator('[aria-current]').allTextContents()).toEqual(current ? [current] : []);
      if (current !== 'Reference') {
        await loadAxe(page);
        expect(await breachesOf(page)).toEqual([]);
      }
      expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBe(viewport.width);
      // In the typeface of the dashboard, which the page's policy lets in.
      await page.waitForFunction(
        `[...document.fonts].some(({ family, status }) => family === 'Inter' && status === 'loaded')`,
      );
      const family = `getComputedStyle(document.querySelector('header.keyfence')).fontFamily`;
      expect(await page.evaluate(family)).toMatch(/^Inter,/);
      const back = await page.evaluate<string>(
        '[document.body, document.documentElement].map((part) => getComputedStyle(part).backgroundColor).find((color) => color !== "rgba(0, 0, 0, 0)")',
      );
      backs.get(colorScheme)?.push(back);
      await context.close();
    }
  });

  test('have the dashboard background, light and dark', async () => {
    for (const colorScheme of COLOR_SCHEMES) {
      const page = await browser.newPage({ colorScheme });
      await page.goto(`${base}/dashboard/`);
      const back = await page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor');
      expect(new Set(backs.get(colorScheme))).toEqual(new Set([back]));
      await page.close();
    }
    expect(backs.get('light')?.[0]).not.toBe(backs.get('dark')?.[0]);
  });

  test('give a program no page for an unknown path', async () => {
    for (const accept of ['*/*', 'application/json', undefined]) {
      const answer = await fleet.get(`${base}/nowhere`, accept === undefined ? {} : { accept });
      expect([answer.status, answer.body.error.code]).toEqual([404, 'NOT_FOUND']);
    }
    const page = await fleet.get(`${base}/nowhere`, { accept: 'text/html,*/*;q=0.8' });
    expect([page.status, page.headers['content-type']]).toEqual([404, 'text/html; charset=utf-8']);
    expect(page.headers['content-security-policy']).toMatch(/^default-src 'none'/);
    const hostile = await fleet.get(`${base}/v1/<script>alert(1)</script>`, { accept: 'text/html' });
    expect(hostile.body).not.toContain('<script');
    // A path that exists answers as ever, whoever asks.
    const call = await fleet.get(`${base}/v1/apis.listApis`, { accept: 'text/html' });
    expect([call.status, call.body.error.code]).toEqual([401, 'UNAUTHORIZED']);
    const method = await fleet.get(`${base}/v1/keys.createKey`, { accept: 'text/html' });
    expect([method.status, method.body.error.code]).toEqual([405, 'METHOD_NOT_ALLOWED']);
  });
});
