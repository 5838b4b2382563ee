import { expect, test } from 'vitest';
import { onStage } from './stage.ts';

onStage('two admins at once', (stage) => {
  test.each([
    {
      thing: 'a key',
      async make() {
        const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'shop', name: 'Ada' });
        return { hash: `#/keys/${keyId}`, tab: 'Settings', reference: { keyId } };
      },
      ...{ read: 'keys.getKey', change: 'keys.updateKey' },
      ...{ form: 'Change the key', field: 'Name', shown: 'name' },
      ...{ theirs: { name: 'Theirs' }, mine: 'Mine', saved: { name: 'Mine' } },
    },
    {
      thing: 'an identity',
      async make() {
        await stage.fleet.ok('identities.createIdentity', { externalId: 'ada' });
        return { hash: '#/identities/ada', tab: 'Settings', reference: { externalId: 'ada' } };
      },
      ...{ read: 'identities.getIdentity', change: 'identities.updateIdentity' },
      ...{ form: 'Change the customer', field: 'Meta', shown: 'meta' },
      ...{ theirs: { meta: { plan: 'theirs' } }, mine: '{"plan":"mine"}', saved: { meta: { plan: 'mine' } } },
    },
    {
      thing: 'an API',
      async make() {
        await stage.fleet.ok('apis.createApi', { apiId: 'both', name: 'Both' });
        return { hash: '#/apis/both', tab: 'Settings', reference: { apiId: 'both' } };
      },
      ...{ read: 'apis.getApi', change: 'apis.updateApi' },
      ...{ form: 'Settings of the API', field: 'Name', shown: 'name' },
      ...{ theirs: { name: 'Theirs' }, mine: 'Mine', saved: { name: 'Mine' } },
    },
  ])('overwrite $thing only knowingly', async ({ make, read, change, form, field, theirs, mine, saved }) => {
    const { hash, tab, reference } = await make();
    const dashboard = await stage.signedIn(hash);
    const { page } = dashboard;
    if (tab) await dashboard.openTab(tab);
    const edit = page.getByRole('form', { name: form });
    await edit.getByLabel(field).first().fill(mine);
    await stage.fleet.ok(change, { ...reference, ...theirs });
    await edit.getByRole('button', { name: 'Save' }).click();
    await edit.getByText(/somebody changed it/).waitFor();
    expect(await stage.fleet.ok(read, reference)).toMatchObject(theirs);
    await stage.fleet.until(async () => {
      await edit.getByRole('button', { name: 'Save' }).click();
      return expect.objectContaining(saved).asymmetricMatch(await stage.fleet.ok(read, reference));
    });
    await dashboard.close();
  });

  test('tick one role', async () => {
    const { roleId } = await stage.fleet.ok('permissions.createRole', {
      name: 'editor',
      permissions: ['a', 'b'],
    });
    const dashboard = await stage.signedIn('#/roles');
    const { page } = dashboard;
    const may = (slug: string) => page.getByRole('checkbox', { name: `editor may ${slug}` });
    await may('a').uncheck();
    await stage.fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['a', 'b', 'c'] });
    await page.getByRole('button', { name: 'Save editor' }).click();
    await page.getByText(/somebody changed it/).waitFor();
    await stage.fleet.until(() => may('c').isChecked());
    expect(await may('a').isChecked()).toBe(false);
    await page.getByRole('button', { name: 'Save editor' }).click();
    await page.getByText(/Changed editor\./).waitFor();
    const { permissions } = await stage.fleet.ok('permissions.getRole', { roleId });
    expect(permissions.map(({ id }: { id: string }) => id)).toEqual(['b', 'c']);
    await dashboard.close();
  });
});
