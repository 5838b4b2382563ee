import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../harness/fleet.ts';
import { lacking } from '../../harness/programs.ts';
import { share } from '../../harness/share.ts';
import { HOLDS_MS_MAX } from '../../harness/waiting.ts';
import { breachesOf, loadAxe } from './axe.ts';
import { executable, startChromium } from './chromium.ts';

describe.skipIf(!executable)(`the reference${lacking(executable ? [] : ['chromium'])}`, () => {
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

  test.each([
    ['/docs', '/v1/', 1],
    ['/docs/v2', '/v2/', 2],
  ])('makes a key by "Try it out", verifyKey: %s', async (path, below, keysInAll) => {
    const page = await browser.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${base}${path}`);
    expect(await page.locator('header.keyfence [aria-current]').textContent()).toContain(below.slice(1, 3));
    await page.getByRole('button', { name: 'Authorize' }).first().click();
    await page.locator('.modal-ux input').fill(ROOT_KEY);
    await page.locator('.modal-ux .auth-btn-wrapper button.authorize').click();
    await page.locator('.modal-ux .btn-done').click();
    expect(await page.locator('.opblock-summary-path', { hasText: `${below}keys.verifyKey` }).count()).toBe(
      1,
    );
    const operation = page.locator('#operations-keys-createKey');
    await operation.locator('.opblock-summary-control').click();
    await operation.getByRole('button', { name: 'Execute' }).click();
    await expect
      .poll(() => operation.locator('.live-responses-table .response-col_status').last().textContent())
      .toContain('200');
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shop' });
    const made = expect.objectContaining({ name: 'Ada', enabled: true });
    expect(keys).toEqual(Array.from({ length: keysInAll }, () => made));
    await page.close();
  });

  test('calls in the dashboard session, with no key', async () => {
    const page = await browser.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${base}/docs`);
    await page.locator('header.keyfence').getByRole('link', { name: 'Sign in' }).click();
    await page.getByLabel('Root key').fill(ROOT_KEY);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('link', { name: 'Reference', exact: true }).click();
    await page.locator('header.keyfence').getByRole('link', { name: 'Signed in' }).waitFor();
    const operation = page.locator('#operations-permissions-createRole');
    await operation.locator('.opblock-summary-control').click();
    await operation.getByRole('button', { name: 'Execute' }).click();
    await expect
      .poll(() => operation.locator('.live-responses-table .response-col_status').last().textContent())
      .toContain('200');
    expect(
      (await fleet.ok('audit.listEvents', { operation: 'permissions.createRole' })).events[0],
    ).toMatchObject({
      by: { rootKeyId: expect.stringMatching(/^bootstrap_/) },
    });
    await page.close();
  });

  test('says where verifyKey is, with no dead button', async () => {
    const page = await browser.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${base}/docs`);
    const operation = page.locator('#operations-verifier-verifyKey');
    await operation.locator('.opblock-summary-control').click();
    const command = (await operation.locator('.opblock-description pre').first().textContent()) ?? '';
    expect(await operation.getByRole('button', { name: 'Execute' }).count()).toBe(0);
    expect(await operation.getByRole('button', { name: /Try it out|Cancel/ }).count()).toBe(0);
    await page.close();

    const verifier = await fleet.addVerifier({ LOOKUP_WAIT_MS: '10000' });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const asked = command.replace('http://127.0.0.1:3001', verifier.address).replace('YOUR_KEY', key);
    expect(asked).toContain(verifier.address);
    // A verifier that has no verdict for a moment is to be asked again.
    await expect
      .poll(async () => JSON.parse((await promisify(execFile)('sh', ['-ec', asked])).stdout))
      .toMatchObject({ valid: true, code: 'VALID' });
  });

  test.for(share([1280, 390], 2))('keeps WCAG 2.2 AA and fits at %i px', async (width) => {
    const viewport = { width, height: 844 };
    const context = await browser.newContext({ viewport, isMobile: width < 500, colorScheme: 'light' });
    const page = await context.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${base}/docs`);
    for (const operation of ['keys-createKey', 'apis-listKeys', 'verifier-verifyKey'])
      await page.locator(`#operations-${operation} .opblock-summary-control`).click();
    await page.locator('#operations-apis-listKeys .parameters').first().waitFor();
    await page.locator('#operations-keys-createKey pre.example').first().waitFor();
    const isDark = async () => {
      const back = await page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
      const [shade = 0] = back.match(/\d+/g)?.map(Number) ?? [];
      return shade < 128;
    };
    expect(await isDark()).toBe(false);
    expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBe(width);
    await loadAxe(page);
    expect(await breachesOf(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.evaluate('Promise.allSettled(document.getAnimations().map(({ finished }) => finished))');
    expect(await isDark()).toBe(true);
    expect(await breachesOf(page, 'contrast')).toEqual([]);
    await context.close();
  });

  test('is linked from the dashboard', async () => {
    const page = await browser.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${base}/dashboard`);
    expect(await page.getByRole('link', { name: 'the reference' }).getAttribute('href')).toBe('/docs');
    await page.getByLabel('Root key').fill(ROOT_KEY);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('link', { name: 'Reference', exact: true }).click();
    await page.locator('.swagger-ui .info').waitFor();
    expect(new URL(page.url()).pathname).toMatch(/^\/docs/);
    await page.close();
  });
});
