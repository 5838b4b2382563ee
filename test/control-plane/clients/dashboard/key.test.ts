import { expect, test } from 'vitest';
import { FaultProxy } from '../../../../deploy/dev/fault-proxy.ts';
import { Dashboard } from './chromium.ts';
import { onStage } from './stage.ts';

onStage('the page of a key', (stage) => {
  test('shows, changes and deletes a key on its page', async () => {
    const { key, keyId } = await stage.fleet.ok('keys.createKey', {
      apiId: 'detail',
      name: 'Bob',
      prefix: 'b',
    });
    expect(await stage.fleet.verdict(key)).toBe('VALID');
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await dashboard.openTab('Settings');
    const form = page.getByRole('form', { name: 'Change the key' });
    const keyNow = () => stage.fleet.ok('keys.getKey', { keyId });

    await form.getByLabel('Meta').fill('{"plan": ');
    await form.getByRole('button', { name: 'Save' }).click();
    await form.getByRole('alert').getByText(/JSON/).waitFor();
    expect(await form.getByLabel('Meta').inputValue()).toBe('{"plan": ');
    await form.getByLabel('Meta').fill('{"plan": "free"}');
    await form.getByLabel('Customer').fill('someone');
    await form.getByLabel('Expires').fill('2999-12-31T10:00:00');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    await dashboard.openTab('Overview');
    await page.locator('dd', { hasText: '2999' }).waitFor();
    await dashboard.openTab('Settings');
    expect(await keyNow()).toMatchObject({ name: 'Bob', externalId: 'someone', meta: { plan: 'free' } });
    expect(new Date((await keyNow()).expires).getFullYear()).toBe(2999);

    await form.getByRole('button', { name: 'Save' }).click();
    await form.getByText('Nothing differs.').waitFor();
    await form.getByLabel('Expires').fill('');
    await form.getByLabel('Customer').fill('');
    await form.getByRole('button', { name: 'Save' }).click();
    await stage.fleet.until(async () => !('expires' in (await keyNow())));
    expect(await keyNow()).not.toHaveProperty('externalId');

    await dashboard.openTab('Overview');
    await stage.fleet.until(async () => {
      await page.reload();
      await page.getByRole('heading', { name: 'Bob' }).waitFor();
      await dashboard.loaded();
      return page.getByRole('img', { name: /Verifications by the hour: 8 bars, the highest 1$/ }).isVisible();
    });
    await page.getByRole('button', { name: '7 d' }).click();
    await page.getByRole('img', { name: /Verifications by the day/ }).waitFor();

    await dashboard.choose('Delete key');
    const dialog = page.getByRole('dialog', { name: 'Delete this key?' });
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    expect(await stage.fleet.verdict(key)).toBe('VALID');
    await dashboard.choose('Delete key');
    await dialog.getByRole('button', { name: 'Delete for good' }).click();
    await page.getByRole('heading', { name: 'detail' }).waitFor();
    expect(await stage.fleet.verdict(key)).toBe('NOT_FOUND');
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByRole('heading', { name: 'No such key' }).waitFor();
    expect(await page.getByRole('button', { name: /Delete|Disable|Try again/ }).count()).toBe(0);
    await page.getByRole('link', { name: 'audit log' }).click();
    await page.getByRole('cell', { name: 'deleted key' }).waitFor();
    await dashboard.close(key);
  });

  test('rotates a key, showing the new secret once', async () => {
    const { keyId, key } = await stage.fleet.ok('keys.createKey', {
      apiId: 'detail',
      name: 'Di',
      remaining: 5,
    });
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await page.getByRole('button', { name: 'Rotate key…' }).click();
    const asking = page.getByRole('dialog', { name: 'Rotate this key?' });
    await asking.getByLabel('The old secret works').selectOption('for a day');
    await asking.getByRole('button', { name: 'Rotate' }).click();
    const shown = page.getByRole('dialog', { name: 'The new key' });
    await shown.getByText('The old key is accepted until').waitFor();
    const secret = await shown.getByLabel('Secret').inputValue();
    expect([await stage.fleet.verdict(secret), await stage.fleet.verdict(key)]).toEqual(['VALID', 'VALID']);
    await shown.getByRole('button', { name: 'I have stored it' }).click();
    await page.locator(`a[href="#/keys/${keyId}"]`).click();
    await page.getByText('Replaced by').waitFor();
    expect(await page.getByRole('button', { name: 'Rotate key…' }).count()).toBe(0);
    const { rerolledTo } = await stage.fleet.ok('keys.getKey', { keyId });
    await page.locator(`a[href="#/keys/${rerolledTo}"]`).first().click();
    await page.getByRole('button', { name: 'Rotate key…' }).click();
    // Whoever does not choose cuts nobody off.
    expect(await asking.getByLabel('The old secret works').inputValue()).toBe(String(86_400_000));
    await asking.getByLabel('The old secret works').selectOption('until now');
    await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click();
    await shown.getByText('The old key is refused from now on.').waitFor();
    expect(await stage.fleet.verdict(secret)).toBe('EXPIRED');
    await shown.getByRole('button', { name: 'I have stored it' }).click();
    await dashboard.close();
  });

  test('does not call a disabled key accepted', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', {
      apiId: 'detail',
      name: 'Off',
      enabled: false,
    });
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await page.getByRole('button', { name: 'Rotate key…' }).click();
    await page.getByText('This key is disabled; the new one is disabled, too.').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click();
    const shown = page.getByRole('dialog', { name: 'The new key' });
    await shown.getByText('The old key is refused now, as the new one is, and ends at the latest').waitFor();
    expect(await stage.fleet.verdict(await shown.getByLabel('Secret').inputValue())).toBe('DISABLED');
    await shown.getByRole('button', { name: 'I have stored it' }).click();
    await dashboard.close();
  });

  test('draws, sets and refills the credits of a key', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'detail', name: 'Cy', remaining: 40 });
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    const form = page.getByRole('form', { name: 'Set the credits' });
    const keyNow = () => stage.fleet.ok('keys.getKey', { keyId });
    await page.getByRole('img', { name: 'Credits: 40 free, 0 at verifiers' }).waitFor();
    await dashboard.openTab('Settings');

    await form.getByLabel('Credits empty').fill('many');
    await form.getByRole('button', { name: 'Set' }).click();
    await form.getByRole('alert').getByText('must be a whole number').waitFor();
    await form.getByLabel('Credits empty').fill('70');
    await form.getByLabel('Refill').selectOption('monthly');
    await form.getByLabel('Amount').fill('100');
    await form.getByLabel('Date').fill('15');
    await form.getByRole('button', { name: 'Set' }).click();
    await dashboard.openTab('Overview');
    await page.getByRole('img', { name: 'Credits: 70 free, 0 at verifiers' }).waitFor();
    await page.getByText('Refilled to 100 monthly on day 15 at 00:00 UTC').waitFor();
    expect(await keyNow()).toMatchObject({
      remaining: 70,
      refill: { interval: 'monthly', amount: 100, refillDay: 15 },
    });
    await dashboard.openTab('Settings');
    await page.getByLabel('Credits to add').fill('10000');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    const receipt = page.getByLabel('How far the change has come');
    await receipt.getByText(/Added 10,000 credits.*Complete/).waitFor();
    expect(await keyNow()).toMatchObject({ remaining: 10_070 });
    await receipt.getByRole('button', { name: 'Undo' }).click();
    await receipt.getByText(/Undone: Added 10,000 credits.*Complete/).waitFor();
    expect(await keyNow()).toMatchObject({ remaining: 70 });
    await form.getByRole('button', { name: 'Set' }).click();
    await form.getByText('Nothing differs.').waitFor();
    await form.getByLabel('Credits empty').fill('');
    await form.getByRole('button', { name: 'Set' }).click();
    await dashboard.openTab('Overview');
    await page.getByRole('heading', { name: 'Credits' }).waitFor({ state: 'hidden' });
    expect(await keyNow()).not.toHaveProperty('remaining');
    await dashboard.close();
  });

  test('sets and removes the rate limits of a key', async () => {
    await stage.fleet.ok('apis.createApi', { apiId: 'limited', name: 'limited' });
    const dashboard = await stage.signedIn('#/apis/limited');
    const { page } = dashboard;
    await page.getByRole('button', { name: 'New key' }).click();
    const made = page.getByRole('form', { name: 'New key' });
    await made.getByLabel('Name').fill('Lim');
    const [calls, length, unit, exact] = [
      ...['Calls', 'Length', 'Unit', 'exact'].map((label) => made.getByLabel(label, { exact: true })),
    ] as const;
    await calls?.fill('many');
    await made.getByText('More').click();
    await made.getByLabel('Meta').fill('{');
    await made.getByRole('button', { name: 'Create key' }).click();
    // All that is wrong, each at its field, which gets the focus.
    await made.getByRole('alert').getByText('must be a number of calls and a time').waitFor();
    await made.getByRole('alert').getByText(/JSON/).waitFor();
    await calls?.fill('1');
    await length?.fill('30');
    await unit?.selectOption('days');
    await exact?.check();
    await made.getByLabel('Meta').fill('');
    await made.getByLabel('Prefix').fill('not one');
    await made.getByRole('button', { name: 'Create key' }).click();
    await made
      .getByRole('alert')
      .getByText(/format/)
      .waitFor();
    await made.getByLabel('Prefix').fill('');
    const add = async (list: string, name: string, limit: string, ...time: string[]) => {
      await made.getByRole('group', { name: list }).getByRole('button', { name: 'Add limit' }).click();
      await made.getByRole('group', { name: 'Limit', exact: true }).getByLabel('Name').fill(name);
      const row = made.getByRole('group', { name: `Limit ${name}` });
      await row.getByLabel('Number').fill(limit);
      if (time[0]) await row.getByLabel('Length').fill(time[0]);
      if (time[1]) await row.getByLabel('Unit').selectOption(time[1]);
    };
    await add('Further rate limits', 'tokens', '5000', '1500', 'ms');
    await add('Further rate limits', 'uploads', '10', '1', 'd');
    await add('Limits at the same time', 'jobs', 'a few');
    await made.getByRole('button', { name: 'Create key' }).click();
    await made.getByRole('alert').getByText('must be integer').waitFor();
    await made.getByRole('group', { name: 'Limit jobs' }).getByLabel('Number').fill('3');
    await add('Limits at the same time', 'exports', '1000');
    await made.getByRole('button', { name: 'Create key' }).click();
    const dialog = page.getByRole('dialog', { name: 'The new key' });
    const key = await dialog.getByLabel('Secret').inputValue();
    await dialog.getByRole('button', { name: 'I have stored it' }).click();
    expect([await stage.fleet.verdict(key), await stage.fleet.verdict(key)]).toEqual([
      'VALID',
      'RATE_LIMITED',
    ]);

    const [{ id: keyId }] = (await stage.fleet.ok('apis.listKeys', { apiId: 'limited' })).keys;
    const keyNow = () => stage.fleet.ok('keys.getKey', { keyId });
    expect(await keyNow()).toMatchObject({
      ratelimit: { limit: 1, duration: 30 * 86_400_000, async: false },
      ratelimits: [
        { name: 'tokens', limit: 5000, duration: 1500, async: true },
        { name: 'uploads', limit: 10, duration: 86_400_000, async: true },
      ],
      concurrency: [
        { name: 'jobs', limit: 3 },
        { name: 'exports', limit: 1000 },
      ],
    });
    await dashboard.go(`#/keys/${keyId}`);
    for (const told of [
      '1 in 30 days, exact',
      '5,000 in 1,500 milliseconds',
      '10 a day',
      '3 at the same time',
    ])
      await page.locator('dd').getByText(told, { exact: true }).waitFor();
    await dashboard.openTab('Settings');
    const form = page.getByRole('form', { name: 'Change the key' });
    expect(await form.locator('[name=ratelimit]').inputValue()).toBe('1/30d exact');
    await form.getByRole('button', { name: 'Save' }).click();
    await form.getByText('Nothing differs.').waitFor();
    await form.getByLabel('Calls').fill('3');
    await form.getByRole('group', { name: 'Rate limit', exact: true }).getByLabel('exact').uncheck();
    for (const name of ['tokens', 'uploads', 'exports'])
      await form.getByRole('button', { name: `Remove limit ${name}` }).click();
    await form.getByRole('group', { name: 'Limit jobs' }).getByLabel('Number').fill('4');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    expect(await keyNow()).toMatchObject({
      ratelimit: { limit: 3, async: true },
      concurrency: [{ limit: 4 }],
    });
    expect(await keyNow()).not.toHaveProperty('ratelimits');
    expect(await stage.fleet.verdict(key)).toBe('VALID');
    await dashboard.close(key);
  });

  test('an incomplete delete says when it is over', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'hasty' });
    const { address } = await stage.fleet.addControlPlane({ FENCE_WAIT_MS: '0' });
    const dashboard = await Dashboard.open(stage.browser, address);
    const { page } = dashboard;
    await dashboard.signIn();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await dashboard.go(`#/keys/${keyId}`);
    await dashboard.choose('Delete key');
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page
      .getByRole('dialog')
      .getByText(/may accept it until .*:.*, and no longer/)
      .waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('heading', { name: 'hasty' }).waitFor();
    await dashboard.close();
  });

  test('follows a pending change after a reload', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'detail', name: 'Dee' });
    const { propagation } = await stage.fleet.ok('keys.updateKey', { keyId, enabled: false });
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const pending = { ...propagation, state: 'pending', verifiers: 2, laggards: ['1'] };
    await page.route('**/keys.getPropagation?*', (route) =>
      route.fulfill({ json: { propagation: pending } }),
    );
    await dashboard.go(`#/keys/${keyId}`);
    const panel = page.getByLabel('How far the last change has come');
    await panel.getByText('is not complete yet. Waiting for 1 of 2 verifiers.').waitFor();
    await page.unroute('**/keys.getPropagation?*');
    await panel.getByText('is complete: no verifier answers from the earlier state.').waitFor();
    await dashboard.go('#/');
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByRole('tab', { name: 'History' }).waitFor();
    expect(await panel.count()).toBe(0);
    await dashboard.close();
  });

  test('shows who has applied a disable and who not', async () => {
    const proxy = new FaultProxy(() => stage.redis.port);
    const port = await proxy.listen();
    const env = { STATUS_PERIOD_MS: '100', REDIS_URL: `redis://127.0.0.1:${port}` };
    const cutOff = await stage.fleet.addVerifier(env);
    try {
      const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'fenced', name: 'Mallory' });
      for (const at of [0, 1]) expect(await stage.fleet.verdict(key, { at })).toBe('VALID');
      const following = async () =>
        (await stage.fleet.ok('fleet.listVerifiers')).verifiers.filter(
          (verifier: { apis: { apiId: string }[] }) => verifier.apis.some(({ apiId }) => apiId === 'fenced'),
        ).length === 2;
      await stage.fleet.until(following);
      const dashboard = await stage.signedIn(`#/keys/${keyId}`);
      const { page } = dashboard;
      proxy.set('blackhole');
      await page.getByRole('button', { name: 'Disable Mallory' }).click();
      const panel = page.getByLabel('How far the change has come');
      await panel.getByText('Disabled Mallory. Waiting for 1 of 2 verifiers.').waitFor();
      await panel.getByText(/applied within [\d.]+ m?s/).waitFor();
      await panel.getByText('not yet').waitFor();
      await panel.getByRole('progressbar').waitFor();
      expect(await stage.fleet.verdict(key, { at: 0 })).toBe('DISABLED');
      await panel.getByText(/Complete after [\d.]+ m?s, by fence: 1 of 2 did not answer/).waitFor();
      await panel.getByText('shut out: its lease has ended').waitFor();
      expect((await stage.fleet.verifyOnce(key, { at: 1 })).status).toBe(503);
      await dashboard.close(key);
    } finally {
      proxy.set('none');
      await cutOff.stop();
      stage.fleet.verifiers.splice(1, 1);
      proxy.close();
    }
  });
});
