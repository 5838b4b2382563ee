import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { LENGTH_MS, usageField } from '../../../../shared/protocol/records/usage.ts';
import { apiUsageKey, usageKey } from '../../../../shared/redis/redis-keys.ts';
import { VERDICTS } from '../../../../shared/rules/verdict-codes.ts';
import { Dashboard } from './chromium.ts';
import { onStage } from './stage.ts';

onStage('what people come for', (stage) => {
  test('two clicks and one command to the first key', async () => {
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    await page.getByRole('button', { name: 'Create API' }).click();
    await page.getByRole('button', { name: 'Create key' }).waitFor();
    // The guide goes on where it was.
    await page.reload();
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByText('waiting for the first verification').waitFor();
    await page.getByLabel('Address of the verifier').fill('http://127.0.0.1:4999');
    const code = await page.locator('.code-block pre').first().innerText();
    expect(code).toContain('curl -s http://127.0.0.1:4999/v1/keys.verifyKey ');
    const secret = /"key":"(\w+)"/.exec(code)?.[1] ?? '';
    expect(await stage.fleet.verdict(secret)).toBe('VALID');
    await page.getByText('done: a verifier answered').waitFor();
    await page.getByRole('link', { name: 'To the keys of the API' }).click();
    await page.getByRole('heading', { name: 'My API' }).waitFor();
    expect((await dashboard.rows('Keys'))[0]?.[1]).toMatch(/^First client\n/);
    await stage.fleet.until(async () => {
      await page.reload();
      await dashboard.go('#/');
      await page.getByRole('img', { name: /Verifications/ }).waitFor();
      return (await page.getByRole('region', { name: 'First steps' }).count()) === 0;
    });
    await dashboard.close(secret);
  });

  test('a new secret is handed over by a link that shows it once, and which the server cannot read', async () => {
    await stage.fleet.ok('apis.createApi', { apiId: 'given', name: 'given' });
    const dashboard = await stage.signedIn('#/apis/given');
    const { page } = dashboard;
    let sent = '';
    page.on('request', (request) => {
      if (request.url().endsWith('/dashboard/handover')) sent = request.postData() ?? '';
    });
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByRole('button', { name: 'Create key' }).click();
    const secret = await page.getByLabel('Secret').inputValue();
    await page.getByRole('button', { name: 'Make a one-time link' }).click();
    const link = await page.getByLabel('One-time link').inputValue();
    expect(sent).toMatch(/^\{"ciphertext":"[\w-]{50,}"\}$/);
    expect(sent).not.toContain(secret);
    const [, id = ''] = /#\/handover\/([\w-]+)\./.exec(link) ?? [];
    expect(await stage.redis.command('PTTL', `kf:h:${id}`)).toSatisfy(
      (ms) => Number(ms) > 3_500_000 && Number(ms) <= 3_600_000,
    );

    // Somebody else, who is not signed in.
    const other = await Dashboard.open(stage.browser, stage.base);
    await other.page.goto(link);
    await other.page.reload();
    await other.page.getByRole('button', { name: 'Show the secret' }).click();
    expect(await other.page.getByRole('textbox', { name: 'Secret' }).inputValue()).toBe(secret);
    expect(await other.page.getByRole('button', { name: 'Make a one-time link' }).count()).toBe(0);
    await other.page.getByRole('button', { name: 'I have stored it' }).click();
    await other.page.getByText('The link shows nothing any more.').waitFor();
    await other.page.reload();
    await other.page.getByRole('button', { name: 'Show the secret' }).click();
    await other.page.getByText('this link was used before, or is older than an hour').waitFor();
    expect(await other.page.getByRole('button', { name: 'Show the secret' }).count()).toBe(0);
    await other.page.goto(link.slice(0, -3));
    await other.page.reload();
    await other.page.getByRole('button', { name: 'Show the secret' }).click();
    await other.page.getByText('the link is not complete').waitFor();
    await other.close(secret);
    await dashboard.close(secret);
  });

  test('stops and restores a customer found by name', async () => {
    const externalId = 'Vandelay Industries';
    const keys = await Promise.all(
      ['books', 'films'].map((apiId) =>
        stage.fleet.ok('keys.createKey', { apiId, externalId, name: `of ${apiId}` }),
      ),
    );
    const verdicts = () => Promise.all(keys.map(({ key }) => stage.fleet.verdict(key)));
    expect(await verdicts()).toEqual(['VALID', 'VALID']);
    // One API has more keys than a call examines, and the one that is looked for is the newest, another the oldest.
    const crowd = Array.from({ length: 1200 }, (_, i) => ({
      ...{ sha256: i.toString(16).padStart(64, 'c'), name: `hay ${i}` },
      ...(i === 0 ? { externalId: 'Old Kramerica' } : {}),
    }));
    for (let from = 0; from < crowd.length; from += 400)
      await stage.fleet.ok('keys.importKeys', { apiId: 'crowd', keys: crowd.slice(from, from + 400) });
    await stage.fleet.ok('keys.createKey', {
      apiId: 'crowd',
      name: 'Newest of many',
      externalId: 'Kramerica',
    });
    const dashboard = await stage.signedIn('#/identities');
    const { page } = dashboard;
    await page.getByLabel('Part of the external id').fill('vande');
    await page.keyboard.press('Enter');
    await page.getByText('These have keys, and no customer yet').waitFor();
    await page.keyboard.press('Control+K');
    await page.getByLabel('A secret, key, request id').fill('kramer');
    await page.getByRole('button', { name: 'Newest of many key in crowd, Kramerica' }).waitFor();
    await page.getByLabel('A secret, key, request id').fill('vande');
    await page.getByRole('button', { name: 'Vandelay Industries customer' }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await page.getByRole('button', { name: `Stop all keys of ${externalId}` }).click();
    await page.getByText(/Disabled Vandelay Industries. Complete/).waitFor();
    await page.getByRole('button', { name: 'Copy receipt' }).waitFor();
    expect(await verdicts()).toEqual(['DISABLED', 'DISABLED']);
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByText(/Undone: Disabled Vandelay Industries. Complete/).waitFor();
    expect(await verdicts()).toEqual(['VALID', 'VALID']);
    await dashboard.go('#/apis/films');
    await page.getByLabel('Filter').fill('VANDE');
    await page.keyboard.press('Enter');
    await expect
      .poll(async () => (await dashboard.rows('Keys')).map((row) => row[1]?.split('\n')[0]))
      .toEqual(['of films']);
    await dashboard.close();
  });

  test('a double click disables once', async () => {
    const { key } = await stage.fleet.ok('keys.createKey', { apiId: 'twice', name: 'Bea' });
    const dashboard = await stage.signedIn('#/apis/twice');
    const { page } = dashboard;
    await page.getByLabel('Actions on Bea').click();
    await page.getByRole('button', { name: 'Disable Bea' }).dblclick();
    await page.getByText(/Disabled Bea. Complete/).waitFor();
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Dismiss' }).click();
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByRole('button', { name: 'Create key' }).click();
    const secret = await page.getByLabel('Secret').inputValue();
    await page.goBack();
    await page
      .getByRole('dialog', { name: 'Leave without saving?' })
      .getByRole('button', { name: 'Stay' })
      .click();
    expect(await page.getByLabel('Secret').inputValue()).toBe(secret);
    await page.getByRole('button', { name: 'Make a one-time link' }).click();
    await page.getByRole('button', { name: 'Copy link' }).click();
    expect(await page.evaluate('navigator.clipboard.readText()')).toMatch(/#\/handover\//);
    await page.getByRole('button', { name: 'I have stored it' }).click();
    await dashboard.close(secret);
  });

  test('shows what happened yesterday in all APIs', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'past', name: 'Pia' });
    const now = new Date();
    const noon = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1, 12).getTime();
    const hour = Math.floor(noon / LENGTH_MS.hour);
    for (const [code, count] of [
      ['VALID', 40],
      ['DISABLED', 2],
    ] as const) {
      const field = usageField('hour', hour, VERDICTS[code].usage.letter);
      for (const usage of [usageKey('past', keyId), apiUsageKey('past')])
        await stage.redis.command('HSET', usage, field, String(count));
    }
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    await page.getByRole('button', { name: 'yesterday' }).click();
    await page.getByRole('img', { name: /Verifications by the hour: \d+ bars, the highest 42$/ }).waitFor();
    await expect.poll(() => dashboard.rows('Traffic by API')).toEqual([['past', '42', '2', '2 disabled']]);
    await dashboard.go('#/audit?period=today');
    await page.getByRole('cell', { name: 'created key' }).first().waitFor();
    await page.getByLabel('Time').selectOption('yesterday');
    await page.getByText('No events.').waitFor();
    await dashboard.close();
  });

  test('exports the whole audit log as CSV and NDJSON', async () => {
    for (let i = 0; i < 130; i++)
      await stage.fleet.ok('identities.createIdentity', { externalId: `customer ${i}` });
    await stage.fleet.ok('identities.createIdentity', { externalId: '=HYPERLINK("x")' });
    const dashboard = await stage.signedIn('#/audit?operation=identities.createIdentity');
    const { page } = dashboard;
    const download = async (format: string) => {
      const started = page.waitForEvent('download');
      await page.getByRole('button', { name: `Export ${format}` }).click();
      return readFile(await (await started).path(), 'utf8');
    };
    const events = (await download('NDJSON'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    await page.getByText(`${events.length} rows.`).waitFor();
    // More than a page, and each once.
    expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
    expect(events.length).toBeGreaterThanOrEqual(131);
    expect(events[0].on.externalId).toBe('=HYPERLINK("x")');
    const lines = (await download('CSV')).trim().split('\r\n');
    expect(lines).toHaveLength(events.length + 1);
    expect(lines[0]).toMatch(/^"time","operation","outcome","by"/);
    // No spreadsheet takes it for a formula.
    expect(lines[1]).toContain(`,"'=HYPERLINK(""x"")",`);
    await dashboard.close();
  });

  test('loses no edit by a click', async () => {
    await stage.fleet.ok('permissions.createRole', { name: 'Billing Manager' });
    await stage.fleet.ok('permissions.createPermission', { name: 'bills.read' });
    const { keyId } = await stage.fleet.ok('keys.createKey', {
      ...{ apiId: 'edited', name: 'Edi', permissions: ['bills.old', 'bills.write'] },
    });
    const dashboard = await stage.signedIn(`#/keys/${keyId}?tab=access`);
    const { page } = dashboard;
    const form = page.getByRole('form', { name: 'Change the key' });
    const offered = (id: string) =>
      page
        .locator(`#${id}-options option`)
        .evaluateAll((all) => all.map((each) => each.getAttribute('value')));
    await expect.poll(() => offered('field-permissions')).toContain('bills.read');
    await form.getByLabel('Permissions').fill('bills.read');
    await form.getByRole('button', { name: 'Remove bills.old' }).click();
    await form.getByLabel('Roles').fill('nobody');
    await form.getByText('none is named nobody').waitFor();
    await form.getByLabel('Roles').fill('billing');
    await page.getByRole('link', { name: 'Customers' }).click();
    const question = page.getByRole('dialog', { name: 'Leave without saving?' });
    await question.getByRole('button', { name: 'Stay' }).click();
    expect(new URL(page.url()).hash).toBe(`#/keys/${keyId}?tab=access`);
    await form.getByRole('button', { name: 'Remove Billing Manager' }).waitFor();
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    const { permissions, roles } = await stage.fleet.ok('keys.getKey', { keyId });
    expect([permissions.toSorted(), roles]).toEqual([['bills.read', 'bills.write'], ['Billing Manager']]);
    await page.getByRole('link', { name: 'Customers' }).click();
    await page.getByRole('heading', { name: 'Customers' }).waitFor();

    await dashboard.go(`#/keys/${keyId}?tab=access`);
    await form.getByLabel('Name').fill('Other');
    await page.getByRole('link', { name: 'Plans & roles' }).click();
    await question.getByRole('button', { name: 'Leave' }).click();
    await page.getByRole('heading', { name: 'Plans & roles' }).waitFor();
    expect((await stage.fleet.ok('keys.getKey', { keyId })).name).toBe('Edi');
    await dashboard.close();
  });

  test('keeps the entries of a dialog', async () => {
    await stage.fleet.ok('apis.createApi', { apiId: 'careful', name: 'Careful' });
    const dashboard = await stage.signedIn('#/apis/careful');
    const { page } = dashboard;
    const form = page.getByRole('form', { name: 'New key' });
    const question = page.getByRole('dialog', { name: 'Leave without saving?' });
    await page.getByRole('button', { name: 'New key' }).click();
    await page.keyboard.press('Escape');
    await form.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'New key' }).click();
    await form.getByLabel('Name').fill('Long considered');
    // Twice, because browsers close a dialog at the second, whatever its page says.
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await question.getByRole('button', { name: 'Stay' }).click();
    expect(await form.getByLabel('Name').inputValue()).toBe('Long considered');
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await question.getByRole('button', { name: 'Leave' }).click();
    await form.waitFor({ state: 'detached' });
    await dashboard.close();
  });

  test('keeps entries when the session is over', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'kept', name: 'Before' });
    const permissions = ['api.*.read_key', 'api.*.update_key', 'api.*.read_api'];
    const { key: rootKey } = await stage.fleet.ok('rootKeys.createRootKey', { name: 'Kept', permissions });
    const dashboard = await stage.signedIn(`#/keys/${keyId}?tab=access`, rootKey);
    const { page } = dashboard;
    const form = page.getByRole('form', { name: 'Change the key' });
    await form.getByLabel('Name').fill('After');
    await page.context().clearCookies();
    await form.getByRole('button', { name: 'Save' }).click();
    const again = page.getByRole('dialog', { name: 'Sign in again' });
    await again.getByText('The session is over').waitFor();
    await page.keyboard.press('Escape');
    await again.getByLabel('Root key').fill(rootKey);
    await again.getByRole('button', { name: 'Sign in' }).click();
    await again.waitFor({ state: 'detached' });
    expect(await form.getByLabel('Name').inputValue()).toBe('After');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    expect((await stage.fleet.ok('keys.getKey', { keyId })).name).toBe('After');
    await dashboard.close(rootKey);
  });
});
