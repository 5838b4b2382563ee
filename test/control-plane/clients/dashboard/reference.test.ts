import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { lacking } from '../../../harness/programs.ts';
import { share } from '../../../harness/share.ts';
import { HOLDS_MS_MAX } from '../../../harness/waiting.ts';
import { breachesOf, loadAxe } from './axe.ts';
import { executable, startChromium } from './chromium.ts';

describe.skipIf(!executable)(`the reference${lacking(executable ? [] : ['chromium'])}`, () => {
  let fleet: Fleet;
  let browser: Browser;
  let base: string;
  beforeAll(async () => {
    fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '10000' } });
    base = fleet.controlPlanes[0]?.address ?? '';
    browser = await startChromium();
  }, HOLDS_MS_MAX);
  afterAll(async () => {
    await browser.close();
    await fleet.stop();
  });

  const open = async (path = '/docs') => {
    const page = await browser.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(base + path);
    return page;
  };
  const signIn = async (page: Awaited<ReturnType<typeof open>>) => {
    await page.getByLabel('Root key').fill(ROOT_KEY);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('link', { name: 'Reference', exact: true }).click();
    await page.locator('header.keyfence').getByRole('link', { name: 'Signed in' }).waitFor();
  };
  const createKey = '[id="v1/keys.createKey"]';

  test('begins with verifyKey; shows fields and a limit unasked', async () => {
    const page = await open();
    expect(await page.locator('section.reference-part h3').first().textContent()).toBe(
      'POST /v1/keys.verifyKey',
    );
    const section = page.locator(createKey);
    expect(
      await section
        .locator('td', { hasText: /^externalId$/ })
        .first()
        .isVisible(),
    ).toBe(true);
    expect(await section.locator('pre.call').textContent()).toContain('"ratelimit":{"limit":100');
    await page.close();
  });

  test('each call runs as copied', async () => {
    const page = await open();
    const calls = await page.locator('pre.call').allTextContents();
    expect(calls.length).toBeGreaterThan(100);
    await page.close();
    const { key: KEY } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const verifier = fleet.verifiers[0]?.address ?? '';
    const commands = calls.map((call) => call.replace('http://127.0.0.1:3001', verifier));
    for (const command of commands) expect(command).toMatch(new RegExp(`(${base}|${verifier})/`));
    const env = { ...process.env, KEY, ROOT_KEY };
    // One after the other in one shell: each answer is a line.
    const { stdout } = await promisify(execFile)('sh', ['-ec', commands.join('\n')], {
      env,
      maxBuffer: 2 ** 24,
    });
    const answers = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(answers).toHaveLength(commands.length);
    expect(answers[0]).toMatchObject({ valid: true, code: 'VALID' });
    const refusals = answers.flatMap(({ error }, i) =>
      /^(BAD_REQUEST|UNAUTHORIZED|INTERNAL)/.test(error?.code ?? '')
        ? [`${commands[i]}: ${error.message}`]
        : [],
    );
    expect(refusals).toEqual([]);
  });

  test('searches, by a key of the keyboard too', async () => {
    const page = await open();
    await page.keyboard.press('/');
    await page.keyboard.type('rotate secret');
    expect(await page.locator('section.reference-part:visible').count()).toBeLessThan(20);
    expect(await page.locator('[id="v1/keys.rerollKey"]').isVisible()).toBe(true);
    expect(await page.getByRole('link', { name: 'keys.createKey' }).first().isVisible()).toBe(false);
    expect(await page.getByRole('status').first().textContent()).toMatch(/^\d+ of \d+$/);
    await page.close();
  });

  test('calls in the dashboard session, with no key', async () => {
    const page = await open();
    await page.locator(createKey).getByRole('button', { name: 'Try it' }).click();
    await signIn(page);
    await page.locator(createKey).getByRole('button', { name: 'Try it' }).click();
    await page.locator(createKey).getByLabel('Request').fill('{"apiId": "tried", "name": "Ada"}');
    await page.locator(createKey).getByRole('button', { name: 'Send' }).click();
    await expect.poll(() => page.locator(createKey).locator('form pre').textContent()).toMatch(/^200\n/);
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'tried' });
    expect(keys).toMatchObject([{ name: 'Ada', enabled: true }]);
    const list = page.locator('[id="v1/apis.listKeys"]');
    await list.getByRole('button', { name: 'Try it' }).click();
    await list.getByLabel('Request').fill('{"apiId": "tried"}');
    await list.getByRole('button', { name: 'Send' }).click();
    await expect.poll(() => list.locator('form pre').textContent()).toContain('"name": "Ada"');
    // A verifier is another origin, which the page may not ask.
    expect(
      await page.locator('[id="v1/keys.verifyKey"]').getByRole('button', { name: 'Try it' }).count(),
    ).toBe(0);
    await page.close();
  });

  test('runs nothing but its own script', async () => {
    const { headers } = await fleet.get(`${base}/docs`);
    const policy = String(headers['content-security-policy']);
    expect(policy).toMatch(/^default-src 'none'; script-src 'sha256-[^' ]+'; style-src 'sha256-[^' ]+'; /);
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
    const page = await browser.newPage();
    const faults: string[] = [];
    page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
    page.on('pageerror', (error) => faults.push(String(error)));
    await page.goto(`${base}/docs`);
    await page.locator('header.keyfence').getByRole('link', { name: 'Sign in' }).waitFor();
    expect(faults.filter((text) => !/401/.test(text))).toEqual([]);
    await page.close();
  });

  test.for(share([1280, 390], 2))('keeps WCAG 2.2 AA and fits at %i px', async (width) => {
    const viewport = { width, height: 844 };
    const context = await browser.newContext({ viewport, isMobile: width < 500, colorScheme: 'light' });
    const page = await context.newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${base}/docs`);
    expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBe(width);
    await page.evaluate(
      "document.querySelectorAll('.reference-part').forEach((part, i) => { if (i > 12) part.remove(); })",
    );
    await loadAxe(page);
    expect(await breachesOf(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(await breachesOf(page, 'contrast')).toEqual([]);
    await context.close();
  });

  test('is linked from the dashboard', async () => {
    const page = await open('/dashboard');
    await signIn(page);
    expect(new URL(page.url()).pathname).toBe('/docs');
    await page.close();
  });
});
