import type { Page } from 'playwright-core';
import { beforeAll, expect, test } from 'vitest';
import { ROOT_KEY } from '../../../harness/fleet.ts';
import { share, turn } from '../../../harness/share.ts';
import { breachesOf, loadAxe } from './axe.ts';
import { Dashboard } from './chromium.ts';
import { onStage } from './stage.ts';

onStage('for everybody', (stage) => {
  test('works by keyboard, with focus on the new page', async () => {
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'keyboard', name: 'Kay' });
    const dashboard = await Dashboard.open(stage.browser, stage.base);
    const { page } = dashboard;
    const focused = () =>
      page.evaluate<string>(
        `document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText ?? ''`,
      );
    const tabTo = async (wanted: string | RegExp) => {
      for (let i = 0; i < 40; i++) {
        if ((await focused()).match(wanted)) return;
        await page.keyboard.press('Tab');
      }
      throw new Error(`the focus never came to ${wanted}`);
    };
    await stage.fleet.until(async () => (await focused()) === 'Sign in');
    await page.keyboard.press('Tab');
    await page.keyboard.type(ROOT_KEY);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await tabTo(/^APIs$/);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'APIs' }).waitFor();
    await dashboard.loaded();
    await tabTo(/^keyboard$/);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'keyboard' }).waitFor();
    expect(await focused()).toBe('keyboard');
    await dashboard.loaded();
    await tabTo('Actions on Kay');
    await page.keyboard.press('Enter');
    await tabTo('Disable Kay');
    await page.keyboard.press('Space');
    await page.getByText('Disabled Kay').waitFor();
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');
    // The focus stays where one was, also where what was clicked went away.
    await stage.fleet.until(async () => (await focused()) === 'Actions on Kay');
    await tabTo('Undo');
    await page.keyboard.press('Enter');
    await page.getByText('Undone: Disabled Kay').waitFor();
    await stage.fleet.until(async () => (await focused()) === 'How far the change has come');
    await page.getByRole('checkbox', { name: 'Select page' }).press('Space');
    await tabTo('Disable 1 key');
    await page.keyboard.press('Enter');
    await page.getByText('Disabled 1 key').waitFor();
    await stage.fleet.until(async () => (await focused()) === '');
    await dashboard.close(key);
  });

  const LONG = { id: 'a-rather-long-name-of-an-api-that-somebody-chose-for-a-reason', keyId: '' };
  let keyId = '';
  let endpointId = '';
  beforeAll(async () => {
    const url = `http://127.0.0.1:1/${'long'.repeat(100)}`;
    ({ endpointId } = await stage.fleet.ok('webhooks.createEndpoint', { url, name: 'h'.repeat(100) }));
    const names = Array.from({ length: 25 }, (_, i) => `Key ${i}`);
    const make = (name: string) =>
      stage.fleet.ok('keys.createKey', { apiId: 'checked', name, externalId: 'ada' });
    ({ keyId } = await make('First'));
    for (const name of names) await make(name);
    await stage.fleet.ok('identities.createIdentity', { externalId: 'ada' });
    for (const name of ['editor', 'reader', 'a-role-of-a-rather-long-name', 'x'.repeat(100)])
      await stage.fleet.ok('permissions.createRole', { name, permissions: ['files.read', 'y'.repeat(100)] });
    const long = { name: 'W'.repeat(200), externalId: 'x'.repeat(200), meta: { long: 'y'.repeat(500) } };
    LONG.keyId = (await stage.fleet.ok('keys.createKey', { apiId: LONG.id, ...long })).keyId;
  });

  test('nothing jumps while a page loads', async () => {
    const ratelimits = [{ name: 'requests', limit: 60, duration: 60_000, autoApply: true }];
    await stage.fleet.ok('identities.updateIdentity', { externalId: 'ada', ratelimits });
    const dashboard = await Dashboard.open(stage.browser, stage.base, {
      viewport: { width: 1440, height: 900 },
    });
    const { page } = dashboard;
    await dashboard.signIn();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await dashboard.loaded();
    await page.evaluate(`{
      window.shifts = [];
      new PerformanceObserver((list) => {
        for (const { value, hadRecentInput, sources } of list.getEntries())
          if (!hadRecentInput) shifts.push([value, sources.map(({ node }) => node?.outerHTML?.slice(0, 80))]);
      }).observe({ type: 'layout-shift' });
    }`);
    const views = ['#/apis', '#/', '#/apis/checked', `#/keys/${keyId}`, '#/identities', '#/identities/ada'];
    for (const hash of views) {
      await dashboard.go(hash);
      // What is drawn is counted with the next frames.
      await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
      const shifts = await page.evaluate<[number, string[]][]>('shifts.splice(0)');
      expect(
        shifts.reduce((sum, [value]) => sum + value, 0),
        `${hash}: ${JSON.stringify(shifts)}`,
      ).toBeLessThanOrEqual(0.01);
    }
    await dashboard.close();
  });

  test('every page keeps WCAG 2.2 AA, wide and narrow', async () => {
    const dashboard = await Dashboard.open(stage.browser, stage.base);
    const { page } = dashboard;
    await loadAxe(page);
    await check(page, 'sign in', 0);
    await dashboard.signIn();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    for (const [i, hash] of viewsOf('checked', keyId, endpointId).entries()) {
      await dashboard.go(hash);
      await fits(page, hash, WIDTHS);
      if (hash === '#/apis/checked') {
        await page.setViewportSize({ width: 390, height: 844 });
        const height = await page.evaluate<number>('document.documentElement.scrollHeight');
        expect(height).toBeLessThan(3500);
        expect((await page.getByLabel('Filter').boundingBox())?.width).toBeGreaterThan(340);
        await page.setViewportSize({ width: 1280, height: 844 });
        await dashboard.act('Key 20', 'Disable');
        await page.getByText('Disabled Key 20').waitFor();
        await page.getByRole('checkbox', { name: 'Select Key 3', exact: true }).check();
      }
      for (const button of await page.getByRole('button', { name: /^New / }).all()) await button.click();
      await check(page, hash, i, async () => {
        if (hash !== '#/apis/checked') return;
        const bar = await page.getByRole('group', { name: 'Selection' }).boundingBox();
        // It stays in sight, and must leave the list there.
        expect(bar?.height).toBeLessThan(90);
        // Its words are not cut.
        expect((await page.getByLabel('Unit').boundingBox())?.width).toBeGreaterThan(120);
      });
      await page.keyboard.press('Escape');
      if (hash === '#/apis/checked') {
        await page.getByRole('button', { name: 'Undo' }).click();
        await page.getByText('Undone: Disabled Key 20').waitFor();
      }
    }
    await dashboard.close();
  });

  test('what unfolds keeps WCAG 2.2 AA, wide and narrow', async () => {
    const { fleet } = stage;
    const refused = await fleet.ok('keys.createKey', { apiId: 'unfolding', name: 'Refused' });
    expect(await fleet.verdict(refused.key, { authorization: { permissions: 'x' } })).not.toBe('VALID');
    await fleet.until(async () => {
      const { verifications } = await fleet.ok('apis.getVerifications', { apiId: 'unfolding' });
      return verifications.at(-1).insufficientPermissions > 0;
    });
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    await loadAxe(page);
    const unfolded: Readonly<Record<string, () => Promise<void>>> = {
      '#/': () => page.getByRole('button', { name: 'lacks a permission' }).first().click(),
      '#/roles': () => page.getByRole('button', { name: 'Limits… of editor' }).click(),
      '#/root-keys': () =>
        page
          .getByRole('row', { name: /this browser/ })
          .getByRole('button')
          .click(),
      [`#/webhooks/${endpointId}`]: () => page.getByRole('button', { name: 'Details' }).first().click(),
      '#/fleet': () => page.getByRole('button', { name: 'Details' }).first().click(),
    };
    for (const [i, [hash, unfold]] of Object.entries(unfolded).entries()) {
      await dashboard.go(hash);
      await unfold();
      await dashboard.loaded();
      await check(page, hash, i, async () => {
        // On paper, nothing is cut.
        await page.emulateMedia({ media: 'print' });
        expect(await page.locator('html').evaluate(OVERFLOW), `${hash}, on paper`).toBeLessThanOrEqual(0);
        await page.emulateMedia({ media: 'screen' });
      });
      await page.keyboard.press('Escape');
    }
    await dashboard.close(refused.key);
  });

  test('no page with long names is wider than its window', async () => {
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    for (const hash of viewsOf(LONG.id, LONG.keyId, endpointId)) {
      await dashboard.go(hash);
      await fits(page, hash, WIDTHS);
      for (const button of await page.getByRole('button', { name: /^New / }).all()) await button.click();
      await fits(page, `${hash}, with its forms`, [320, 1280]);
      await page.keyboard.press('Escape');
      if (hash !== `#/keys/${LONG.keyId}`) continue;
      await page.getByRole('button', { name: /^(Disable|Enable) W/ }).click();
      await page.getByText(/(Disabled|Enabled) W+\. Complete/).waitFor();
      await fits(page, `${hash}, changed`, [320, 1280]);
      await dashboard.choose('Delete key');
      await fits(page, `${hash}, asking`, [320, 1280], page.getByRole('dialog'));
      await page.getByRole('button', { name: 'Cancel' }).click();
    }
    await dashboard.close();
  });
});

