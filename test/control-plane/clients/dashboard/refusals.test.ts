import { expect, test } from 'vitest';
import { onStage } from './stage.ts';

onStage('why a request was refused', (stage) => {
  /** Makes a key, and asks for it what is refused. */
  const refused = async (fields: object, question: Readonly<Record<string, unknown>>) => {
    const { fleet } = stage;
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'refused', ...fields });
    const { requestId, code } = (await fleet.verify(key, question)).body;
    await fleet.until(async () => (await fleet.ok('keys.listRefusals', { keyId })).refusals.length > 0);
    return { key, keyId, requestId, code };
  };
  /** Looks in the finder for the key of a request. */
  const find = async (requestId: string) => {
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    await page.keyboard.press('Control+K');
    await page.getByLabel('A secret, key, request id, customer, API or section').fill(requestId);
    await page.keyboard.press('Enter');
    return { dashboard, page };
  };

  test('a refusal is found by the id of its request', async () => {
    const { fleet } = stage;
    const made = { name: 'Traveller', allowedIps: ['192.0.2.0/24'] };
    const { key, keyId, requestId } = await refused(made, { clientIp: '198.51.100.7' });

    const { dashboard, page } = await find(requestId);
    await page.getByRole('heading', { name: 'Traveller' }).waitFor();
    await page.getByRole('cell', { name: 'address not allowed' }).waitFor();
    const [[why, , , from, request] = []] = await dashboard.rows('Last refusals');
    expect([from, request]).toEqual(['198.51.100.7', requestId]);
    expect(why).toContain('198.51.100.7');

    // What was refused then is told from then, and what would be now is another question.
    const card = page.getByRole('region', { name: 'Refusal' });
    await card.getByText(`Refused: ${why}`).waitFor();
    await card.getByText(requestId).waitFor();
    expect(await page.getByText('VALID').count()).toBe(0);
    await card.getByRole('button', { name: 'Would it pass now?' }).click();
    await page.getByRole('cell', { name: '198.51.100.7 is not in 192.0.2.0/24' }).waitFor();
    await page.getByRole('button', { name: 'Details' }).click();
    await card.waitFor({ state: 'detached' });

    await dashboard.openTab('Settings');
    const form = page.getByRole('form', { name: 'Change the key' });
    expect(await form.getByLabel('Allowed addresses').inputValue()).toBe('192.0.2.0/24');
    await form.getByLabel('Allowed addresses').fill('198.51.100.7/24');
    await form.getByRole('button', { name: 'Save' }).click();
    await form.getByRole('alert').getByText('write 198.51.100.0/24').waitFor();
    await form.getByLabel('Allowed addresses').fill('198.51.100.0/24 2001:db8::/32');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    expect((await fleet.ok('keys.getKey', { keyId })).allowedIps).toEqual([
      '198.51.100.0/24',
      '2001:db8::/32',
    ]);
    expect(await fleet.verdict(key, { clientIp: '198.51.100.7' })).toBe('VALID');
    await dashboard.close(key);
  });

  test('a lacking permission is told, and given', async () => {
    const { fleet } = stage;
    await fleet.ok('permissions.createRole', { name: 'helper', permissions: [] });
    const made = { name: 'Lacking', permissions: ['files.read'], roles: ['helper'] };
    const asked = { authorization: { permissions: 'admin.everything' } };
    const { key, keyId, requestId, code } = await refused(made, asked);
    expect(code).toBe('INSUFFICIENT_PERMISSIONS');
    const dashboard = await stage.signedIn(`#/keys/${keyId}?request=${requestId}`);
    const { page } = dashboard;
    const card = page.getByRole('region', { name: 'Refusal' });
    await card.getByText(/Refused: .*admin\.everything/).waitFor();
    await card.getByText('The key has files.read, and the role helper.').waitFor();
    await card.getByRole('button', { name: 'Would it pass now?' }).click();
    await card.getByText('INSUFFICIENT_PERMISSIONS').waitFor();
    await card.getByRole('button', { name: 'Give admin.everything' }).click();
    await page.getByText(/Gave admin\.everything\. Complete/).waitFor();
    expect(await fleet.verdict(key, asked)).toBe('VALID');
    await card.getByRole('button', { name: 'Would it pass now?' }).click();
    await card.getByText('VALID', { exact: true }).waitFor();
    await dashboard.close(key);
  });

  test('a refused web page is explained, and then allowed', async () => {
    const { fleet } = stage;
    const made = { name: 'Page', allowedOrigins: ['https://app.example.com'] };
    const { key, requestId } = await refused(made, { origin: 'https://evil.example/x' });
    const { dashboard, page } = await find(requestId);
    await page.getByRole('cell', { name: 'origin not allowed' }).waitFor();
    const isNot = 'https://evil.example is not one of https://app.example.com';
    await page.getByRole('button', { name: 'Would it pass now?' }).click();
    await page.getByRole('status').getByText(isNot).waitFor();

    await dashboard.openTab('Settings');
    const form = page.getByRole('form', { name: 'Change the key' });
    const field = form.getByLabel('Allowed origins');
    expect(await field.inputValue()).toBe('https://app.example.com');
    await field.fill('https://app.example.com/');
    await form.getByRole('button', { name: 'Save' }).click();
    await form.getByRole('alert').getByText('must be an origin such as').waitFor();
    await field.fill('https://app.example.com https://*.evil.example');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    expect(await fleet.verdict(key, { origin: 'https://a.evil.example' })).toBe('VALID');
    await dashboard.close(key);
  });

  test('come while one looks', async () => {
    await stage.fleet.addVerifier({ USAGE_PERIOD_MS: '3600000' });
    const at = stage.fleet.verifiers.length - 1;
    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'live', enabled: false });
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await page.getByText('Not refused in the last seven days.').waitFor();
    expect(await stage.fleet.verdict(key, { at })).toBe('DISABLED');
    await page.getByRole('table', { name: 'Last refusals' }).getByText('disabled').first().waitFor();
    await page.getByRole('img', { name: /Verifications by the hour: 8 bars, the highest 1$/ }).waitFor();
    await dashboard.close(key);
  });
});
