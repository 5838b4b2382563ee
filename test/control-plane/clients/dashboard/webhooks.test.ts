import { expect, test } from 'vitest';
import { Receiver } from '../../subjects/webhooks/receiver.ts';
import { onStage } from './stage.ts';

onStage('webhooks', (stage) => {
  test('creates, tests, rotates and deletes endpoints', async () => {
    const receiver = await Receiver.start();
    const dashboard = await stage.signedIn('#/webhooks');
    const { page } = dashboard;
    await page.getByRole('link', { name: 'Add the first endpoint' }).click();
    await page.getByLabel('URL').fill(receiver.url);
    await page.getByRole('textbox', { name: 'Name' }).fill('Billing');
    await page.getByLabel('All events').uncheck();
    await page.getByRole('button', { name: 'Create endpoint' }).click();
    await page.getByText('events: choose at least one').waitFor();
    await page.getByRole('checkbox', { name: 'key.disabled', exact: true }).check();
    await page.getByRole('button', { name: 'Create endpoint' }).click();
    receiver.secret = await page.getByLabel('Secret', { exact: true }).inputValue();
    expect(receiver.secret).toMatch(/^whsec_/);
    await page.getByRole('button', { name: 'I have stored it' }).click();
    await page.getByRole('link', { name: 'Billing' }).click();
    await page.getByRole('heading', { name: 'Billing' }).waitFor();
    await page.getByRole('button', { name: 'Send a test event' }).click();
    await page.getByText('Delivered: it answered 204').waitFor();
    receiver.answers = [{ status: 500, body: 'no room' }, { status: 204 }];
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'hooked', name: 'Hooked' });
    await stage.fleet.ok('keys.updateKey', { keyId, enabled: false });
    const deliveries = page.getByRole('table', { name: 'Deliveries' });
    await stage.fleet.until(async () => {
      await page.getByRole('button', { name: 'Reload' }).click();
      await dashboard.loaded();
      return (await deliveries.getByText('delivered').count()) === 1;
    });
    // One row for the event, with both attempts inside and what the key is called.
    const [row = [], ...others] = await dashboard.rows('Deliveries');
    expect(others).toEqual([]);
    expect(row.slice(0, 4)).toEqual(['key.disabled', 'Hooked', 'delivered 204', '2']);
    await deliveries.getByRole('button', { name: 'Details' }).click();
    const attempts = deliveries.getByRole('list', { name: 'Attempts' }).getByRole('listitem');
    expect(await attempts.allInnerTexts()).toEqual([
      expect.stringMatching(/^delivered 204, \d+ ms, /),
      expect.stringMatching(/^failed 500, \d+ ms, .*retried .*no room$/s),
    ]);
    const [sent, table] = await Promise.all([
      deliveries.locator('pre').last().boundingBox(),
      deliveries.boundingBox(),
    ]);
    expect(sent?.width).toBeGreaterThan(0.9 * (table?.width ?? 0));
    expect(await deliveries.getByRole('link', { name: 'Hooked' }).getAttribute('href')).toBe(
      `#/keys/${keyId}`,
    );
    await deliveries.getByRole('button', { name: 'Send now: key.disabled' }).first().click();
    await deliveries.getByText('Delivered', { exact: true }).waitFor();
    expect(receiver.typesOf(keyId)).toHaveLength(1);
    expect(receiver.received).toHaveLength(4);
    expect(receiver.unsigned).toBe(0);
    await dashboard.choose('Replace signing secret');
    expect(await page.getByLabel('Secret', { exact: true }).inputValue()).not.toBe(receiver.secret);
    await page.getByRole('button', { name: 'I have stored it' }).click();
    await page.getByText('Signed with the former secret, too').waitFor();
    await page.getByRole('button', { name: 'Disable this endpoint' }).click();
    await page.getByRole('button', { name: 'Enable this endpoint' }).waitFor();
    await dashboard.choose('Delete endpoint…');
    await page.getByRole('button', { name: 'Delete endpoint' }).click();
    await page.getByText('No endpoints yet').waitFor();
    await dashboard.close();
    await receiver.stop();
  });

  test('says since when an endpoint fails', async () => {
    const { endpointId } = await stage.fleet.ok('webhooks.createEndpoint', {
      url: 'http://127.0.0.1:1/hook',
    });
    for (let i = 0; i < 6; i++) await stage.fleet.ok('keys.createKey', { apiId: 'hooked' });
    const dashboard = await stage.signedIn('#/webhooks');
    await stage.fleet.until(async () =>
      (await dashboard.rows('Endpoints')).some(
        ([name, events, state]) => name === '127.0.0.1:1' && events === 'all' && state === 'failing',
      ),
    );
    await dashboard.page.getByRole('link', { name: '127.0.0.1:1' }).click();
    await dashboard.page.getByText('in a row; the next is').waitFor();
    await dashboard.page.getByText('the oldest was queued').waitFor();
    await dashboard.close();
    await stage.fleet.ok('webhooks.deleteEndpoint', { endpointId });
  });
});