/** Of windows; as narrow as phones are, and, with 320 px, as a desk is at 400 %. */
const WIDTHS = [320, 390, 768, 1024, 1280, 1440];

async function fits(page: Page, what: string, widths: readonly number[], part = page.locator('html')) {
  for (const width of widths) {
    await page.setViewportSize({ width, height: 900 });
    expect(await part.evaluate(OVERFLOW), `${what} at ${width}`).toBeLessThanOrEqual(0);
  }
}

/** Checks the page at both widths, in one of the schemes each, in the other at the next commit or view. */
async function check(page: Page, what: string, i: number, more?: () => Promise<void>): Promise<void> {
  for (const [at, width] of [1280, 390].entries()) {
    await page.setViewportSize({ width, height: 844 });
    for (const colorScheme of share(['light', 'dark'] as const, 2, turn + i + at)) {
      await page.emulateMedia({ colorScheme });
      expect(await breachesOf(page), `${what}, ${colorScheme}, ${width} px`).toEqual([]);
    }
    expect(await page.evaluate(NAMELESS), what).toEqual([]);
    await more?.();
  }
}

/** Pixels of an element's content that it has no room for. */
const OVERFLOW = ({ scrollWidth, clientWidth }: { scrollWidth: number; clientWidth: number }) =>
  scrollWidth - clientWidth;

