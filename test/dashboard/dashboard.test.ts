import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { usageKey } from '../../shared/redis/redis-keys.ts';
import { LENGTH_MS, usageField } from '../../shared/usage.ts';
import { VERDICTS } from '../../shared/verdict-codes.ts';
import type { VerifierStatus as Verifier } from '../../shared/verifier-status.ts';
import { FaultProxy } from '../chaos/proxy.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { lacking } from '../harness/programs.ts';
import { RedisNode } from '../harness/redis-nodes.ts';
import { Dashboard, executable, startChromium } from './chromium.ts';

const SCREENSHOTS = join(import.meta.dirname, '..', '..', 'control-plane', 'dashboard', 'screenshots');
/** Of the API that screenshots show. */
const KEYS = [
  ['Android app', 'team-mobile', true],
  ['iOS app', 'team-mobile', true],
  ['Old till', 'shop-17', false],
  ['Partner feed', 'partner-ada', true],
  ['Night import', 'team-data', true],
  ['Status page', 'team-web', true],
] as const;

const skipped = lacking(executable ? [] : ['chromium']);

describe.skipIf(skipped)(`in Chromium${skipped}`, () => {
  let fleet: Fleet;
  let browser: Browser;
  let base: string;
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-dashboard-'));
  let redis: RedisNode;
  beforeAll(async () => {
    // On a TCP port, so that a proxy can come between it and a verifier.
    redis = await RedisNode.start(directory);
    // While a lease lasts, the page must have shown that a verifier is missing.
    const env = {
      LEASE_MS: '6000',
      STATUS_PERIOD_MS: '100',
      USAGE_PERIOD_MS: '100',
      FAILURES_PER_MINUTE: '0',
    };
    [fleet, browser] = await Promise.all([Fleet.start({ env, redisUrl: redis.url }), startChromium()]);
    base = fleet.controlPlanes[0]?.address ?? '';
  });
  afterAll(async () => {
    await browser?.close();
    await fleet?.stop();
    await redis?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  const signedIn = async (hash = '#/', rootKey = ROOT_KEY) => {
    const dashboard = await Dashboard.open(browser, base);
    await dashboard.signIn(rootKey);
    await dashboard.page.getByRole('heading', { name: 'Overview' }).waitFor();
    await dashboard.go(hash);
    return dashboard;
  };

  describe('the whole walk', () => {
    test('a key is created, verified, disabled, refused, enabled and verified again', async () => {
      const dashboard = await signedIn('#/apis');
      const { page } = dashboard;
      await page.getByRole('button', { name: 'New API' }).click();
      const made = page.getByRole('form', { name: 'New API' });
      await made.getByLabel('Name').fill('Shop');
      await made.getByLabel('Id').fill('shop');
      await made.getByRole('button', { name: 'Create' }).click();
      await page.getByRole('heading', { name: 'Keys of Shop' }).waitFor();
      await page.getByText('No keys yet.').waitFor();

      await page.getByRole('button', { name: 'Settings' }).click();
      const settings = page.getByRole('form', { name: 'Settings of the API' });
      await settings.getByLabel('Prefix of new keys').fill('acme');
      await settings.getByLabel('Random bytes of new keys').fill('24');
      await settings.getByRole('button', { name: 'Save' }).click();
      await settings.getByText('Saved.').waitFor();
      const defaults = { name: 'Shop', defaultPrefix: 'acme', defaultBytes: 24 };
      expect(await fleet.ok('apis.getApi', { apiId: 'shop' })).toMatchObject(defaults);
      await page.getByRole('button', { name: 'Settings' }).click();

      await page.getByRole('button', { name: 'New key' }).click();
      const form = page.getByRole('form', { name: 'New key' });
      await form.getByLabel('Name').fill('Ada');
      await form.getByLabel('Owner').fill('customer-7');
      await form.getByLabel('Environment').fill('live');
      await form.getByLabel('Prefix').fill('shop');
      await form.getByLabel('Meta').fill('{"plan": "pro"}');
      await form.getByRole('button', { name: 'Create key' }).click();
      const dialog = page.getByRole('dialog', { name: 'The new key' });
      const key = await dialog.getByLabel('Secret').inputValue();
      expect(key).toMatch(/^shop_\w{39}$/);
      await dialog.getByRole('button', { name: 'Copy' }).click();
      await dialog.getByText('Copied.').waitFor();
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(key);
      await page.keyboard.press('Escape');
      await page.keyboard.press('Escape');
      expect(await dialog.isVisible()).toBe(true);
      await dialog.getByRole('button', { name: 'I have stored it' }).click();
      await dialog.waitFor({ state: 'detached' });
      expect(await page.content()).not.toContain(key);
      // What made a key goes away with it, so that nobody makes a second one by a second click.
      expect(await form.count()).toBe(0);
      expect((await fleet.ok('apis.listKeys', { apiId: 'shop' })).total).toBe(1);

      expect(await fleet.verdict(key)).toBe('VALID');
      const verified = await fleet.verify(key);
      expect(verified.body).toMatchObject({
        code: 'VALID',
        name: 'Ada',
        meta: { plan: 'pro' },
        environment: 'live',
      });
      const panel = page.getByLabel('How far the change has come');
      await page.getByRole('button', { name: 'Disable Ada' }).click();
      await panel.getByText(/Disabled Ada\. Complete in [\d.]+ m?s: applied by the verifier\./).waitFor();
      expect(await fleet.verdict(key)).toBe('DISABLED');
      await page.getByRole('cell', { name: 'disabled', exact: true }).waitFor();
      // Where one looks: right below the row.
      expect(await page.locator('tr:has(button[aria-label="Enable Ada"]) + tr').innerText()).toMatch(
        'Disabled Ada',
      );
      await panel.getByRole('button', { name: 'Undo' }).click();
      await panel.getByText(/Undone: Disabled Ada\. Complete in/).waitFor();
      expect(await fleet.verdict(key)).toBe('VALID');
      await page.getByRole('button', { name: 'Disable Ada' }).click();
      await page.getByRole('button', { name: 'Enable Ada' }).click();
      await panel.getByText(/Enabled Ada\. Complete in/).waitFor();
      expect(await fleet.verdict(key)).toBe('VALID');

      await dashboard.go('#/fleet');
      expect((await dashboard.rows('Verifiers'))[0]?.join()).toMatch(/1 of 1 live/);
      await page.getByRole('img', { name: /How long changes made here took/ }).waitFor();
      await dashboard.close(key);
    });

    test('several keys are selected, disabled by one change, and watched in one panel', async () => {
      const made: { key: string; keyId: string }[] = [];
      for (const name of ['One', 'Two', 'Three']) {
        made.push(await fleet.ok('keys.createKey', { apiId: 'several', name }));
      }
      const codes = () => Promise.all(made.map(({ key }) => fleet.verdict(key)));
      expect(await codes()).toEqual(['VALID', 'VALID', 'VALID']);
      const dashboard = await signedIn('#/apis/several');
      const { page } = dashboard;
      const bar = page.getByRole('group', { name: 'Selection' });
      const panel = page.getByLabel('How far the change has come');
      await bar.getByText('None selected').waitFor();
      await page.getByRole('checkbox', { name: 'Select One' }).check();
      await page.getByRole('checkbox', { name: 'Select Three' }).check();
      await bar.getByText('2 keys selected').waitFor();
      await bar.getByRole('button', { name: 'Disable 2 keys' }).click();
      await panel.getByText(/Disabled 2 keys\. Complete in [\d.]+ m?s: applied by the verifier\./).waitFor();
      expect(await codes()).toEqual(['DISABLED', 'VALID', 'DISABLED']);
      expect(await panel.count()).toBe(1);
      await panel.getByRole('button', { name: 'Undo' }).click();
      await panel.getByText(/Undone: Disabled 2 keys\. Complete in/).waitFor();
      expect(await codes()).toEqual(['VALID', 'VALID', 'VALID']);
      await bar.getByText('None selected').waitFor();
      await bar.getByRole('button', { name: 'Select page' }).click();
      await bar.getByText('3 keys selected').waitFor();
      await fleet.ok('keys.deleteKey', { keyId: made[1]?.keyId });
      await bar.getByRole('button', { name: 'Enable 3 keys' }).click();
      await panel.getByText(/Enabled 3 keys, but for 1 that could not be changed\. Complete in/).waitFor();
      expect(await codes()).toEqual(['VALID', 'NOT_FOUND', 'VALID']);
      await dashboard.close();
    });

    test('what a key is, is changed, cleared and deleted on its page; how it is used is drawn', async () => {
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'detail', name: 'Bob', prefix: 'b' });
      expect(await fleet.verdict(key)).toBe('VALID');
      const dashboard = await signedIn(`#/keys/${keyId}`);
      const { page } = dashboard;
      const form = page.getByRole('form', { name: 'Change the key' });
      const keyNow = () => fleet.ok('keys.getKey', { keyId });

      await form.getByLabel('Meta').fill('{"plan": ');
      await form.getByRole('button', { name: 'Save' }).click();
      await form
        .getByRole('alert')
        .getByText(/Not accepted: meta: /)
        .waitFor();
      expect(await form.getByLabel('Meta').inputValue()).toBe('{"plan": ');
      await form.getByLabel('Meta').fill('{"plan": "free"}');
      await form.getByLabel('Owner').fill('someone');
      await form.getByLabel('Expires').fill('2999-12-31T10:00:00');
      await form.getByRole('button', { name: 'Save' }).click();
      await page.getByText('Saved.').waitFor();
      await page.locator('dd', { hasText: '2999' }).waitFor();
      expect(await keyNow()).toMatchObject({ name: 'Bob', externalId: 'someone', meta: { plan: 'free' } });
      expect(new Date((await keyNow()).expires).getFullYear()).toBe(2999);

      await form.getByRole('button', { name: 'Save' }).click();
      await form.getByText('Nothing differs.').waitFor();
      await form.getByLabel('Expires').fill('');
      await form.getByLabel('Owner').fill('');
      await form.getByRole('button', { name: 'Save' }).click();
      await fleet.until(async () => !('expires' in (await keyNow())));
      expect(await keyNow()).not.toHaveProperty('externalId');

      await fleet.until(async () => {
        await page.reload();
        await dashboard.signIn();
        await page.getByRole('heading', { name: 'Bob' }).waitFor();
        await dashboard.loaded();
        return page.getByRole('img', { name: /Verdicts by the hour: 48 bars, the highest 1 ×/ }).isVisible();
      });
      await page.getByLabel('day').check();
      await page.getByRole('img', { name: /Verdicts by the day/ }).waitFor();

      await page.getByRole('button', { name: 'Delete key' }).click();
      const dialog = page.getByRole('dialog', { name: 'Delete this key?' });
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      expect(await fleet.verdict(key)).toBe('VALID');
      await page.getByRole('button', { name: 'Delete key' }).click();
      await dialog.getByRole('button', { name: 'Delete for good' }).click();
      await page.getByRole('heading', { name: 'Keys of detail' }).waitFor();
      expect(await fleet.verdict(key)).toBe('NOT_FOUND');
      await dashboard.go(`#/keys/${keyId}`);
      await page.getByText(/Not found.*not found/).waitFor();
      await dashboard.close(key);
    });

    test('the credits of a key are drawn, set, refilled and made unlimited', async () => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId: 'detail', name: 'Cy', remaining: 40 });
      const dashboard = await signedIn(`#/keys/${keyId}`);
      const { page } = dashboard;
      const form = page.getByRole('form', { name: 'Set the credits' });
      const keyNow = () => fleet.ok('keys.getKey', { keyId });
      await page.getByRole('img', { name: 'Credits: 40 free, 0 at verifiers' }).waitFor();

      await form.getByLabel('Credits empty').fill('many');
      await form.getByRole('button', { name: 'Set' }).click();
      await form.getByRole('alert').getByText('Credits: must be a whole number').waitFor();
      await form.getByLabel('Credits empty').fill('70');
      await form.getByLabel('Refill').selectOption('monthly');
      await form.getByLabel('Amount').fill('100');
      await form.getByLabel('Date').fill('15');
      await form.getByRole('button', { name: 'Set' }).click();
      await page.getByRole('img', { name: 'Credits: 70 free, 0 at verifiers' }).waitFor();
      await page.getByText('Refilled to 100 monthly on day 15 at 00:00 UTC').waitFor();
      expect(await keyNow()).toMatchObject({
        remaining: 70,
        refill: { interval: 'monthly', amount: 100, refillDay: 15 },
      });
      await form.getByRole('button', { name: 'Set' }).click();
      await form.getByText('Nothing differs.').waitFor();
      await form.getByLabel('Credits empty').fill('');
      await form.getByRole('button', { name: 'Set' }).click();
      await page.getByText('No limit: this key is accepted').waitFor();
      expect(await keyNow()).not.toHaveProperty('remaining');
      await dashboard.close();
    });

    test('keys are searched, filtered and paged through', async () => {
      let key = '';
      for (let i = 0; i < 30; i++) {
        const { key: made } = await fleet.ok('keys.createKey', {
          apiId: 'many',
          name: `${i % 2 ? 'odd' : 'even'} ${i}`,
          externalId: `owner ${i % 3}`,
          enabled: i % 5 !== 0,
        });
        key = made;
      }
      const dashboard = await signedIn('#/apis/many');
      const { page } = dashboard;
      const names = async () => (await dashboard.rows('Keys')).map(([, name = '']) => name.split('\n')[0]);
      const first = await names();
      expect(first).toHaveLength(25);
      expect(first[0]).toBe('odd 29');
      await page.getByRole('button', { name: 'Next' }).click();
      await page.getByText('Page 2').waitFor();
      await dashboard.loaded();
      expect(await names()).toEqual(['even 4', 'odd 3', 'even 2', 'odd 1', 'even 0']);
      await page.getByRole('button', { name: 'Previous' }).click();
      await page.getByText('Page 1').waitFor();
      await dashboard.loaded();
      expect(await names()).toEqual(first);

      await page.getByLabel('Name begins with').fill('odd');
      await page.getByLabel('Owner').fill('owner 1');
      await page.keyboard.press('Enter');
      await dashboard.loaded();
      expect(await names()).toEqual(['odd 25', 'odd 19', 'odd 13', 'odd 7', 'odd 1']);
      await page.getByLabel('State').selectOption('disabled');
      await dashboard.loaded();
      expect(await names()).toEqual(['odd 25']);

      await page.getByLabel('Name begins with').fill(key);
      await page.getByRole('button', { name: 'Search' }).click();
      await page.getByText('keys are not sent in addresses').waitFor();
      await dashboard.close(key);
    });

    test('a delete that is not complete when the API answers says until when a verifier may go on', async () => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId: 'hasty' });
      const { address } = await fleet.addControlPlane({ FENCE_WAIT_MS: '0' });
      const dashboard = await Dashboard.open(browser, address);
      const { page } = dashboard;
      await dashboard.signIn();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await dashboard.go(`#/keys/${keyId}`);
      await page.getByRole('button', { name: 'Delete key' }).click();
      await page.getByRole('button', { name: 'Delete for good' }).click();
      await page
        .getByRole('dialog')
        .getByText(/may accept it until .*:.*, and no longer/)
        .waitFor();
      await page.getByRole('button', { name: 'Close' }).click();
      await page.getByRole('heading', { name: 'Keys of hasty' }).waitFor();
      await dashboard.close();
    });

    test('an API that is not there says so, leads back, and offers nothing', async () => {
      const dashboard = await signedIn('#/apis/never-made');
      const { page } = dashboard;
      await page.getByRole('heading', { name: 'No such API' }).waitFor();
      expect(await page.getByRole('button', { name: /New key|Delete API/ }).count()).toBe(0);
      await page.getByRole('link', { name: 'To the APIs' }).click();
      await page.getByRole('heading', { name: 'APIs' }).waitFor();
      await dashboard.close();
    });

    test('the overview shows what is answered and refused, what needs attention, and who changed what', async () => {
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'watched', name: 'Olga' });
      await fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect(await fleet.verdict(key)).toBe('DISABLED');
      const dashboard = await signedIn();
      const { page } = dashboard;
      const count = page
        .getByLabel('Refusals since the verifiers started')
        .locator('div', { hasText: 'DISABLED' });
      await fleet.until(async () => Number((await count.locator('dd').innerText()).replace(/\D/g, '')) >= 1);
      await page.getByText('Verifiers in sync').waitFor();
      await page.getByRole('img', { name: /Verifications since this page was opened/ }).waitFor();
      const [latest = []] = await dashboard.rows('Events');
      expect(latest.slice(0, 2)).toEqual(['keys.updateKey', 'OK']);
      await dashboard.close(key);
    });

    test('an API is deleted only by who types its id', async () => {
      const { key } = await fleet.ok('keys.createKey', { apiId: 'doomed' });
      const dashboard = await signedIn('#/apis/doomed');
      const { page } = dashboard;
      await page.getByRole('button', { name: 'Delete API' }).click();
      const remove = page.getByRole('button', { name: 'Delete API and keys' });
      await page.getByLabel('Type doomed to confirm').fill('doome');
      expect(await remove.isDisabled()).toBe(true);
      await page.getByLabel('Type doomed to confirm').fill('doomed');
      await remove.click();
      await page.getByRole('heading', { name: 'APIs' }).waitFor();
      expect(await fleet.verdict(key)).toBe('NOT_FOUND');
      await dashboard.close(key);
    });

    test('a root key is made with the chosen permissions, signs in, and is ended when it is disabled', async () => {
      const dashboard = await signedIn('#/root-keys');
      const { page } = dashboard;
      await page.getByRole('button', { name: 'New root key' }).click();
      await page.getByRole('textbox', { name: 'Name' }).fill('Reader');
      await page.getByLabel('For the API').fill('shop');
      await page.getByLabel('read key', { exact: true }).check();
      await page.getByLabel('read api').check();
      await page.getByRole('button', { name: 'Create root key' }).click();
      const secret = await page.getByLabel('Secret').inputValue();
      await page.getByRole('button', { name: 'I have stored it' }).click();
      await page.getByText('api.shop read key, read api').waitFor();

      const reader = await signedIn('#/fleet', secret);
      await reader.page.getByText(/Not permitted.*root\.\*\.read_fleet/).waitFor();
      await page.getByRole('button', { name: 'Disable Reader' }).click();
      const sure = page.getByRole('dialog', { name: 'Disable this root key?' });
      await sure.getByRole('button', { name: 'Cancel' }).click();
      await page.getByRole('button', { name: 'Disable Reader' }).click();
      await sure.getByRole('button', { name: 'Disable' }).click();
      await page.getByRole('cell', { name: 'disabled', exact: true }).waitFor();
      await reader.go('#/apis/shop');
      await reader.page.getByText('The root key is no longer accepted.').waitFor();
      await reader.close(secret);
      await dashboard.close(secret);
    });

    test('what was done and what was refused is listed', async () => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId: 'audited', name: 'Eve' });
      await fleet.ok('keys.updateKey', { keyId, enabled: false });
      await fleet.admin('keys.updateKey', { keyId, enabled: 'no' });
      const dashboard = await signedIn(`#/keys/${keyId}`);
      const { page } = dashboard;
      await page.getByRole('link', { name: 'Audit log of this key' }).click();
      await page.getByRole('heading', { name: 'Audit' }).waitFor();
      await dashboard.loaded();
      const operations = async () => (await dashboard.rows('Events')).map((cells) => cells.slice(0, 2));
      expect(await operations()).toEqual([
        ['keys.updateKey', 'OK'],
        ['keys.createKey', 'OK'],
      ]);
      await page.getByLabel('Show').selectOption('what was refused');
      await dashboard.loaded();
      expect(await operations()).toEqual([['keys.updateKey', 'BAD_REQUEST']]);
      await dashboard.close();
    });
  });

  test('while a verifier is cut off, a disable shows who has applied it, who has not, and until when', async () => {
    const proxy = new FaultProxy(() => redis.port);
    const port = await proxy.listen();
    const env = { STATUS_PERIOD_MS: '100', REDIS_URL: `redis://127.0.0.1:${port}` };
    const cutOff = await fleet.addVerifier(env);
    try {
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'fenced', name: 'Mallory' });
      for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
      const following = async () =>
        (await fleet.ok('fleet.listVerifiers')).verifiers.filter((verifier: { apis: { apiId: string }[] }) =>
          verifier.apis.some(({ apiId }) => apiId === 'fenced'),
        ).length === 2;
      await fleet.until(following);
      const dashboard = await signedIn(`#/keys/${keyId}`);
      const { page } = dashboard;
      proxy.set('blackhole');
      await page.getByRole('button', { name: 'Disable Mallory' }).click();
      const panel = page.getByLabel('How far the change has come');
      await panel.getByText('Disabled Mallory. Waiting for 1 of 2 verifiers.').waitFor();
      await panel.getByText(/applied within [\d.]+ m?s/).waitFor();
      await panel.getByText('not yet').waitFor();
      await panel.getByRole('progressbar').waitFor();
      expect(await fleet.verdict(key, { at: 0 })).toBe('DISABLED');
      await panel.getByText(/Complete after [\d.]+ m?s, by fence: 1 of 2 did not answer/).waitFor();
      await panel.getByText('shut out: its lease has ended').waitFor();
      expect((await fleet.verifyOnce(key, { at: 1 })).status).toBe(503);
      await dashboard.close(key);
    } finally {
      proxy.set('none');
      await cutOff.stop();
      fleet.verifiers.splice(1, 1);
      proxy.close();
    }
  });

  test('what the README shows is what it looks like: npm run screenshots', async () => {
    const folder = process.env['SCREENSHOTS'] ? SCREENSHOTS : directory;
    const proxy = new FaultProxy(() => redis.port);
    const port = await proxy.listen();
    const env = { STATUS_PERIOD_MS: '100' };
    await fleet.addVerifier({ ...env, REDIS_URL: redis.url });
    await fleet.addVerifier({ ...env, REDIS_URL: `redis://127.0.0.1:${port}` });
    try {
      const made = [];
      for (const [name, externalId, enabled] of KEYS) {
        const key = { apiId: 'orders', name, externalId, enabled, prefix: 'live', meta: { plan: 'pro' } };
        made.push(await fleet.ok('keys.createKey', key));
      }
      const { key, keyId } = made[3];
      await fleet.until(async () => {
        for (const at of [0, 1, 2]) await fleet.verdict(key, { at });
        const { verifiers } = await fleet.ok('fleet.listVerifiers');
        const follows = ({ apis }: Verifier) => apis.some((api) => api.apiId === 'orders' && api.member);
        return verifiers.filter(follows).length === 3;
      });
      // Changes before the one that is shown, as on any server that has run for a while.
      for (const { keyId } of made.filter((_, i) => KEYS[i]?.[2]))
        await fleet.ok('keys.updateKey', { keyId, enabled: true });
      const hour = Math.floor(Date.now() / LENGTH_MS.hour);
      for (let i = 1; i < 48; i++) {
        const count = Math.round(900 + 600 * Math.sin((hour - i) / 3.8) + 90 * Math.sin(i * i));
        const usage = usageKey('orders', keyId);
        await redis.command(
          'HSET',
          usage,
          usageField('hour', hour - i, VERDICTS.VALID.usage.letter),
          String(count),
        );
        const expired = i % 7 === 0 ? 60 + 9 * i : 0;
        await redis.command(
          'HSET',
          usage,
          usageField('hour', hour - i, VERDICTS.DISABLED.usage.letter),
          String(expired),
        );
      }
      for (const colorScheme of ['light', 'dark'] as const) {
        const viewport = { width: 860, height: 640 };
        const dashboard = await Dashboard.open(browser, base, { viewport, colorScheme });
        const { page } = dashboard;
        await dashboard.signIn();
        await page.getByRole('heading', { name: 'Overview' }).waitFor();
        const shoot = async (name: string) => {
          const path = join(folder, `${name}-${colorScheme}.png`);
          await page.screenshot({ path, animations: 'disabled' });
          expect(statSync(path).size).toBeLessThan(100_000);
        };
        await dashboard.go('#/apis/orders');
        await page.getByRole('button', { name: 'Disable Night import' }).click();
        await page.getByText(/Complete in/).waitFor();
        await dashboard.loaded();
        await shoot('keys');
        await page.getByRole('button', { name: 'Enable Night import' }).click();
        await page.getByText(/Enabled Night import. Complete in/).waitFor();
        await dashboard.go(`#/keys/${keyId}`);
        proxy.set('blackhole');
        await page.getByRole('button', { name: 'Disable Partner feed' }).click();
        await page.getByText('Waiting for 1 of 3 verifiers.').waitFor();
        await page.setViewportSize({ width: 860, height: 820 });
        if (colorScheme === 'dark') await shoot('fence');
        await page.getByText(/by fence: 1 of 3/).waitFor();
        proxy.set('none');
        await page.getByRole('button', { name: 'Enable Partner feed' }).click();
        await fleet.until(async () => {
          for (const at of [0, 1, 2]) await fleet.verdict(key, { at });
          const { propagation } = await fleet.ok('keys.updateKey', { keyId });
          return propagation.verifiers === 3 && propagation.state === 'complete';
        });
        await dashboard.close(key);
      }
    } finally {
      proxy.set('none');
      await Promise.all(fleet.verifiers.splice(1).map((verifier) => verifier.stop()));
      proxy.close();
    }
  });

  describe('signing in', () => {
    test('fails in words for a root key that is wrong, is a key of an API, or is not sendable', async () => {
      const { key } = await fleet.ok('keys.createKey', { apiId: 'plain' });
      const dashboard = await Dashboard.open(browser, base);
      const { page } = dashboard;
      for (const wrong of ['nobody-knows-this-root-key-00000000', key, 'schlüssel', 'two words']) {
        await dashboard.signIn(wrong);
        await page.getByRole('alert').getByText('Root key not accepted').waitFor();
        await page.getByLabel('Root key').fill('');
      }
      expect(await page.getByRole('navigation').count()).toBe(0);
      await dashboard.close(key, 'nobody-knows-this-root-key-00000000');
    });

    test('is for this page only, or until the tab is closed where that is asked for', async () => {
      const dashboard = await signedIn();
      const { page } = dashboard;
      expect(await page.evaluate('JSON.stringify(sessionStorage)')).toBe('{}');
      await page.reload();
      await page.getByLabel('Stay signed in').check();
      await dashboard.signIn();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.reload();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByLabel('Root key').waitFor();
      expect(await page.evaluate('JSON.stringify(sessionStorage)')).toBe('{}');
      await dashboard.close();
    });

    test('without a connection says so; a connection that is lost later is told, and comes back by itself', async () => {
      const dashboard = await Dashboard.open(browser, base);
      const { page } = dashboard;
      await page.context().setOffline(true);
      await dashboard.signIn();
      await page.getByText('Connection lost: the control plane does not answer').waitFor();
      await page.context().setOffline(false);
      await dashboard.signIn();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.context().setOffline(true);
      await page.getByRole('link', { name: 'Fleet' }).click();
      await page.getByText('Connection to the control plane lost').waitFor();
      await page.getByText('Trying again…').waitFor();
      await page.context().setOffline(false);
      await page.getByRole('table', { name: 'Verifiers' }).waitFor();
      await page.getByText('Connection to the control plane lost').waitFor({ state: 'detached' });
      await dashboard.close();
    });
  });

  describe('what others wrote', () => {
    const evil = `"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}\${7*7}`;

    test('is text on every page, whatever it looks like', async () => {
      const meta = { [evil]: evil, __proto__: { toString: 1 }, constructor: evil };
      const body = { apiId: 'evil', name: evil, externalId: evil, meta };
      const { keyId } = await fleet.ok('keys.createKey', body);
      await fleet.ok('apis.createApi', { name: evil, apiId: 'evil-name' });
      await fleet.ok('rootKeys.createRootKey', { name: evil, permissions: ['api.x.read_key'] });
      await fleet.ok('keys.updateKey', { keyId, name: `${evil}!` });
      const dashboard = await signedIn();
      const { page } = dashboard;
      for (const hash of [
        '#/',
        '#/apis',
        '#/apis/evil',
        `#/keys/${keyId}`,
        '#/root-keys',
        '#/fleet',
        '#/audit',
        `#/audit/${keyId}`,
        `#/apis/${encodeURIComponent(evil)}`,
        `#/apis/${evil}`,
        `#/keys/${evil}`,
        '#/javascript:window.pwned=1',
      ]) {
        await dashboard.go(hash);
        for (const summary of (await page.locator('summary').all()).slice(0, 10)) await summary.click();
        expect(await page.locator('main img, main script').count(), hash).toBe(0);
      }
      await dashboard.go(`#/keys/${keyId}`);
      await page.getByRole('heading', { name: `${evil}!` }).waitFor();
      expect(await page.getByLabel('Meta').inputValue()).toContain('onerror');
      await page.getByRole('button', { name: `Disable ${evil}!` }).click();
      await page.getByText(`Disabled ${evil}!`).waitFor();
      expect(await page.evaluate('window.pwned')).toBe(undefined);
      await dashboard.close();
    });

    test('could not become markup or code even where the dashboard had a bug', async () => {
      const dashboard = await signedIn();
      const { page } = dashboard;
      const attempt = (code: string) => page.evaluate(code).catch((error: Error) => error.message);
      expect(await attempt(`document.body.innerHTML = '<b>x</b>'`)).toContain('TrustedHTML');
      expect(await attempt(`setTimeout('window.pwned = 1')`)).toContain('TrustedScript');
      const refusedBy = (code: string) =>
        attempt(`new Promise((done) => {
          addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective), { once: true });
          ${code}
        })`);
      expect(await refusedBy(`fetch('http://localhost:1/').catch(() => {})`)).toBe('connect-src');
      expect(await refusedBy(`new Image().src = 'http://localhost:1/x.png'`)).toBe('img-src');
      expect(
        await refusedBy(
          `document.body.append(Object.assign(document.createElement('iframe'), { src: '/' }))`,
        ),
      ).toBe('frame-src');
      await dashboard.page.context().close();
    });
  });

  describe('for everybody', () => {
    test('it is worked with the keyboard alone, and the focus goes where the page went', async () => {
      const { key } = await fleet.ok('keys.createKey', { apiId: 'keyboard', name: 'Kay' });
      const dashboard = await Dashboard.open(browser, base);
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
      await fleet.until(async () => (await focused()) === 'Sign in');
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
      await page.getByRole('heading', { name: 'Keys of keyboard' }).waitFor();
      expect(await focused()).toBe('Keys of keyboard');
      await dashboard.loaded();
      await tabTo('Disable Kay');
      await page.keyboard.press('Space');
      await page.getByText('Disabled Kay').waitFor();
      expect(await fleet.verdict(key)).toBe('DISABLED');
      await dashboard.close(key);
    });

    test('every page keeps to WCAG 2.2 AA, on a desk and on a phone, in light and dark', {
      timeout: 180_000,
    }, async () => {
      const made = [];
      for (let i = 0; i < 25; i++)
        made.push(
          await fleet.ok('keys.createKey', { apiId: 'checked', name: `Key ${i}`, externalId: 'ada' }),
        );
      for (const width of [1280, 390]) {
        const dashboard = await Dashboard.open(browser, base, { viewport: { width, height: 844 } });
        const { page } = dashboard;
        await page.evaluate(AXE);
        const check = async (view: string) => {
          await page.emulateMedia({ colorScheme: 'light' });
          expect(await page.evaluate<unknown[]>(BREACHES), `${view} at ${width} px`).toEqual([]);
          // Of all the rules only that of contrast sees another scheme.
          await page.emulateMedia({ colorScheme: 'dark' });
          expect(await page.evaluate<unknown[]>(FAINT_BREACHES), `${view} at ${width} px, dark`).toEqual([]);
        };
        await check('sign in');
        await dashboard.signIn();
        await page.getByRole('heading', { name: 'Overview' }).waitFor();
        for (const hash of [
          '#/',
          '#/apis',
          '#/apis/checked',
          `#/keys/${made[0].keyId}`,
          '#/root-keys',
          '#/fleet',
          '#/audit',
        ]) {
          await dashboard.go(hash);
          if (hash === '#/apis/checked') {
            const height = await page.evaluate<number>('document.documentElement.scrollHeight');
            if (width === 390) expect(height).toBeLessThan(3500);
            await page.getByRole('button', { name: 'Disable Key 20' }).click();
            await page.getByText('Disabled Key 20').waitFor();
            await page.getByRole('button', { name: 'Undo' }).click();
            await page.getByText('Undone: Disabled Key 20').waitFor();
            await page.getByRole('checkbox', { name: 'Select Key 3', exact: true }).check();
          }
          for (const button of await page.getByRole('button', { name: /^New / }).all()) await button.click();
          await check(hash);
        }
        await dashboard.close();
      }
    });

    test('it fits 360 pixels, in light and dark, and everything that can be used has a name', async () => {
      const { keyId } = await fleet.ok('keys.createKey', {
        apiId: 'a-rather-long-name-of-an-api-that-somebody-chose-for-a-reason',
        name: 'W'.repeat(200),
        externalId: 'x'.repeat(200),
        meta: { long: 'y'.repeat(500) },
      });
      for (const colorScheme of ['light', 'dark'] as const) {
        const dashboard = await Dashboard.open(browser, base, {
          viewport: { width: 360, height: 740 },
          colorScheme,
        });
        const { page } = dashboard;
        const check = async (view: string) => {
          expect(await page.evaluate('document.documentElement.scrollWidth'), view).toBeLessThanOrEqual(360);
          expect(await page.evaluate(NAMELESS), view).toEqual([]);
          expect(await page.evaluate(FAINT), view).toEqual([]);
        };
        await check('sign in');
        await dashboard.signIn();
        await page.getByRole('heading', { name: 'Overview' }).waitFor();
        for (const hash of [
          '#/',
          '#/apis',
          '#/apis/a-rather-long-name-of-an-api-that-somebody-chose-for-a-reason',
          `#/keys/${keyId}`,
          '#/root-keys',
          '#/fleet',
          '#/audit',
        ]) {
          await dashboard.go(hash);
          for (const button of await page.getByRole('button', { name: /^New / }).all()) await button.click();
          await check(`${colorScheme} ${hash}`);
        }
        await dashboard.close();
      }
    });
  });
});

