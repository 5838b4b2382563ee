import { expect, test } from 'vitest';
import { onStage } from './stage.ts';

onStage('the identities', (stage) => {
  test('makes, stops, restores and deletes a customer', async () => {
    const externalId = 'Ada & sons/1';
    const make = (apiId: string) =>
      stage.fleet.ok('keys.createKey', { apiId, externalId, name: `of ${apiId}` });
    const [shop, books] = [await make('shop'), await make('books')];
    const verdicts = () => Promise.all([shop, books].map(({ key }) => stage.fleet.verdict(key)));
    expect(await verdicts()).toEqual(['VALID', 'VALID']);
    const dashboard = await stage.signedIn('#/identities');
    const { page } = dashboard;
    await page.getByText('No customers yet.').waitFor();
    // An empty list leads to the form that fills it, as often as one wants.
    await page.getByRole('link', { name: 'Create the first customer' }).click();
    await page.getByRole('dialog', { name: 'New customer' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'Create the first customer' }).click();
    await page.getByLabel('External id such as').fill(externalId);
    await page.getByRole('button', { name: 'Create customer' }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await dashboard.openTab('Keys');
    await page.getByRole('link', { name: 'of books' }).waitFor();

    const stop = async () => {
      await page.getByRole('button', { name: `Stop customer ${externalId}` }).click();
      const asks = page.getByRole('dialog', { name: `Stop ${externalId}?` });
      await asks.getByText(/This stops 2 keys, less than one request a second, in all APIs\./).waitFor();
      await asks.getByRole('button', { name: 'Stop customer' }).click();
    };
    const used = async () => (await stage.fleet.ok('usage.query', { externalId })).rows[0].count === 2;
    await stage.fleet.until(used, 'the verdicts are not reported');
    await stop();
    const panel = page.getByLabel('How far the change has come');
    await panel.getByText(/Stopped Ada.*Complete/).waitFor();
    expect(await verdicts()).toEqual(['DISABLED', 'DISABLED']);
    await page.getByText('disabled', { exact: true }).waitFor();
    await dashboard.choose('Delete customer');
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page.getByText(/Conflict.*the identity is disabled/).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await panel.getByRole('button', { name: 'Undo' }).click();
    await panel.getByText(/Undone: Stopped Ada.*Complete/).waitFor();
    expect(await verdicts()).toEqual(['VALID', 'VALID']);

    // What is saved must be based on the undone change.
    await dashboard.loaded();
    await dashboard.openTab('Plan & limits');
    const add = async (list: string, name: string, fields: Readonly<Record<string, string>>) => {
      await page.getByRole('group', { name: list }).getByRole('button', { name: 'Add limit' }).click();
      await page.getByRole('group', { name: 'Limit', exact: true }).getByLabel('Name').fill(name);
      const row = page.getByRole('group', { name: `Limit ${name}` });
      for (const [label, value] of Object.entries(fields)) await row.getByLabel(label).fill(value);
    };
    await add('Rate limits', 'tokens', { Number: '5000', Length: '60' });
    await add('Rate limits', 'calls', { Number: '1', Length: '60' });
    const calls = page.getByRole('group', { name: 'Limit calls' });
    await calls.getByLabel('exact').check();
    await calls.getByLabel('each request').uncheck();
    await add('Limits at the same time', 'jobs', { Number: '3' });
    await page.getByRole('button', { name: 'Save limits' }).click();
    await panel.getByText(/Changed the limits of Ada.*Complete/).waitFor();
    await dashboard.openTab('Settings');
    await page.getByLabel('Meta').fill('{"plan": "pro"}');
    await page.getByRole('button', { name: 'Save' }).click();
    await stage.fleet.until(
      async () => (await stage.fleet.verify(shop.key)).body.identity.meta.plan === 'pro',
    );
    expect((await stage.fleet.ok('identities.getIdentity', { externalId })).concurrency).toEqual([
      { name: 'jobs', limit: 3 },
    ]);
    const asked = { ratelimits: [{ name: 'calls' }] };
    const codes = await Promise.all(
      [shop, books].map(async ({ key }) => (await stage.fleet.verify(key, asked)).body.code),
    );
    expect(codes.sort()).toEqual(['RATE_LIMITED', 'VALID']);
    await page.getByLabel('APIs in which').fill('shop');
    await page.getByRole('button', { name: 'Save' }).click();
    await stage.fleet.until(
      async () => (await stage.fleet.verify(books.key)).body.identity === undefined,
      'it still holds in books',
    );
    await page.getByLabel('APIs in which').fill('');
    await page.getByRole('button', { name: 'Save' }).click();
    await stage.fleet.until(async () => (await stage.fleet.verify(books.key)).body.identity !== undefined);
    await dashboard.openTab('Plan & limits');
    const credits = page.getByRole('form', { name: 'Set the credits' });
    await credits.getByLabel('Credits empty').fill('9');
    await credits.getByRole('button', { name: 'Set' }).click();
    await page.getByRole('img', { name: 'Credits: 9 free, 0 at verifiers' }).waitFor();
    await page.getByRole('button', { name: 'Add credits' }).click();
    const adds = page.getByRole('dialog', { name: /^Add credits to Ada/ });
    await adds.getByLabel('Credits to add').fill('10000');
    await adds.getByRole('button', { name: 'Add', exact: true }).click();
    await panel.getByText(/Added 10,000 credits to Ada.*Complete/).waitFor();
    await page.getByRole('img', { name: 'Credits: 10,009 free, 0 at verifiers' }).waitFor();
    // What was done to it is told in sentences.
    await dashboard.openTab('History');
    await page
      .getByText(/changed the credits of customer\s+Ada/)
      .first()
      .waitFor();
    await page.getByText(/disabled customer\s+Ada/).waitFor();
    await dashboard.go(`#/keys/${shop.keyId}`);
    await page.getByText('All keys of the customer without credits of their own share these.').waitFor();
    await dashboard.go('#/identities');
    expect((await dashboard.rows('Customers'))[0]?.[0]).toBe(externalId);
    await page.getByLabel(`Actions on ${externalId}`).click();
    await stop();
    await panel.getByText(/Stopped Ada.*Complete/).waitFor();
    await page.getByLabel(`Actions on ${externalId}`).click();
    await page.getByRole('button', { name: `Enable customer ${externalId}` }).click();
    await panel.getByText(/Enabled Ada.*Complete/).waitFor();

    await dashboard.go(`#/keys/${shop.keyId}`);
    await page.getByRole('link', { name: externalId }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await dashboard.choose('Delete customer');
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page.getByText('No customers yet.').waitFor();
    expect(await verdicts()).toEqual(['VALID', 'VALID']);
    await page.getByLabel('Part of the external id').fill(externalId);
    await page.getByRole('link', { name: externalId }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await page.getByRole('link', { name: 'of shop' }).waitFor();
    await dashboard.close(shop.key);
  });

  test('counts a customer of more than 100 keys', async () => {
    const make = (i: number) =>
      stage.fleet.ok('keys.createKey', { apiId: 'crowd', externalId: 'crowd', name: `of crowd ${i}` });
    const made: { key: string }[] = [];
    for (let i = 0; i < 300; i += 50)
      made.push(...(await Promise.all(Array.from({ length: 50 }, (_, j) => make(i + j)))));
    await stage.fleet.ok('identities.createIdentity', { externalId: 'crowd' });
    for (const { key } of [made[0], made[299]].flatMap((each) => each ?? []))
      expect(await stage.fleet.verdict(key)).toBe('VALID');
    const counted = async () =>
      (await stage.fleet.ok('usage.query', { externalId: 'crowd' })).rows[0].count === 2;
    await stage.fleet.until(counted, 'the verdicts are not reported');
    const dashboard = await stage.signedIn('#/identities/crowd');
    const { page } = dashboard;
    await page.getByRole('figure', { name: 'Verifications by the hour' }).waitFor();
    await page.getByText('2 allowed').waitFor({ state: 'attached' });
    expect(await page.locator('.problem').count()).toBe(0);
    await dashboard.close();
  });

  test('gives a customer a plan, which its keys show', async () => {
    await stage.fleet.ok('permissions.createRole', {
      ...{ name: 'plan pro', permissions: ['files.read'] },
      ratelimits: [
        { name: 'requests', limit: 1000, interval: 'month', per: 'identity' },
        { name: 'calls', limit: 60, duration: 60_000 },
        { name: 'tokens', limit: 9, duration: 60_000, per: 'identity' },
      ],
    });
    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'plans', externalId: 'globex' });
    await stage.fleet.ok('identities.createIdentity', {
      ...{ externalId: 'globex', ratelimits: [{ name: 'tokens', limit: 3, duration: 60_000 }] },
    });
    const permitted = async () =>
      (await stage.fleet.verify(key, { authorization: { permissions: 'files.read' } })).body.code;
    expect(await permitted()).toBe('INSUFFICIENT_PERMISSIONS');
    const dashboard = await stage.signedIn('#/identities/globex');
    const { page } = dashboard;
    await page.getByRole('listitem').getByText('tokens 3 a minute').waitFor();
    // The limits with what is used of them stand on top.
    const meters = page.getByLabel('Limits that apply now');
    await meters.getByText('tokens a minute').waitFor();
    await meters.getByText('of 3', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Change plan' }).click();
    const dialog = page.getByRole('dialog', { name: 'Change the plan of globex' });
    await dialog.getByText('Holds for 1 key once the change is complete.').waitFor();
    await dialog.getByRole('radio', { name: 'plan pro' }).check();
    expect(await dashboard.rows('What changes')).toEqual([
      ['tokens a minute', '3', '3', '0'],
      ['calls a minute, each key', 'none', '60', '–'],
      ['requests each calendar month', 'none', '1,000', '–'],
    ]);
    await dialog.getByRole('button', { name: 'Move to plan pro' }).click();
    const panel = page.getByLabel('How far the change has come');
    await panel.getByText(/Moved globex to plan pro.*Complete/).waitFor();
    expect(await permitted()).toBe('VALID');
    await meters.getByText('requests this month').waitFor();
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByText('Roles through its customer').waitFor();
    await page.getByRole('link', { name: 'plan pro' }).click();
    expect(await page.getByLabel('Find').inputValue()).toBe('plan pro');

    await dashboard.go('#/identities/globex?tab=limits');
    const form = page.getByRole('form', { name: 'Change the roles' });
    await form.getByRole('button', { name: 'Remove plan pro' }).click();
    await form.getByRole('button', { name: 'Set roles' }).click();
    await panel.getByText(/Changed the roles of globex.*Complete/).waitFor();
    expect(await permitted()).toBe('INSUFFICIENT_PERMISSIONS');
    await panel.getByRole('button', { name: 'Undo' }).click();
    await panel.getByText(/Undone: Changed the roles of globex.*Complete/).waitFor();
    await form.getByRole('button', { name: 'Remove plan pro' }).waitFor();
    expect(await permitted()).toBe('VALID');
    await dashboard.close(key);
  });

  test('lists who uses how much, and who is refused', async () => {
    const make = async (externalId: string, limit: number, credits: number) => {
      await stage.fleet.ok('identities.createIdentity', {
        ...{ externalId, credits: { remaining: credits } },
        ratelimits: [{ name: 'calls', limit, interval: 'month', autoApply: true, async: false }],
      });
      return stage.fleet.ok('keys.createKey', { apiId: 'listed', externalId });
    };
    const [low, high] = [await make('list low', 100, 5), await make('list high', 1, 500)];
    await stage.fleet.verdict(low.key);
    expect([await stage.fleet.verdict(high.key), await stage.fleet.verdict(high.key)]).toEqual([
      'VALID',
      'RATE_LIMITED',
    ]);
    const refused = async () =>
      (await stage.fleet.ok('apis.listRefusedKeys', { apiId: 'listed' })).keys.length === 1;
    await stage.fleet.until(refused, 'the refusal is not reported');
    const dashboard = await stage.signedIn('#/identities?search=list');
    const { page } = dashboard;
    const first = async () => (await dashboard.rows('Customers'))[0]?.map((cell) => cell.split('\n')[0]);
    expect((await first())?.[0]).toBe('list low');
    await page.getByRole('button', { name: 'Refused, 24 h' }).click();
    await expect
      .poll(first)
      .toEqual(['list high', 'enabled', 'none', '1', '1 of 1', '1', '499', expect.anything()]);
    await page.getByRole('button', { name: 'Credits' }).click();
    expect((await first())?.[0]).toBe('list high');
    // Behind the refusals of the overview stand customers.
    await dashboard.go('#/');
    await page
      .getByRole('button', { name: /rate limited/ })
      .first()
      .click();
    const behind = page.getByRole('region', { name: /^Refused: rate limited/ });
    await behind.getByRole('link', { name: 'list high' }).waitFor();
    await dashboard.close(low.key, high.key);
  });

  test('shows the use of all keys of a customer', async () => {
    const externalId = "O'Hara";
    await stage.fleet.ok('identities.createIdentity', { externalId });
    const made = [];
    for (const apiId of ['used', 'used-too', 'used'])
      made.push(await stage.fleet.ok('keys.createKey', { apiId, externalId }));
    const other = await stage.fleet.ok('keys.createKey', { apiId: 'used', externalId: 'another' });
    for (const { key } of [...made, other]) expect(await stage.fleet.verdict(key)).toBe('VALID');
    const dashboard = await stage.signedIn(`#/identities/${encodeURIComponent(externalId)}`);
    const { page } = dashboard;
    await stage.fleet.until(async () => {
      await page.reload();
      await dashboard.loaded();
      return page.getByRole('img', { name: /Verifications by the hour: 8 bars, .* 3$/ }).isVisible();
    });
    // Below it, the keys that they were.
    await expect.poll(async () => (await dashboard.rows('Busiest keys')).length).toBe(3);
    await dashboard.close();
  });
});