/** Every page that there is. */
const viewsOf = (apiId: string, keyId: string, endpointId: string) => [
  '#/',
  '#/apis',
  `#/apis/${apiId}`,
  `#/apis/${apiId}?tab=traffic`,
  `#/apis/${apiId}?tab=settings`,
  `#/keys/${keyId}`,
  `#/keys/${keyId}?tab=access`,
  `#/keys/${keyId}?tab=history`,
  `#/keys/${keyId}?tab=verifiers`,
  '#/handover/used',
  '#/identities',
  '#/identities/ada',
  '#/identities/nobody%20yet',
  '#/roles',
  '#/root-keys',
  '#/webhooks',
  `#/webhooks/${endpointId}`,
  '#/fleet',
  '#/audit',
  '#/apis/never-made',
  '#/keys/key_00000000000000000000',
  '#/nowhere',
];

/** Elements that are used but that a screen reader could not name. */
const NAMELESS = `[...document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea, table, form, dialog')]
  .filter((element) => {
    const text = element.getAttribute('aria-label') || element.labels?.[0]?.textContent || element.textContent;
    return !text?.trim() || (element.matches('input, select, textarea') && !element.labels?.length && !element.ariaLabel);
  })
  .map((element) => element.outerHTML.slice(0, 200))`;
