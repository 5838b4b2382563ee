import { expect, test } from 'vitest';
import { usageField } from '../../../../shared/protocol/records/usage.ts';
import { apiUsageKey, recordKey } from '../../../../shared/redis/redis-keys.ts';
import { VERDICTS } from '../../../../shared/rules/verdict-codes.ts';
import { onStage } from './stage.ts';

onStage('the sections', (stage) => {
  test('a number of which nothing is known is none', async () => {
    const { page } = await stage.signedIn();
    const tile = page.locator('.tiles > div', { hasText: 'Refused in 5 minutes' });
    await tile.getByText('–', { exact: true }).waitFor();
    await page.close();
  });

  test('says that an API is missing, and leads back', async () => {
    const dashboard = await stage.signedIn('#/apis/never-made');
    const { page } = dashboard;
    await page.getByRole('heading', { name: 'No such API' }).waitFor();
    expect(await page.getByRole('button', { name: /New key|Delete API/ }).count()).toBe(0);
    await page.getByRole('link', { name: 'To the APIs' }).click();
    await page.getByRole('heading', { name: 'APIs' }).waitFor();
    await dashboard.close();
  });

  test('lists the APIs with their keys and traffic', async () => {
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'busy' });
    const off = await stage.fleet.ok('keys.createKey', { apiId: 'busy', enabled: false });
    expect(await stage.fleet.verdict(key)).toBe('VALID');
    expect(await stage.fleet.verdict(key)).toBe('VALID');
    expect(await stage.fleet.verdict(off.key)).toBe('DISABLED');
    await stage.fleet.until(async () => {
      const { verifications } = await stage.fleet.ok('apis.getVerifications', { apiId: 'busy' });
      const counted = (kind: string) =>
        verifications.reduce((sum: number, day: Record<string, number>) => sum + (day[kind] ?? 0), 0);
      return counted('success') === 2 && counted('disabled') === 1;
    });
    const dashboard = await stage.signedIn('#/apis');
    const { page } = dashboard;
    await page.getByText('1 refused').waitFor();
    const row = (await dashboard.rows('APIs')).find(([name]) => name === 'busy') ?? [];
    expect(row.slice(2, 4).map((text) => text.trim())).toEqual(['2', '3 1 refused']);
    await dashboard.go('#/apis/busy');
    await dashboard.openTab('Traffic');
    await page
      .getByRole('img', { name: /Verifications by the minute: \d+ bars, the highest [123]$/ })
      .waitFor();
    await page.getByRole('button', { name: '24 h' }).click();
    await page.getByRole('img', { name: /Verifications by the hour: 8 bars, the highest [123]$/ }).waitFor();
    await dashboard.close(key);
  });

  test('an API is deleted only by who types its id', async () => {
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'doomed' });
    const dashboard = await stage.signedIn('#/apis/doomed');
    const { page } = dashboard;
    await dashboard.choose('Delete API');
    const remove = page.getByRole('button', { name: 'Delete API and keys' });
    await page.getByLabel('Type doomed to confirm').fill('doome');
    expect(await remove.isDisabled()).toBe(true);
    await page.getByLabel('Type doomed to confirm').fill('doomed');
    await remove.click();
    await page.getByRole('heading', { name: 'APIs' }).waitFor();
    expect(await stage.fleet.verdict(key)).toBe('NOT_FOUND');
    await dashboard.close(key);
  });

  test('the overview shows traffic, trouble, changes', async () => {
    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'watched', name: 'Olga' });
    await stage.fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    await page.getByText('Verifiers in sync').waitFor();
    // The last hour is there at once, by the minute, as is the rate.
    await page.getByRole('img', { name: /Verifications by the minute: \d+ bars/ }).waitFor();
    expect(await page.locator('.tiles').innerText()).not.toContain('…');
    await page
      .getByRole('row', { name: 'watched' })
      .getByRole('button', { name: /\d+ disabled/ })
      .click();
    const behind = page.getByRole('region', { name: 'Refused: disabled, last hour' });
    await behind.getByRole('link', { name: 'Olga' }).click();
    await page.getByRole('heading', { name: 'Olga' }).waitFor();
    await dashboard.go('#/');
    // What is done here is told here, without a wait.
    await dashboard.loaded();
    const [latest = []] = await dashboard.rows('Events');
    expect(latest.slice(0, 2)).toEqual(['bootstrap disabled key Olga in watched', 'OK']);
    await dashboard.close(key);
  });

  test('a colour of the chart opens the keys behind it', async () => {
    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'behind', name: 'Poor' });
    const { requestId } = (await stage.fleet.verify(key, { authorization: { permissions: 'x' } })).body;
    await stage.fleet.until(async () => {
      const listed = await stage.fleet.ok('apis.listRefusedKeys', { apiId: 'behind' });
      const { verifications } = await stage.fleet.ok('apis.getVerifications', { apiId: 'behind' });
      return listed.keys.length === 1 && verifications.at(-1).insufficientPermissions === 1;
    });
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const chart = page.getByRole('figure').first();
    const behind = page.getByRole('region', { name: /^Refused: lacks a permission, / });
    const refused = async () => (await behind.locator('td').allInnerTexts()).slice(0, 4);
    const expected = ['Poor', 'lacks x', 'behind', '1'];
    // The legend, with the keyboard.
    await chart.getByRole('button', { name: 'lacks a permission' }).first().focus();
    await page.keyboard.press('Enter');
    await expect.poll(refused).toEqual(expected);
    expect(await behind.evaluate('document.activeElement.getAttribute("aria-label")')).toMatch(/last hour$/);
    await behind.getByRole('button', { name: 'Close' }).click();
    await behind.waitFor({ state: 'detached' });
    // A bar, and the same as a number.
    await chart.locator('rect.other.opens').click();
    await expect.poll(refused).toEqual(expected);
    expect(await behind.getByRole('heading').innerText()).toMatch(/\d\d:\d\d/);
    await behind.getByRole('button', { name: 'Close' }).click();
    await chart.getByText('As numbers').click();
    await chart.getByRole('button', { name: '1 lacks a permission' }).click();
    await expect.poll(refused).toEqual(expected);
    expect(await chart.getByRole('button', { name: 'allowed' }).count()).toBe(0);
    await behind.getByRole('link', { name: 'Poor' }).click();
    await page.getByRole('region', { name: 'Refusal' }).getByText(requestId).waitFor();
    expect(page.url()).toContain(keyId);
    await dashboard.close(key);
  });

  test('many refusals want attention', async () => {
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'refusing', name: 'Needy' });
    await stage.fleet.verify(key, { authorization: { permissions: 'x' } });
    await stage.fleet.until(
      async () => (await stage.fleet.ok('apis.listRefusedKeys', { apiId: 'refusing' })).keys.length === 1,
    );
    // The overview leaves out the minute that has just begun.
    const minute = Math.floor(Date.now() / 60_000) - 1;
    const { letter } = VERDICTS.INSUFFICIENT_PERMISSIONS.usage;
    const refusals = usageField('minute', minute, letter);
    await stage.fleet.client.hset(apiUsageKey('refusing'), refusals, 10_000);
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const inbox = page.getByRole('region', { name: 'Attention' });
    const item = inbox
      .getByRole('listitem')
      .filter({ hasText: 'requests were refused in the last 5 minutes' });
    await item.getByText(/ % of 10,\d+ requests .* most of them: lacks a permission/).waitFor();
    expect(await inbox.getByText('All quiet').count()).toBe(0);
    await item.getByRole('button', { name: 'Show customers' }).click();
    await page
      .getByRole('region', { name: /^Refused: lacks a permission/ })
      .getByText('Needy')
      .waitFor();
    await dashboard.close(key);
    await stage.fleet.client.hdel(apiUsageKey('refusing'), refusals);
  });

  test('makes a root key whose session ends with it', async () => {
    const dashboard = await stage.signedIn('#/root-keys');
    const { page } = dashboard;
    await page.getByRole('button', { name: 'New root key' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('Reader');
    await page.getByRole('radio', { name: 'do what is ticked here' }).check();
    await page.getByLabel('For the API').fill('shop');
    await page.getByLabel('read key', { exact: true }).check();
    await page.getByLabel('read api').check();
    await page.getByRole('button', { name: 'Create root key' }).click();
    const secret = await page.getByLabel('Secret').inputValue();
    await page.getByRole('button', { name: 'I have stored it' }).click();
    await page.getByText('api.shop read key, read api').waitFor();

    const reader = await stage.signedIn('#/fleet', secret);
    await reader.page.getByText(/Not permitted.*root\.\*\.read_fleet/).waitFor();
    await page.getByRole('button', { name: 'Disable Reader' }).click();
    const sure = page.getByRole('dialog', { name: 'Disable this root key?' });
    await sure.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Disable Reader' }).click();
    await sure.getByRole('button', { name: 'Disable' }).click();
    await page.getByRole('cell', { name: 'disabled', exact: true }).waitFor();
    await reader.go('#/apis/shop');
    await reader.page.getByText('The session is over, or its root key is no longer accepted.').waitFor();
    await reader.close(secret);
    await page.getByRole('button', { name: 'Delete Reader' }).click();
    const gone = page.getByRole('dialog', { name: 'Delete this root key?' });
    await gone.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('No root keys besides those of the configuration.').waitFor();
    await dashboard.close(secret);
  });

  test('what was done and what was refused is listed', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'audited', name: 'Eve' });
    await stage.fleet.ok('keys.updateKey', { keyId, enabled: false });
    await stage.fleet.admin('keys.updateKey', { keyId, enabled: 'no' });
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await dashboard.openTab('History');
    await page.getByRole('link', { name: 'Audit log of this key' }).click();
    await page.getByRole('heading', { name: 'Audit' }).waitFor();
    await dashboard.loaded();
    const operations = async () => (await dashboard.rows('Events')).map((cells) => cells.slice(0, 2));
    await expect.poll(operations).toEqual([
      ['bootstrap disabled key Eve in audited', 'OK'],
      ['bootstrap created key Eve in audited', 'OK'],
    ]);
    await page.getByLabel('Show').selectOption('refused changes');
    await dashboard.loaded();
    await expect.poll(operations).toEqual([['bootstrap was refused keys.updateKey Eve', 'BAD_REQUEST']]);
    const search = page.getByRole('form', { name: 'Search' });
    const caller = (await stage.fleet.ok('audit.listEvents', { keyId })).events[0].by.rootKeyId;
    // A root key of the configuration is in no list, but in the events.
    await search.getByRole('combobox', { name: 'By', exact: true }).selectOption(caller);
    await dashboard.loaded();
    await expect.poll(operations).toEqual([['bootstrap was refused keys.updateKey Eve', 'BAD_REQUEST']]);
    await search.getByLabel('Time').selectOption('last hour');
    await dashboard.loaded();
    await expect.poll(operations).toEqual([['bootstrap was refused keys.updateKey Eve', 'BAD_REQUEST']]);
    await search.getByLabel('Time').selectOption('yesterday');
    await page.getByText('No events.').waitFor();
    await search.getByLabel('Time').selectOption('custom…');
    const between = async (from: string, to: string) => {
      await search.getByLabel('From', { exact: true }).fill(from);
      await search.getByLabel('To not included').fill(to);
      await search.getByRole('button', { name: 'Search' }).click();
    };
    await between('2999-12-31T10:00', '');
    await page.getByText('No events.').waitFor();
    await between('2020-01-01T00:00', '2999-12-31T10:00');
    await page.getByRole('cell', { name: 'BAD_REQUEST' }).waitFor();
    await between('', '2020-01-01T00:00');
    await page.getByText('No events.').waitFor();
    await dashboard.close();
  });

  test('the overview asks for what is wrong', async () => {
    const { fleet } = stage;
    const leaked = await fleet.ok('keys.createKey', { apiId: 'inbox', name: 'Spilt' });
    const ending = await fleet.ok('keys.createKey', {
      ...{ apiId: 'inbox', name: 'Ending', expires: Date.now() + 2 * 86_400_000 },
    });
    await fleet.ok('keys.createKey', { apiId: 'inbox', name: 'Idle', expires: Date.now() + 86_400_000 });
    expect(await fleet.verdict(ending.key)).toBe('VALID');
    for (const name of ['Next', 'Later', 'Last']) {
      const { key } = await fleet.ok('keys.createKey', {
        ...{ apiId: 'folded', name, expires: Date.now() + 3 * 86_400_000 },
      });
      expect(await fleet.verdict(key)).toBe('VALID');
    }
    const leak = JSON.stringify({ at: Date.now(), url: 'https://example.com/x' });
    await fleet.client.hset(recordKey('inbox', leaked.keyId), 'K', leak);
    const { endpointId } = await fleet.ok('webhooks.createEndpoint', {
      ...{ url: 'http://127.0.0.1:1/hook', name: 'Dead end' },
    });
    for (let i = 0; i < 6; i++) await fleet.ok('keys.createKey', { apiId: 'inbox' });
    await fleet.until(
      async () => (await fleet.ok('webhooks.getEndpoint', { endpointId })).state === 'failing',
    );
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const inbox = page.getByRole('region', { name: 'Attention' });
    await inbox.getByText(/Dead end: \d+ attempts in a row failed/).waitFor();
    await inbox.getByText('Ending is in use and ends in 2 days').waitFor();
    expect(await inbox.getByText('Idle').count()).toBe(0);
    await inbox
      .getByText('Next is in use and ends in 3 days, and 2 other keys of folded within a week')
      .waitFor();
    const kinds = await inbox.getByRole('listitem').locator('.badge').allInnerTexts();
    const worstFirst = ['Leaked', 'Verifier', 'Refused', 'Webhook', 'Finding', 'Expiring'];
    expect(kinds).toEqual(worstFirst.flatMap((kind) => kinds.filter((each) => each === kind)));
    expect(kinds).toEqual(expect.arrayContaining(['Leaked', 'Webhook', 'Expiring']));
    const item = inbox.getByRole('listitem').filter({ hasText: 'Spilt was found in public' });
    await item.getByRole('button', { name: 'Disable' }).click();
    await item.waitFor({ state: 'detached' });
    expect(await fleet.verdict(leaked.key)).toBe('DISABLED');
    await inbox.getByRole('listitem').filter({ hasText: 'Ending' }).getByRole('link').click();
    await page.getByRole('heading', { name: 'Ending' }).waitFor();
    await dashboard.close();
    await fleet.ok('webhooks.deleteEndpoint', { endpointId });
  });

  test('the own session is marked, and asks', async () => {
    const dashboard = await stage.signedIn('#/root-keys');
    const { page } = dashboard;
    await page.getByRole('table', { name: 'Sessions' }).waitFor();
    const others = (await dashboard.rows('Sessions')).length - 1;
    const other = await stage.signedIn();
    await page.reload();
    await dashboard.loaded();
    const mine = page.getByRole('row', { name: /this browser/ });
    expect(await mine.count()).toBe(1);
    const end = { name: 'End the session of bootstrap from 127.0.0.1' };
    // Another ends at once.
    await page
      .getByRole('row')
      .filter({ hasNotText: 'this browser' })
      .last()
      .getByRole('button', end)
      .click();
    await expect.poll(async () => (await dashboard.rows('Sessions')).length).toBe(others + 1);
    await other.go('#/fleet');
    await other.page.getByText('The session is over').waitFor();
    await other.close();
    await mine.getByRole('button', end).click();
    const question = page.getByRole('dialog', { name: 'End the session of this browser?' });
    await question.getByRole('button', { name: 'Cancel' }).click();
    await mine.getByRole('button', end).click();
    await question.getByRole('button', { name: 'End it' }).click();
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    expect(await page.context().cookies()).toEqual([]);
    await dashboard.close();
  });

  test('names stand first, ids on hover', async () => {
    await stage.fleet.ok('apis.createApi', { apiId: 'api7', name: 'Seventh heaven' });
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'api7', name: 'Harp' });
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const event = page.getByRole('row', { name: 'created key Harp in Seventh heaven' });
    expect(await event.getByText('Seventh heaven').getAttribute('title')).toBe('api7');
    await event.getByRole('link', { name: 'Harp' }).click();
    const way = page.getByRole('navigation', { name: 'Breadcrumb' });
    expect(await way.getByText('Seventh heaven').getAttribute('title')).toBe('api7');
    // A name that changes here is that of all pages.
    await dashboard.go('#/apis/api7?tab=settings');
    await page.getByRole('textbox', { name: 'Name' }).fill('Cloud nine');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('status').getByText('Saved').waitFor();
    await dashboard.go(`#/keys/${keyId}`);
    await way.getByText('Cloud nine').waitFor();
    await dashboard.close();
  });

  test('the theme is chosen, and remembered', async () => {
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const back = () => page.evaluate('getComputedStyle(document.documentElement).backgroundColor');
    const [light, dark] = ['rgb(255, 255, 255)', 'rgb(13, 15, 18)'];
    expect(await back()).toBe(light);
    await page.getByLabel('Theme').selectOption('dark');
    expect(await back()).toBe(dark);
    await page.reload();
    await dashboard.loaded();
    expect(await back()).toBe(dark);
    await page.emulateMedia({ media: 'print' });
    expect(await back()).toBe(light);
    await page.emulateMedia({ media: 'screen', colorScheme: 'dark' });
    await page.getByLabel('Theme').selectOption('light');
    expect(await back()).toBe(light);
    await page.getByLabel('Theme').selectOption('as the system');
    expect(await back()).toBe(dark);
    await dashboard.close();
  });

  test('a long name need not be typed to delete', async () => {
    const name = 'night-shift of the warehouse in Rotterdam with limited access';
    const { roleId } = await stage.fleet.ok('permissions.createRole', { name });
    const dashboard = await stage.signedIn('#/roles');
    const { page } = dashboard;
    const wide = await page.getByRole('columnheader', { name }).boundingBox();
    expect(wide?.width).toBeLessThan(220);
    await page.getByRole('button', { name: `Delete ${name}` }).click();
    await page.getByLabel('Type delete to confirm').fill('delete');
    await page.getByRole('button', { name: 'Delete role' }).click();
    await page.getByRole('columnheader', { name }).waitFor({ state: 'detached' });
    expect((await stage.fleet.ok('permissions.listRoles')).map(({ id }: { id: string }) => id)).not.toContain(
      roleId,
    );
    await dashboard.close();
  });

  test('an identity is made with its meta', async () => {
    const dashboard = await stage.signedIn('#/identities?new');
    const { page } = dashboard;
    const form = page.getByRole('form', { name: 'New customer' });
    await form.getByLabel('External id').fill('ada ltd');
    await form.getByLabel('Meta').fill('{"plan": pro}');
    await page.getByRole('button', { name: 'Create customer' }).click();
    await page.getByRole('alert').getByText('JSON').waitFor();
    await form.getByLabel('Meta').fill('{"plan": "pro"}');
    await page.getByRole('button', { name: 'Create customer' }).click();
    await page.getByRole('heading', { name: 'ada ltd' }).waitFor();
    const { identities } = await stage.fleet.ok('identities.listIdentities', { search: 'ada ltd' });
    expect(identities).toMatchObject([{ externalId: 'ada ltd', meta: { plan: 'pro' } }]);
    await dashboard.close();
  });

  test('a silent fleet is shown as it was last', async () => {
    const { fleet } = stage;
    const dashboard = await stage.signedIn('#/fleet');
    const { page } = dashboard;
    const verifier = await dashboard.rows('Verifiers');
    expect(verifier).toHaveLength(1);
    await fleet.verifiers.splice(0, 1)[0]?.stop();
    try {
      const silence = /^No report for \d+ s \(last: 1 verifier\)\./;
      await page.getByRole('status').getByText(silence).waitFor();
      expect((await dashboard.rows('Verifiers'))[0]?.[0]).toBe(verifier[0]?.[0]);
      expect(await page.locator('.silent').getByRole('table', { name: 'Verifiers' }).count()).toBe(1);
      await dashboard.go('#/');
      await page.getByRole('region', { name: 'Attention' }).getByText(silence).waitFor();
      await page.locator('.silent').getByText('? of 1').waitFor();
    } finally {
      await fleet.addVerifier();
    }
    await page.locator('.silent').waitFor({ state: 'detached' });
    await page.getByText('1 of 1').waitFor();
    await dashboard.close();
  });
});
