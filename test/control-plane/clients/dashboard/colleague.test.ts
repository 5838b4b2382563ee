import { expect, test } from 'vitest';
import { Dashboard } from './chromium.ts';
import { onStage } from './stage.ts';

/** Words of buttons that change something. */
const CHANGES =
  /^(New|Create|Disable|Enable|Delete|Rotate|Save|Stop|Send|Replace|Select|Add|Set|Change|Resume)\b/;

onStage('a colleague', (stage) => {
  /** Opens the dashboard with a root key, and notes what the server refuses it. */
  async function signedInWith(rootKey: string) {
    const dashboard = await Dashboard.open(stage.browser, stage.base);
    const refused: string[] = [];
    dashboard.page.on('response', (response) => {
      if (response.status() === 403) refused.push(response.url());
    });
    await dashboard.signIn(rootKey);
    await dashboard.page.getByRole('heading', { name: 'Overview' }).waitFor();
    return { dashboard, refused };
  }

  /** Visits pages, and returns the buttons that would change something. */
  async function changingButtonsOn(dashboard: Dashboard, hashes: readonly string[]): Promise<string[]> {
    const buttons: string[] = [];
    for (const hash of hashes) {
      await dashboard.go(hash);
      // Those in menus too.
      const names = await dashboard.page.locator('main button').allTextContents();
      buttons.push(...names.filter((name) => CHANGES.test(name.trim())).map((name) => `${hash} ${name}`));
    }
    return buttons;
  }

  test('gets a key to read everything in three clicks', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', {
      apiId: 'shared',
      externalId: 'ada',
      remaining: 5,
    });
    await stage.fleet.ok('identities.createIdentity', { externalId: 'ada' });
    await stage.fleet.ok('permissions.createRole', { name: 'editor', permissions: ['files.read'] });
    const { endpointId } = await stage.fleet.ok('webhooks.createEndpoint', { url: 'http://127.0.0.1:1/' });
    const admin = await stage.signedIn('#/root-keys');
    let clicks = 0;
    const click = async (role: 'button' | 'radio', name: string) => {
      clicks++;
      await admin.page.getByRole(role, { name, exact: true }).click();
    };
    await click('button', 'New root key');
    await click('radio', 'read everything, and explain keys');
    await admin.page.getByRole('textbox', { name: 'Name' }).fill('Support');
    await click('button', 'Create root key');
    const rootKey = await admin.page.getByLabel('Secret', { exact: true }).inputValue();
    expect(clicks).toBe(3);
    await admin.page.getByRole('button', { name: 'I have stored it' }).click();
    await admin.close(rootKey);

    const { dashboard, refused } = await signedInWith(rootKey);
    const sections = await dashboard.page
      .getByRole('navigation', { name: 'Sections' })
      .getByRole('link')
      .allInnerTexts();
    expect(sections).toEqual([
      ...[
        'Overview',
        'APIs',
        'Customers',
        'Plans & roles',
        'Webhooks',
        'Fleet',
        'Audit',
        'Root keys',
        'Reference',
      ],
    ]);
    const buttons = await changingButtonsOn(dashboard, [
      ...[
        '#/',
        '#/apis',
        '#/apis/shared',
        `#/keys/${keyId}`,
        `#/keys/${keyId}?tab=verifiers`,
        '#/identities',
        '#/identities/ada',
      ],
      ...['#/identities/nobody', '#/roles', '#/root-keys', '#/webhooks', `#/webhooks/${endpointId}`],
      ...['#/fleet', '#/audit'],
    ]);
    expect(buttons).toEqual([]);
    expect(refused).toEqual([]);
    await dashboard.page.reload();
    await dashboard.page.getByRole('heading', { name: 'Audit' }).waitFor();
    expect(await changingButtonsOn(dashboard, ['#/apis/shared'])).toEqual([]);
    await dashboard.close(rootKey);
    await stage.fleet.ok('webhooks.deleteEndpoint', { endpointId });
  });

  test('sees buttons only for the API it may change', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'mine', name: 'Own' });
    const { keyId: otherId } = await stage.fleet.ok('keys.createKey', { apiId: 'theirs', name: 'Other' });
    const permissions = [
      ...['read_key', 'read_api', 'update_key', 'read_analytics'].map((action) => `api.mine.${action}`),
      ...['read_key', 'read_api', 'read_analytics'].map((action) => `api.theirs.${action}`),
    ];
    const { key: rootKey } = await stage.fleet.ok('rootKeys.createRootKey', { name: 'Mine', permissions });
    const { dashboard, refused } = await signedInWith(rootKey);
    const nav = dashboard.page.getByRole('navigation', { name: 'Sections' });
    expect(await nav.getByRole('link').allInnerTexts()).toEqual(['Overview', 'APIs', 'Reference']);
    await dashboard.page.getByText('may see neither the fleet nor the audit log').waitFor();
    const other = await changingButtonsOn(dashboard, ['#/apis/theirs', `#/keys/${otherId}`]);
    expect(other).toEqual([]);
    const own = await changingButtonsOn(dashboard, ['#/apis/mine', `#/keys/${keyId}?tab=access`]);
    expect(own).toEqual(expect.arrayContaining(['#/apis/mine Disable', `#/keys/${keyId}?tab=access Save`]));
    expect(own.join()).not.toMatch(/New key|Delete|Rotate/);
    expect(refused).toEqual([]);
    await dashboard.close(rootKey);
  });
});
