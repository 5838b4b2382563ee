import { expect, test } from 'vitest';
import { ROOT_KEY } from '../../../harness/fleet.ts';
import { Dashboard } from './chromium.ts';
import { onStage } from './stage.ts';

onStage('signing in', (stage) => {
  test('tells why a root key does not work', async () => {
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'plain' });
    const dashboard = await Dashboard.open(stage.browser, stage.base);
    const { page } = dashboard;
    for (const wrong of ['nobody-knows-this-root-key-00000000', key, 'schlüssel', 'two words']) {
      await dashboard.signIn(wrong);
      await page.getByRole('alert').getByText('Root key not accepted').waitFor();
      await page.getByLabel('Root key').fill('');
    }
    expect(await page.getByRole('navigation').count()).toBe(0);
    await dashboard.close(key, 'nobody-knows-this-root-key-00000000');
  });

  test('lasts over reloads and keeps no root key', async () => {
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const keepsNothing = async () => {
      const stores = 'JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie])';
      expect(await page.evaluate(stores)).toBe('[{},{},""]');
      expect(await page.content()).not.toContain(ROOT_KEY);
    };
    await keepsNothing();
    await page.reload();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.getByRole('heading', { name: 'Overview' }).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Root key').waitFor();
    // The page may notice it by itself before, and then lies under the dialog.
    await other.evaluate("location.hash = '#/fleet'");
    await other.getByText('The session is over').waitFor();
    await keepsNothing();
    // A session of another tab is this tab's, too.
    await other.getByLabel('Root key').fill(ROOT_KEY);
    await other.getByRole('button', { name: 'Sign in' }).click();
    await other.getByRole('table', { name: 'Verifiers' }).waitFor();
    await page.reload();
    // A page that asks for nothing by itself does not notice that there was no session for a moment.
    await page.getByRole('link', { name: 'APIs' }).click();
    await page.getByRole('heading', { name: 'APIs' }).waitFor();
    await dashboard.loaded();
    await other.getByRole('button', { name: 'Sign out' }).click();
    await other.getByLabel('Root key').fill(ROOT_KEY);
    await other.getByRole('button', { name: 'Sign in' }).click();
    await other.getByRole('table', { name: 'Verifiers' }).waitFor();
    // If it noticed after all, it goes on with the new session once somebody looks at it.
    await page.evaluate("dispatchEvent(new Event('focus'))");
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.getByRole('table', { name: 'Verifiers' }).waitFor();
    expect(await page.getByLabel('Root key').count()).toBe(0);
    await dashboard.close();
  });

  test('tells a lost connection, and comes back', async () => {
    const dashboard = await Dashboard.open(stage.browser, stage.base);
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
    await page.getByText('Trying again…').first().waitFor();
    await page.context().setOffline(false);
    await page.getByRole('table', { name: 'Verifiers' }).waitFor();
    await page.getByText('Connection to the control plane lost').waitFor({ state: 'detached' });
    await dashboard.close();
  });
});
