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
    await page.getByRole('button', { name: 'New customer' }).click();
    await page.getByLabel('External id such as').fill(externalId);
    await page.getByRole('button', { name: 'Create customer' }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await page.getByRole('link', { name: 'of books' }).waitFor();

    await page.getByRole('button', { name: `Disable ${externalId}` }).click();
    const panel = page.getByLabel('How far the change has come');
    await panel.getByText(/Disabled Ada.*Complete/).waitFor();
    expect(await verdicts()).toEqual(['DISABLED', 'DISABLED']);
    await page.getByText('disabled', { exact: true }).waitFor();
    await dashboard.choose('Delete customer');
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page.getByText(/Conflict.*the identity is disabled/).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await panel.getByRole('button', { name: 'Undo' }).click();
    await panel.getByText(/Undone: Disabled Ada.*Complete/).waitFor();
    expect(await verdicts()).toEqual(['VALID', 'VALID']);

    // What is saved must be based on the undone change.
    await dashboard.loaded();
    await page.getByLabel('Meta').fill('{"plan": "pro"}');
    await page.getByLabel('Rate limits').fill('tokens 5000/1d\ncalls 1/1h exact');
    await page.getByLabel('Concurrency limits').fill('jobs 3');
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
    await page.getByLabel('APIs').fill('shop');
    await page.getByRole('button', { name: 'Save' }).click();
    await stage.fleet.until(
      async () => (await stage.fleet.verify(books.key)).body.identity === undefined,
      'it still holds in books',
    );
    await page.getByLabel('APIs').fill('');
    await page.getByRole('button', { name: 'Save' }).click();
    await stage.fleet.until(async () => (await stage.fleet.verify(books.key)).body.identity !== undefined);
    const credits = page.getByRole('form', { name: 'Set the credits' });
    await credits.getByLabel('Credits empty').fill('9');
    await credits.getByRole('button', { name: 'Set' }).click();
    await page.getByRole('img', { name: 'Credits: 9 free, 0 at verifiers' }).waitFor();
    await dashboard.go(`#/keys/${shop.keyId}`);
    await page.getByText('All keys of the customer without credits of their own share these.').waitFor();
    await dashboard.go('#/identities');
    expect((await dashboard.rows('Customers'))[0]?.[0]).toBe(externalId);
    await page.getByRole('button', { name: `Disable ${externalId}` }).click();
    await panel.getByText(/Disabled Ada.*Complete/).waitFor();
    await page.getByRole('button', { name: `Enable ${externalId}` }).click();
    await panel.getByText(/Enabled Ada.*Complete/).waitFor();

    await dashboard.go(`#/keys/${shop.keyId}`);
    await page.getByRole('link', { name: externalId }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await dashboard.choose('Delete customer');
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page.getByText('No customers yet.').waitFor();
    expect(await verdicts()).toEqual(['VALID', 'VALID']);
    await page.getByLabel('Part of the external id').fill(externalId);
    await page.getByRole('button', { name: 'Find', exact: true }).click();
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
    await stage.fleet.ok('permissions.createRole', { name: 'plan pro', permissions: ['files.read'] });
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
    await meters.getByText('tokens, per 1m').waitFor();
    await meters.getByText('of 3', { exact: true }).waitFor();
    const form = page.getByRole('form', { name: 'Change the roles' });
    await form.getByRole('combobox').fill('plan');
    await page.keyboard.press('Enter');
    await form.getByRole('button', { name: 'Set roles' }).click();
    const panel = page.getByLabel('How far the change has come');
    await panel.getByText(/Changed the roles of globex.*Complete/).waitFor();
    expect(await permitted()).toBe('VALID');
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByText('Roles through its customer').waitFor();
    await page.getByRole('link', { name: 'plan pro' }).click();
    expect(await page.getByLabel('Find').inputValue()).toBe('plan pro');

    await dashboard.go('#/identities/globex');
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
      return page.getByRole('img', { name: /Verifications by the hour: 25 bars, .* 3$/ }).isVisible();
    });
    await dashboard.close();
  });
});