/** The checker of accessibility, which the page's policy would not let in as a script. */
const AXE = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8');
const breaches = (options: object) => `axe
  .run(document, ${JSON.stringify(options)})
  .then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(({ html }) => html)]))`;
/** Breaches of WCAG 2.2 AA: the rule, and where. */
const BREACHES = breaches({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] });
const FAINT_BREACHES = breaches({ runOnly: { type: 'rule', values: ['color-contrast'] } });

/** Elements that are used but that a screen reader could not name. */
const NAMELESS = `[...document.querySelectorAll('a, button, input, select, textarea, table, form, dialog')]
  .filter((element) => {
    const text = element.labels?.[0]?.innerText || element.getAttribute('aria-label') || element.textContent;
    return !text?.trim() || (element.matches('input, select, textarea') && !element.labels?.length);
  })
  .map((element) => element.outerHTML.slice(0, 200))`;

/** Texts whose contrast to what is behind them is below the 4.5 : 1 of WCAG AA. */
const FAINT = `(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backOf = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((channels(color)[3] ?? 1) === 1) return color;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  return [...document.querySelectorAll('body *')]
    .filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((element) => !element.closest(':disabled, [aria-busy="true"]'))
    .filter((element) => {
      const [a, b] = [luminance(getComputedStyle(element).color), luminance(backOf(element))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
    })
    .map((element) => element.outerHTML.slice(0, 200));
})()`;
