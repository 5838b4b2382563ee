import { readFile } from 'node:fs/promises';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { lacking } from '../../../harness/programs.ts';
import { HOLDS_MS_MAX } from '../../../harness/waiting.ts';
import { OidcStage } from '../../subjects/sign-in/oidc/stage.ts';
import { executable, startChromium } from './chromium.ts';

const skipped = lacking(executable ? [] : ['chromium']);
describe.skipIf(skipped)(`in Chromium, a person${skipped}`, () => {
  let stage: OidcStage;
  let browser: Browser;
  beforeAll(async () => {
    [stage, browser] = await Promise.all([OidcStage.start(), startChromium()]);
  });
  afterAll(async () => {
    await browser.close();
    await stage.stop();
  });

  /** Goes from the dashboard to the provider, which is another site, and back. */
  async function signIn(login: string): Promise<Page> {
    const page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(HOLDS_MS_MAX);
    await page.goto(`${stage.base}/dashboard`);
    await page.getByRole('link', { name: `Sign in with ${new URL(stage.provider.issuer).host}` }).click();
    await page.getByPlaceholder('Enter any login').fill(login);
    await page.getByPlaceholder('and password').fill('any');
    await page.getByRole('button', { name: 'Sign-in' }).click();
    return page;
  }

  test('signs in at the provider and out of both', async () => {
    const page = await signIn('ada-1');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(page.url()).toBe(`${stage.base}/dashboard/#/`);
    const cookies = await page.context().cookies(stage.base);
    expect(cookies.sort((a, b) => (a.name < b.name ? -1 : 1))).toMatchObject([
      { name: 'keyfence_session', httpOnly: true, sameSite: 'Strict' },
      { name: 'keyfence_sign_in', httpOnly: true, sameSite: 'Lax' },
    ]);
    expect(await page.evaluate('JSON.stringify([{ ...sessionStorage }, { ...localStorage }])')).toBe(
      '[{},{}]',
    );
    await page.reload();
    await page.getByRole('link', { name: 'Root keys' }).click();
    const sessions = page.getByRole('table', { name: 'Sessions' });
    await sessions.getByText('ada@example.com').waitFor();
    await page.getByRole('button', { name: 'New root key' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('by Ada');
    await page.getByRole('radio', { name: 'manage keys, as CI does' }).check();
    await page.getByRole('button', { name: 'Create root key' }).click();
    await page.getByRole('button', { name: 'I have stored it' }).click();
    const { rootKeys } = await stage.fleet.ok('rootKeys.listRootKeys');
    expect(rootKeys).toMatchObject([
      { name: 'by Ada', permissions: expect.arrayContaining(['api.*.create_key']) },
    ]);
    await page.goto(`${stage.base}/dashboard/#/audit`);
    await page.getByRole('table', { name: 'Events' }).getByText('ada@example.com').first().waitFor();
    const started = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export CSV' }).click();
    const [heading = '', ...rows] = (await readFile(await (await started).path(), 'utf8')).split('\r\n');
    expect(heading).toMatch(/^\ufeff"time","operation","outcome","by","person","address",/);
    expect(rows.find((row) => row.includes('"rootKeys.createRootKey"'))).toMatch(
      /,"OK","person_\w+","ada@example.com",/,
    );

    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Root key').waitFor();
    await page.getByRole('link', { name: 'Sign out there, too' }).click();
    await page.getByRole('button', { name: 'Yes, sign me out' }).click();
    await page.getByLabel('Root key').waitFor();
    expect(page.url()).toBe(`${stage.base}/dashboard/`);
  });

  test('without permissions is told, with a way back', async () => {
    const page = await signIn('bob-3');
    await page.getByRole('heading', { name: 'Not signed in' }).waitFor();
    await page.getByText('OIDC_PERMISSIONS gives this person no permission').waitFor();
    await page.getByRole('link', { name: 'Back to the dashboard' }).click();
    await page.getByLabel('Root key').waitFor();
  });
});
