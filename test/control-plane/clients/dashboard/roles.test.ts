import { expect, test } from 'vitest';
import { FaultProxy } from '../../../../deploy/dev/fault-proxy.ts';
import { onStage } from './stage.ts';

onStage('the roles', (stage) => {
  test('makes, saves, gives and deletes a role', async () => {
    await stage.fleet.ok('permissions.createPermission', {
      name: 'files.audit',
      description: 'Sees who read',
    });
    const dashboard = await stage.signedIn('#/roles');
    const { page } = dashboard;
    await page.getByText('No roles yet.').waitFor();
    await page.getByRole('button', { name: 'New role' }).click();
    await page.getByLabel('Name').fill('editor');
    await page.getByLabel('Meant for').fill('Writes articles');
    await page.getByLabel('Permissions such as').fill('files.read, files.write');
    await page.getByRole('button', { name: 'Create role' }).click();
    const may = (slug: string) => page.getByRole('checkbox', { name: `editor may ${slug}` });
    await may('files.read').waitFor();
    // The catalogue's have lines in any case.
    expect(await may('files.audit').isChecked()).toBe(false);
    await page.getByText('Sees who read').waitFor();
    expect(await may('files.write').isChecked()).toBe(true);

    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'shop', roles: ['editor'] });
    const permissions = async () => (await stage.fleet.verify(key)).body.permissions;
    expect(await permissions()).toEqual(['files.read', 'files.write']);
    await page.getByLabel('Another permission').fill('files.delete');
    await page.getByRole('button', { name: 'Add a line' }).click();
    await may('files.delete').check();
    await may('files.write').uncheck();
    await page.getByRole('button', { name: 'Save editor' }).click();
    const fence = page.getByLabel('How far the change has come');
    await fence.getByText(/Changed editor\..*Complete/).waitFor();
    expect(await permissions()).toEqual(['files.delete', 'files.read']);
    await page.getByRole('button', { name: 'Save editor' }).waitFor({ state: 'detached' });
    await fence.getByRole('button', { name: 'Undo' }).click();
    await fence.getByText(/Undone: Changed editor\..*Complete/).waitFor();
    expect(await permissions()).toEqual(['files.read', 'files.write']);
    await stage.fleet.until(() => may('files.write').isChecked());

    await stage.fleet.ok('permissions.createRole', { name: 'reader', permissions: ['files.read'] });
    await dashboard.go('#/');
    await dashboard.go('#/roles');
    await page.getByLabel('Find').fill('reader');
    await page.getByRole('checkbox', { name: 'reader may files.read' }).waitFor();
    expect(await may('files.read').count()).toBe(0);
    await page.getByLabel('Find').fill('');

    // On a phone, each role folds out its permissions.
    await page.setViewportSize({ width: 390, height: 800 });
    await page.getByText('1 permission', { exact: true }).waitFor();
    await page.getByText('editor', { exact: true }).first().click();
    expect(await may('files.read').isVisible()).toBe(true);
    expect(await may('files.read').isChecked()).toBe(true);
    await page.setViewportSize({ width: 1100, height: 800 });

    await page.getByRole('button', { name: 'Delete editor' }).click();
    await page.getByLabel('Type editor to confirm').fill('editor');
    await page.getByRole('button', { name: 'Delete role' }).click();
    await may('files.read').waitFor({ state: 'detached' });
    expect(await permissions()).toBeUndefined();
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByRole('heading', { name: keyId }).or(page.getByText(keyId).first()).waitFor();
    await dashboard.close(key);
  });

  test('shows how far a change is that ends by fence', async () => {
    const { roleId } = await stage.fleet.ok('permissions.createRole', { name: 'slow', permissions: ['a'] });
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'shop', roles: ['slow'] });
    const proxy = new FaultProxy(() => stage.redis.port);
    const port = await proxy.listen();
    const cutOff = await stage.fleet.addVerifier({ REDIS_URL: `redis://127.0.0.1:${port}` });
    try {
      for (const at of [0, 1]) expect(await stage.fleet.verdict(key, { at })).toBe('VALID');
      const dashboard = await stage.signedIn('#/roles');
      const { page } = dashboard;
      await page.getByRole('checkbox', { name: 'slow may a' }).uncheck();
      proxy.set('blackhole');
      await page.getByRole('button', { name: 'Save slow' }).click();
      await page.getByText('Changed slow. Waiting for 1 of 2 verifiers.').waitFor();
      await page.getByText(/Complete after [\d.]+ m?s, by fence: 1 of 2 did not answer/).waitFor();
      expect((await stage.fleet.ok('permissions.getRole', { roleId })).permissions).toEqual([]);
      await dashboard.close(key);
    } finally {
      proxy.set('none');
      await cutOff.stop();
      stage.fleet.verifiers.splice(1, 1);
      proxy.close();
    }
  });

  test('a role with limits is a plan', async () => {
    const limits = [{ name: 'requests', limit: 100, duration: 60_000, autoApply: true, per: 'identity' }];
    const made = { name: 'free', permissions: ['files.read'], ratelimits: limits };
    const { roleId } = await stage.fleet.ok('permissions.createRole', made);
    const dashboard = await stage.signedIn('#/roles?find=free');
    const { page } = dashboard;
    const plan = async () => (await dashboard.rows('Plans'))[0]?.[1];
    expect(await plan()).toBe('requests 100 a minute per customer, by each request');
    // On a phone, too, a line is as wide as the page.
    await page.setViewportSize({ width: 390, height: 800 });
    expect((await page.getByText('100 a minute').boundingBox())?.width).toBeGreaterThan(200);
    await page.getByRole('button', { name: 'Limits… of free' }).click();
    const rates = page.getByRole('group', { name: 'Rate limits' });
    const row = (name: string) => page.getByRole('group', { name: `Limit ${name}`, exact: true });
    await row('requests').getByLabel('Number').fill('200');
    await rates.getByRole('button', { name: 'Add limit' }).click();
    await row('').getByLabel('Name').fill('exports');
    await row('exports').getByLabel('Number').fill('a lot');
    await row('exports').getByLabel('Unit').selectOption('month');
    await row('exports').getByLabel('each request').uncheck();
    await page.getByRole('button', { name: 'Save limits' }).click();
    await page.getByRole('alert').getByText('must be integer').waitFor();
    await row('exports').getByLabel('Number').fill('20');
    await page
      .getByRole('group', { name: 'Limits at the same time' })
      .getByRole('button', { name: 'Add limit' })
      .click();
    await row('').getByLabel('Name').fill('jobs');
    await row('jobs').getByLabel('Number').fill('3');
    await row('jobs').getByLabel('Shared by').selectOption('identity');
    await page.getByRole('button', { name: 'Save limits' }).click();
    const fence = page.getByLabel('How far the change has come');
    await fence.getByText(/Changed the limits of free\. Complete/).waitFor();
    const stored = async () => {
      const { ratelimits, concurrency } = await stage.fleet.ok('permissions.getRole', { roleId });
      return [...ratelimits, ...concurrency];
    };
    expect(await stored()).toMatchObject([
      { name: 'requests', limit: 200, duration: 60_000, autoApply: true, per: 'identity' },
      { name: 'exports', limit: 20, interval: 'month' },
      { name: 'jobs', limit: 3, per: 'identity' },
    ]);
    await expect.poll(plan).toContain('jobs 3 at the same time per customer');
    await fence.getByRole('button', { name: 'Undo' }).click();
    await fence.getByText(/Undone: Changed the limits of free\. Complete/).waitFor();
    expect(await stored()).toMatchObject(limits);
    await dashboard.close();
  });

  test('a limit keeps what its row does not show', async () => {
    const ratelimits = [
      { name: 'monthly', limit: 50_000, interval: 'month', anchor: { day: 5 }, thresholds: [80, 95] },
      { name: 'exact', limit: 5, duration: 90_000, async: false },
    ];
    const { roleId } = await stage.fleet.ok('permissions.createRole', { name: 'anchored', ratelimits });
    const before = (await stage.fleet.ok('permissions.getRole', { roleId })).ratelimits;
    const dashboard = await stage.signedIn('#/roles?find=anchored');
    const { page } = dashboard;
    const save = async () => {
      await page.getByRole('button', { name: 'Save limits' }).click();
      await page.getByText(/Changed the limits of anchored\. Complete/).waitFor();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    };
    await page.getByRole('button', { name: 'Limits… of anchored' }).click();
    const monthly = page.getByRole('group', { name: 'Limit monthly' });
    expect(await monthly.getByLabel('Warn at %').inputValue()).toBe('80, 95');
    await monthly.getByLabel('Number').fill('60000');
    await save();
    const { ratelimits: after } = await stage.fleet.ok('permissions.getRole', { roleId });
    expect(after).toEqual([{ ...before[0], limit: 60_000 }, before[1]]);
    await dashboard.close();
  });

  test('without permissions, plans stand first', async () => {
    for (const { slug } of await stage.fleet.ok('permissions.listPermissions'))
      await stage.fleet.ok('permissions.deletePermission', { permissionId: slug });
    await stage.fleet.ok('permissions.createRole', { name: 'bare' });
    const dashboard = await stage.signedIn('#/roles?find=bare');
    const titles = () => dashboard.page.getByRole('heading', { level: 2 }).allInnerTexts();
    await expect.poll(titles).toEqual(['Plans', 'Permissions']);
    await dashboard.page.getByLabel('Another permission').fill('files.read');
    await dashboard.page.getByRole('button', { name: 'Add a line' }).click();
    await dashboard.page.getByRole('checkbox', { name: 'bare may files.read' }).check();
    await dashboard.page.getByRole('button', { name: 'Save bare' }).click();
    await expect.poll(titles).toEqual(['Plans']);
    await dashboard.close();
  });
});
