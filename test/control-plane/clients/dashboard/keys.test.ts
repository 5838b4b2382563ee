import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { recordKey, usageKey } from '../../../../shared/redis/redis-keys.ts';
import { onStage } from './stage.ts';

onStage('the keys of an API', (stage) => {
  test('creates, verifies, disables and enables a key', async () => {
    const dashboard = await stage.signedIn('#/apis');
    const { page } = dashboard;
    await page.getByRole('button', { name: 'New API' }).click();
    const made = page.getByRole('form', { name: 'New API' });
    await made.getByLabel('Name').fill('Shop');
    await made.getByLabel('Id').fill('shop');
    await made.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: 'Shop' }).waitFor();
    await page.getByText('No keys yet.').waitFor();

    await dashboard.openTab('Settings');
    const settings = page.getByRole('form', { name: 'Settings of the API' });
    await settings.getByLabel('Prefix of new keys').fill('acme');
    await settings.getByLabel('Random bytes of new keys').fill('24');
    await settings.getByRole('button', { name: 'Save' }).click();
    await settings.getByText('Saved.').waitFor();
    const defaults = { name: 'Shop', defaultPrefix: 'acme', defaultBytes: 24 };
    expect(await stage.fleet.ok('apis.getApi', { apiId: 'shop' })).toMatchObject(defaults);
    await dashboard.openTab('Keys');

    await page.getByRole('button', { name: 'New key' }).click();
    const form = page.getByRole('form', { name: 'New key' });
    await form.getByLabel('Name').fill('Ada');
    await form.getByLabel('Customer').fill('customer-7');
    await form.getByText('More').click();
    await form.getByLabel('Environment').fill('live');
    await form.getByLabel('Permissions').fill('files.write, files.read');
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
    expect((await stage.fleet.ok('apis.listKeys', { apiId: 'shop' })).total).toBe(1);

    expect(await stage.fleet.verdict(key)).toBe('VALID');
    const verified = await stage.fleet.verify(key);
    expect(verified.body).toMatchObject({
      code: 'VALID',
      name: 'Ada',
      meta: { plan: 'pro' },
      environment: 'live',
      permissions: ['files.read', 'files.write'],
    });
    const panel = page.getByLabel('How far the change has come');
    await dashboard.act('Ada', 'Disable');
    await panel.getByText(/Disabled Ada\. Complete in [\d.]+ m?s: applied by the verifier\./).waitFor();
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');
    await page.getByRole('cell', { name: 'disabled', exact: true }).waitFor();
    // In sight, however long the page is.
    await page.evaluate("document.querySelector('main').style.minHeight = '5000px'");
    for (const top of [0, 2000]) {
      await page.evaluate(`scrollTo(0, ${top})`);
      const { y = 0, height = 0 } = (await panel.boundingBox()) ?? {};
      expect(y).toBeGreaterThan(0);
      expect(y + height).toBeLessThan(800);
    }
    // Undo does not stand alone in a line.
    const topOf = async (name: string) => (await panel.getByRole('button', { name }).boundingBox())?.y;
    expect(await topOf('Undo')).toBe(await topOf('Copy receipt'));
    await panel.getByRole('button', { name: 'Undo' }).click();
    await panel.getByText(/Undone: Disabled Ada\. Complete in/).waitFor();
    expect(await stage.fleet.verdict(key)).toBe('VALID');
    await dashboard.act('Ada', 'Disable');
    await dashboard.act('Ada', 'Enable');
    await panel.getByText(/Enabled Ada\. Complete in/).waitFor();
    expect(await stage.fleet.verdict(key)).toBe('VALID');

    await dashboard.go('#/fleet');
    // The log of identities, which a key with one needs, is no API.
    const verifier = async () => (await dashboard.rows('Verifiers'))[0]?.join() ?? '';
    await expect.poll(verifier).toMatch(/1 of 1 live/);
    await page.getByRole('img', { name: /How long changes made here took/ }).waitFor();
    await dashboard.close(key);
  });

  test('disables selected keys by one change', async () => {
    const made: { key: string; keyId: string }[] = [];
    for (const name of ['One', 'Two', 'Three']) {
      made.push(await stage.fleet.ok('keys.createKey', { apiId: 'several', name }));
    }
    const codes = () => Promise.all(made.map(({ key }) => stage.fleet.verdict(key)));
    expect(await codes()).toEqual(['VALID', 'VALID', 'VALID']);
    await stage.fleet.until(async () =>
      (await stage.fleet.ok('apis.listKeys', { apiId: 'several' })).keys.every(
        ({ lastUsedAt }: { lastUsedAt?: number }) => lastUsedAt !== undefined,
      ),
    );
    const dashboard = await stage.signedIn('#/apis/several');
    const { page } = dashboard;
    const bar = page.getByRole('group', { name: 'Selection' });
    const panel = page.getByLabel('How far the change has come');
    await page.getByRole('checkbox', { name: 'Select One' }).check();
    await page.getByRole('checkbox', { name: 'Select Three' }).check();
    await bar.getByText('2 keys selected').waitFor();
    await bar.getByRole('button', { name: 'Disable 2 keys' }).click();
    // Asked once, with how many of them somebody uses.
    const sure = page.getByRole('dialog', { name: 'Disable 2 keys?' });
    await sure.getByText('2 of them were accepted in the last hour.').waitFor();
    expect(await codes()).toEqual(['VALID', 'VALID', 'VALID']);
    await sure.getByRole('button', { name: 'Disable 2 keys' }).click();
    await panel.getByText(/Disabled 2 keys\. Complete in [\d.]+ m?s: applied by the verifier\./).waitFor();
    expect(await codes()).toEqual(['DISABLED', 'VALID', 'DISABLED']);
    expect(await panel.count()).toBe(1);
    await panel.getByRole('button', { name: 'Undo' }).click();
    await panel.getByText(/Undone: Disabled 2 keys\. Complete in/).waitFor();
    expect(await codes()).toEqual(['VALID', 'VALID', 'VALID']);
    await bar.waitFor({ state: 'detached' });
    await page.getByRole('checkbox', { name: 'Select page' }).check();
    await bar.getByText('3 keys selected').waitFor();
    await stage.fleet.ok('keys.deleteKey', { keyId: made[1]?.keyId });
    await bar.getByRole('button', { name: 'Enable 3 keys' }).click();
    await panel
      .getByText(
        /Enabled 3 keys, of which 3 were so already, but for 1 that could not be changed\. Complete in/,
      )
      .waitFor();
    await panel.getByRole('button', { name: 'Close the receipt' }).click();
    expect(await panel.count()).toBe(0);
    expect(await codes()).toEqual(['VALID', 'NOT_FOUND', 'VALID']);
    await dashboard.close();
  });

  test('all keys that match are selected and changed', async () => {
    const names = Array.from({ length: 1004 }, (_, i) => `${i < 4 ? 'other' : 'same'} ${i}`);
    const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
    const keys = names.map((name) => ({ sha256: sha256(name), name }));
    await stage.fleet.ok('keys.importKeys', { apiId: 'plenty', keys: keys.slice(0, 34) });
    const dashboard = await stage.signedIn('#/apis/plenty?filter=same');
    const { page } = dashboard;
    const bar = page.getByRole('group', { name: 'Selection' });
    const selectAll = async () => {
      await page.getByRole('checkbox', { name: 'Select page' }).check();
      await bar.getByRole('button', { name: 'Select all that match' }).click();
    };
    await selectAll();
    await bar.getByText('30 keys selected, all that match').waitFor();
    await bar.getByRole('button', { name: 'Disable 30 keys' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Disable 30 keys' }).click();
    await page.getByText(/Disabled 30 keys\. Complete/).waitFor();
    const off = await stage.fleet.ok('apis.listKeys', { apiId: 'plenty', state: 'disabled', limit: '100' });
    expect(off.keys.map(({ name }: { name: string }) => name.split(' ')[0])).toEqual(Array(30).fill('same'));

    for (let i = 34; i < keys.length; i += 97)
      await stage.fleet.ok('keys.importKeys', { apiId: 'plenty', keys: keys.slice(i, i + 97) });
    await dashboard.go('#/apis/plenty');
    await selectAll();
    await bar.getByText('1,000 keys selected, more match').waitFor();
    await dashboard.close();
  });

  test('keys are searched, filtered and paged through', async () => {
    let key = '';
    for (let i = 0; i < 30; i++) {
      const { key: made } = await stage.fleet.ok('keys.createKey', {
        apiId: 'many',
        name: `${i % 2 ? 'odd' : 'even'} ${i}`,
        externalId: `owner ${i % 3}`,
        enabled: i % 5 !== 0,
      });
      key = made;
    }
    const dashboard = await stage.signedIn('#/apis/many');
    const { page } = dashboard;
    const names = async () => (await dashboard.rows('Keys')).map(([, name = '']) => name.split('\n')[0]);
    const first = await names();
    expect(first).toHaveLength(25);
    expect(first[0]).toBe('odd 29');
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('26–30 of 30').waitFor();
    await dashboard.loaded();
    expect(await names()).toEqual(['even 4', 'odd 3', 'even 2', 'odd 1', 'even 0']);
    await page.getByRole('button', { name: 'Previous' }).click();
    await page.getByText('1–25 of 30').waitFor();
    await dashboard.loaded();
    expect(await names()).toEqual(first);

    // The list follows what is written.
    await page.getByLabel('Filter').fill('odd customer:"owner 1"');
    await expect.poll(names).toEqual(['odd 25', 'odd 19', 'odd 13', 'odd 7', 'odd 1']);
    await page.getByLabel('Filter').fill('state:disabled odd customer:"owner 1"');
    await expect.poll(names).toEqual(['odd 25']);
    await page.getByLabel('Filter').fill('state:gone');
    await page
      .getByText('filter: state is one of enabled, disabled, expired, stopped, leaked, foreign')
      .waitFor();

    await page.getByLabel('Filter').fill(`of ${key}`);
    await page.keyboard.press('Enter');
    await page.getByText('keys are not sent in addresses').waitFor();
    await dashboard.close(key);
  });

  test('searches thousands of keys, keeping the place', async () => {
    const KEYS = 2500;
    for (let from = 0; from < KEYS; from += 500) {
      const keys = Array.from({ length: 500 }, (_, i) => {
        const sha256 = createHash('sha256')
          .update(`${from + i}`)
          .digest('hex');
        return { sha256, name: from + i === 3 ? 'needle' : `hay ${from + i}`, externalId: 'farmer' };
      });
      await stage.fleet.ok('keys.importKeys', { apiId: 'thousands', keys });
    }
    const dashboard = await stage.signedIn('#/apis/thousands');
    const { page } = dashboard;
    const names = async () => (await dashboard.rows('Keys')).map(([, name = '']) => name.split('\n')[0]);
    const search = async (name: string) => {
      await page.getByLabel('Filter').fill(name);
      await page.keyboard.press('Enter');
    };
    await search('needle');
    await page.getByText('2,500 searched for this page').waitFor();
    expect(await names()).toEqual(['needle']);
    await page.getByRole('link', { name: 'needle' }).click();
    await page.getByRole('heading', { name: 'needle' }).waitFor();
    await page.goBack();
    await page.getByText('2,500 searched for this page').waitFor();
    expect(await names()).toEqual(['needle']);
    await page.reload();
    await page.getByText('2,500 searched for this page').waitFor();
    expect(await page.getByLabel('Filter').inputValue()).toBe('needle');

    let asked = 0;
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    await page.route('**/apis.listKeys?*', async (route) => {
      asked++;
      if (asked === 2) await released;
      await route.continue();
    });
    await search('nothing');
    await page.getByText('Searching: 1,000 keys examined').waitFor();
    await page.getByRole('button', { name: 'Stop here' }).click();
    release();
    await page.getByText('2,000 searched for this page, there may be more').waitFor();
    await page.getByText('No match so far.').waitFor();
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('No key matches.').waitFor();

    await dashboard.close();
  });

  test('sorts thousands of keys on every page', async () => {
    const keys = Array.from({ length: 1200 }, (_, i) => ({
      sha256: (0xabc000 + i).toString(16).padStart(64, '0'),
      name: `${i % 2 ? 'Key' : 'key'} ${(i * 7) % 1200}`,
      ...(i % 100 === 0 ? { expires: 4_000_000_000_000 - i } : {}),
    }));
    const ids: string[] = [];
    for (let from = 0; from < keys.length; from += 400) {
      const { results } = await stage.fleet.ok('keys.importKeys', {
        apiId: 'ordered',
        keys: keys.slice(from, from + 400),
      });
      ids.push(...results.map(({ keyId }: { keyId: string }) => keyId));
    }
    for (const [i, usedAt] of [500, 900, 700].entries())
      await stage.fleet.client.hset(usageKey('ordered', ids[usedAt] ?? ''), 't', 1_700_000_000_000 - i);
    const dashboard = await stage.signedIn('#/apis/ordered');
    const { page } = dashboard;
    const names = async () => (await dashboard.rows('Keys')).map(([, name = '']) => name.split('\n')[0]);
    const numbers = async () => (await names()).map((name) => Number(name?.split(' ')[1]));
    await page.getByRole('combobox', { name: 'Order' }).selectOption('name');
    await expect.poll(numbers).toEqual(Array.from({ length: 25 }, (_, i) => i));
    await page.getByRole('button', { name: 'Next' }).click();
    await expect.poll(numbers).toEqual(Array.from({ length: 25 }, (_, i) => 25 + i));
    await page.getByText('1,200 keys in this API').waitFor();
    // A link has the page.
    await page.getByRole('button', { name: 'Next' }).click();
    const third = Array.from({ length: 25 }, (_, i) => 50 + i);
    await expect.poll(numbers).toEqual(third);
    const copied = await page.context().newPage();
    await copied.goto(page.url());
    await copied.getByText('51–75 of 1,200').waitFor();
    const shown = await copied.getByRole('table', { name: 'Keys' }).locator('td.first a').allInnerTexts();
    expect(shown.map((name) => Number(name.split(' ')[1]))).toEqual(third);
    await copied.getByRole('button', { name: 'First' }).click();
    await copied.getByText('1–25 of 1,200').waitFor();
    expect(copied.url()).not.toMatch(/page|from/);
    await copied.close();
    await page.getByRole('combobox', { name: 'Order' }).selectOption('last use');
    const nameOf = (i: number) => keys[i]?.name;
    await expect.poll(async () => (await names()).slice(0, 3)).toEqual([500, 900, 700].map(nameOf));
    await page.getByRole('combobox', { name: 'Order' }).selectOption('next to expire');
    const soonest = Array.from({ length: 12 }, (_, i) => nameOf(1100 - 100 * i));
    await expect.poll(async () => (await names()).slice(0, 12)).toEqual(soonest);
    await page.getByLabel('Filter').fill('KEY 10');
    await page.getByRole('combobox', { name: 'Order' }).selectOption('name');
    await page.keyboard.press('Enter');
    await expect
      .poll(numbers)
      .toEqual([
        10,
        ...Array.from({ length: 10 }, (_, i) => 100 + i),
        ...Array.from({ length: 14 }, (_, i) => 1000 + i),
      ]);
    await dashboard.close();
  });

  test('names are wide, and empty columns left out', async () => {
    const name = `Søren – Wayne Enterprises ${'batch export '.repeat(12)}`;
    await stage.fleet.ok('keys.createKey', { apiId: 'wide', name, externalId: 'wayne', expires: undefined });
    const dashboard = await stage.signedIn('#/apis/wide');
    const { page } = dashboard;
    const headings = () => page.getByRole('columnheader').allInnerTexts();
    expect(await headings()).not.toContain('Expires');
    expect((await dashboard.rows('Keys'))[0]?.[1]).toContain('wayne');
    const cell = page.getByRole('cell').filter({ has: page.getByRole('link', { name }) });
    for (const width of [1440, 1024, 768]) {
      await page.setViewportSize({ width, height: 800 });
      expect((await cell.boundingBox())?.width).toBeGreaterThanOrEqual(240);
    }
    expect((await page.getByRole('link', { name }).boundingBox())?.height).toBeGreaterThan(30);
    await stage.fleet.ok('keys.createKey', { apiId: 'wide', expires: 4_000_000_000_000 });
    await page.reload();
    await page.getByRole('columnheader', { name: 'Expires' }).waitFor();
    await dashboard.close();
  });

  test('lists what is unused, ends, leaked, has a role', async () => {
    const { fleet } = stage;
    await fleet.ok('permissions.createRole', { name: 'night shift' });
    const make = (name: string, fields: object = {}) =>
      fleet.ok('keys.createKey', { apiId: 'clean', name, ...fields });
    const [used, leaked] = [await make('used'), await make('leaked')];
    await make('ending', { expires: Date.now() + 3 * 86_400_000 });
    await make('later', { expires: Date.now() + 30 * 86_400_000 });
    await make('shifted', { roles: ['night shift'] });
    expect(await fleet.verdict(used.key)).toBe('VALID');
    await fleet.client.hset(
      recordKey('clean', leaked.keyId),
      'K',
      JSON.stringify({ at: Date.now(), url: 'https://example.com/x' }),
    );
    const dashboard = await stage.signedIn('#/apis/clean');
    const { page } = dashboard;
    const names = async () => (await dashboard.rows('Keys')).map(([, name = '']) => name.split('\n')[0]);
    for (const [view, expected] of [
      ['Leaked', ['leaked']],
      ['Expiring', ['ending']],
      ['Never used', ['shifted', 'later', 'ending', 'leaked']],
      ['All', ['shifted', 'later', 'ending', 'leaked', 'used']],
    ] as const) {
      await page.getByRole('button', { name: view, exact: true }).click();
      await expect.poll(names).toEqual(expected);
    }
    await page.getByRole('button', { name: 'Never used' }).click();
    await page.reload();
    expect(await page.getByLabel('Filter').inputValue()).toBe('unused:never');
    await page.getByLabel('Filter').fill('unused:1m');
    await page.getByRole('alert').getByText('unused is never or a number of hours or days').waitFor();
    expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0);
    await page.getByLabel('Filter').fill('role:"night shift"');
    await expect.poll(names).toEqual(['shifted']);
    await page.getByLabel('Filter').fill('');
    await page.getByRole('combobox', { name: 'Order' }).selectOption('use, longest ago first');
    await expect.poll(async () => (await names())[0]).toBe('used');
    // j and k go from row to row, x selects, Enter opens.
    await page.getByRole('heading', { name: 'clean' }).click();
    const [first = '', second = ''] = (await names()) as string[];
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.keyboard.press('x');
    expect(await page.getByRole('checkbox', { name: `Select ${second}`, exact: true }).isChecked()).toBe(
      true,
    );
    await page.keyboard.press('k');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: first }).waitFor();
    // So in every list, but not where somebody writes; / goes to the filter, or else to the finder.
    await stage.fleet.ok('identities.createIdentity', { externalId: 'ada' });
    await dashboard.go('#/identities');
    await page.keyboard.press('/');
    await page.keyboard.type('ada?');
    expect(await page.getByLabel('Part of the external id').inputValue()).toBe('ada?');
    await page.getByRole('heading', { name: 'Customers' }).click();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'ada' }).waitFor();
    await dashboard.openTab('Settings');
    await page.getByLabel('Meta').focus();
    await page.keyboard.type('/jk?');
    expect(await page.getByLabel('Meta').inputValue()).toContain('/jk?');
    await page.getByRole('heading', { name: 'ada' }).click();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Shortcuts' }).getByText('To the next row').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('/');
    await page.getByRole('dialog', { name: 'Find' }).waitFor();
    await dashboard.close();
  });

  test('gives, takes and ends several, and undoes it', async () => {
    const { fleet } = stage;
    for (const name of ['bulk reader', 'bulk editor']) await fleet.ok('permissions.createRole', { name });
    const made = [
      await fleet.ok('keys.createKey', { apiId: 'bulk', name: 'A', roles: ['bulk editor'] }),
      await fleet.ok('keys.createKey', { apiId: 'bulk', name: 'B' }),
    ];
    const now = () => Promise.all(made.map(({ keyId }) => fleet.ok('keys.getKey', { keyId })));
    const roles = async () => (await now()).map((key) => key.roles ?? []);
    const dashboard = await stage.signedIn('#/apis/bulk');
    const { page } = dashboard;
    const bar = page.getByRole('group', { name: 'Selection' });
    const select = async (action: string) => {
      await dashboard.loaded();
      await page.getByRole('checkbox', { name: 'Select page' }).check();
      await bar.getByRole('button', { name: action }).click();
    };
    await select('Add role…');
    await page.getByRole('combobox', { name: 'Role' }).selectOption('bulk reader');
    await page.getByRole('dialog').getByRole('button', { name: 'Add role' }).click();
    await page.getByText(/Gave bulk reader to 2 keys\. Complete/).waitFor();
    expect(await roles()).toEqual([['bulk editor', 'bulk reader'], ['bulk reader']]);
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByText(/Undone: Gave bulk reader to 2 keys\. Complete/).waitFor();
    expect(await roles()).toEqual([['bulk editor'], []]);
    await select('Remove role…');
    await page.getByRole('dialog').getByRole('button', { name: 'Remove role' }).click();
    await page.getByText(/Took bulk editor from 2 keys, of which 1 was so already\. Complete/).waitFor();
    expect(await roles()).toEqual([[], []]);
    await select('Expire…');
    await page.getByRole('dialog').getByLabel('Expires').fill('2999-12-31T10:00');
    await page.getByRole('button', { name: 'Set', exact: true }).click();
    await page.getByText(/Set the end of 2 keys\. Complete/).waitFor();
    for (const { expires } of await now()) expect(new Date(expires).getFullYear()).toBe(2999);
    await page.evaluate('URL.revokeObjectURL = () => { document.title = "revoked"; }');
    const started = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export CSV' }).click();
    const text = await readFile(await (await started).path(), 'utf8');
    // Excel needs the mark, and Safari the URL after the click.
    expect(text.startsWith('\ufeff"keyId","name"')).toBe(true);
    expect(text.trim().split('\r\n')).toHaveLength(3);
    expect(await page.title()).not.toBe('revoked');
    await dashboard.close();
  });
});
