import { createHash, randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { auditStream, recordKey } from '../../../../shared/redis/redis-keys.ts';
import { onStage } from './stage.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

/** With which sentences of the audit log begin. */
const VERBS =
  'accepted changed created deleted disabled ended gave imported moved replaced reported revoked rotated sent set tested took'.split(
    ' ',
  );

onStage('what the dashboard says is so', (stage) => {
  test('shows the creation of a key after many events', async () => {
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'truth', name: 'old friend' });
    const other = JSON.stringify({
      ...{ time: 1, requestId: 'r', operation: 'keys.updateKey', outcome: 'OK', by: { address: 'a' } },
      on: { apiId: 'other' },
    });
    const pipeline = stage.fleet.client.pipeline();
    for (let i = 0; i < 1500; i++) pipeline.xadd(auditStream('done'), '*', 'e', other, 'k', '');
    await pipeline.exec();
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    await dashboard.openTab('History');
    await dashboard.page.getByRole('cell', { name: 'created key old friend' }).waitFor();
    expect(await dashboard.rows('Events')).toHaveLength(1);
    await dashboard.close();
  });

  test('says that a disable waits for tokens of its API', async () => {
    await stage.fleet.ok('apis.createApi', { apiId: 'tokens', name: 'T' });
    const { keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'tokens' });
    const dashboard = await stage.signedIn('#/apis/tokens');
    const { page } = dashboard;
    await dashboard.openTab('Settings');
    const settings = page.getByRole('form', { name: 'Settings of the API' });
    await settings.getByLabel('Tokens for the API behind').selectOption('yes');
    await settings.getByRole('button', { name: 'Save' }).click();
    await settings.getByText('Saved.').waitFor();
    expect(await stage.fleet.ok('apis.getApi', { apiId: 'tokens' })).toMatchObject({ tokens: true });
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByRole('button', { name: 'Disable' }).click();
    await page.getByText('Waiting until tokens from before have ended.').first().waitFor();
    await dashboard.close();
  });

  test('says who declares a thing, and since when it differs', async () => {
    const managedBy = 'files';
    await stage.fleet.ok('apis.createApi', { apiId: 'declared', name: 'D', managedBy });
    const key = { apiId: 'declared', managedBy: `${randomUUID()}/${randomUUID()}` };
    const { keyId } = await stage.fleet.ok('keys.createKey', key);
    await stage.fleet.ok('identities.createIdentity', { externalId: 'declared', managedBy });
    const { roleId } = await stage.fleet.ok('permissions.createRole', { name: 'declared', managedBy });
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await page.getByText(`Managed by a Kubernetes object, ${key.managedBy.slice(37)}`).waitFor();
    const shown = page.getByText('Managed by files');
    const change = page.getByText('Changed by hand since');
    for (const [hash, drift] of [
      ['#/apis/declared', () => stage.fleet.ok('apis.updateApi', { apiId: 'declared', name: 'E' })],
      [
        '#/identities/declared',
        () => stage.fleet.ok('identities.updateIdentity', { externalId: 'declared', meta: { a: 1 } }),
      ],
      ['#/roles', () => stage.fleet.ok('permissions.updateRole', { roleId, permissions: ['a'] })],
    ] as const) {
      await dashboard.go(hash);
      await shown.waitFor();
      expect(await change.count(), hash).toBe(0);
      await drift();
      await page.reload();
      await change.waitFor();
    }
    await dashboard.close();
  });

  test('lists all keys of an identity', async () => {
    const externalId = 'Big customer';
    const keys = Array.from({ length: 120 }, (_, i) => ({
      sha256: sha256(`big ${i}`),
      externalId,
      name: `n${i}`,
    }));
    await stage.fleet.ok('keys.importKeys', { apiId: 'truth-0', keys });
    for (let i = 1; i <= 102; i++) await stage.fleet.ok('apis.createApi', { apiId: `truth-${i}`, name: 'T' });
    const last = await stage.fleet.ok('keys.createKey', { apiId: 'truth-99', externalId, name: 'the last' });
    const dashboard = await stage.signedIn('#/identities/Big%20customer?tab=keys');
    const { page } = dashboard;
    const seen: string[] = [];
    for (let pages = 1; ; pages++) {
      seen.push(...(await dashboard.rows('Keys')).map(([name = '']) => name));
      const next = page.getByRole('button', { name: 'Next' });
      if ((await next.getAttribute('aria-disabled')) === 'true') break;
      await next.click();
      await page.getByText(`${pages * 50 + 1}–`).waitFor();
      await dashboard.loaded();
    }
    expect(seen).toHaveLength(121);
    expect(new Set(seen).size).toBe(121);
    await page.getByRole('link', { name: 'the last' }).click();
    await page.getByRole('heading', { name: 'the last' }).waitFor();
    await page.goBack();
    await page.getByText('101–121').waitFor();
    await page.getByRole('link', { name: 'the last' }).waitFor();
    await dashboard.close(last.key);
  });

  test('shows the state in which verifiers see a key', async () => {
    const externalId = 'late payer';
    await stage.fleet.ok('identities.createIdentity', { externalId, enabled: false });
    const { key, keyId } = await stage.fleet.ok('keys.createKey', {
      apiId: 'states',
      externalId,
      name: 'Sue',
    });
    const old = await stage.fleet.ok('keys.createKey', { apiId: 'states', name: 'Rob' });
    await stage.fleet.ok('keys.rerollKey', { keyId: old.keyId, expiration: 0 });
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');
    const dashboard = await stage.signedIn(`#/keys/${keyId}`);
    const { page } = dashboard;
    await page.getByText('stopped with late payer').waitFor();
    await dashboard.go('#/apis/states');
    const states = Object.fromEntries(
      (await dashboard.rows('Keys')).map((row) => [row[1]?.trim(), [row[2]?.trim(), row[4]?.trim()]]),
    );
    expect(Object.values(states)).toContainEqual(['stopped with late payer', '']);
    expect(Object.values(states)).toContainEqual(['replaced', 'at its rotation']);
    await dashboard.go(`#/keys/${old.keyId}`);
    await page.getByText('at its rotation').waitFor();
    expect(await page.getByText('1970').count()).toBe(0);
    await dashboard.go('#/identities/late%20payer?tab=keys');
    await page.getByText('stopped with late payer').waitFor();
    await dashboard.close(key);
  });

  test('says which keys no verifier looks up', async () => {
    await stage.fleet.ok('keys.importKeys', {
      apiId: 'imported',
      keys: [{ sha256: sha256('foreign-1'), name: 'foreign' }],
    });
    const dashboard = await stage.signedIn('#/apis/imported');
    const { page } = dashboard;
    await page.getByText('not accepted anywhere').waitFor();
    await page.getByRole('link', { name: 'foreign' }).click();
    // The page looks at the fleet once, and a verifier of another test may not have reported its settings yet.
    await expect
      .poll(async () => {
        await page.reload();
        await dashboard.loaded();
        return page.getByText('not accepted anywhere').count();
      })
      .toBe(1);
    await dashboard.go('#/');
    await page
      .getByLabel('Attention')
      .getByText(
        /the API imported has keys of a foreign format, which no verifier accepts: set FOREIGN_KEYS=true/,
      )
      .waitFor();
    const verifier = await stage.fleet.addVerifier({ FOREIGN_KEYS: 'true', STATUS_PERIOD_MS: '100' });
    try {
      await expect
        .poll(async () => (await stage.fleet.ok('fleet.listVerifiers')).verifiers.length)
        .toBeGreaterThan(1);
      await dashboard.go('#/apis/imported');
      await page.getByRole('table', { name: 'Keys' }).getByText('enabled', { exact: true }).waitFor();
    } finally {
      await verifier.stop();
      stage.fleet.verifiers.pop();
    }
    await dashboard.close();
  });

  test('searches the audit log by changing operation', async () => {
    await stage.fleet.ok('identities.createIdentity', { externalId: 'audited one' });
    await stage.fleet.ok('identities.updateIdentity', { externalId: 'audited one', enabled: false });
    const { roleId } = await stage.fleet.ok('permissions.createRole', { name: 'audited-role' });
    await stage.fleet.ok('permissions.createPermission', { name: 'audited.permission' });
    const dashboard = await stage.signedIn('#/audit');
    const { page } = dashboard;
    const subjects = async (operation: string) => {
      await page.getByLabel('Operation').selectOption(operation);
      await dashboard.loaded();
      return (await dashboard.rows('Events')).map((row) => row[0]?.trim().replaceAll(/\s+/g, ' '));
    };
    expect((await subjects('identities.createIdentity'))[0]).toMatch(
      /^bootstrap created customer audited one$/,
    );
    expect((await subjects('permissions.createRole'))[0]).toMatch(/created role audited-role$/);
    expect((await subjects('permissions.createPermission'))[0]).toMatch(
      /created permission audited.permission$/,
    );
    const updates = () => subjects('identities.updateIdentity');
    await expect.poll(async () => (await updates())[0]).toBe('bootstrap disabled customer audited one');
    await stage.fleet.ok('identities.updateIdentity', {
      ...{ externalId: 'audited one', roles: ['audited-role'] },
    });
    await page.reload();
    await expect
      .poll(async () => (await dashboard.rows('Events'))[0]?.[0]?.trim().replaceAll(/\s+/g, ' '))
      .toBe('bootstrap moved audited one to audited-role');
    // Every operation is said with a verb that there is.
    const verbs = new Set(
      (await page.getByLabel('Operation').locator('option').allInnerTexts()).flatMap((text) => {
        const [, verb] = / – (\w+)/.exec(text) ?? [];
        return verb === undefined ? [] : [verb];
      }),
    );
    expect([...verbs].filter((verb) => !VERBS.includes(verb))).toEqual([]);
    await page.getByRole('link', { name: 'audited one' }).first().click();
    await page.getByRole('heading', { name: 'audited one' }).waitFor();
    await stage.fleet.ok('permissions.deleteRole', { roleId });
    await dashboard.close();
  });

  test('is never calm without having looked', async () => {
    const dashboard = await stage.signedIn('#/apis');
    const { page } = dashboard;
    const inbox = page.getByRole('region', { name: 'Attention' });
    let answer: () => void = () => undefined;
    const isAsked = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const down = { code: 'SERVICE_UNAVAILABLE', message: 'Redis does not answer', requestId: 'r1' };
    const checks = /v1\/(apis\.listApis|webhooks\.listEndpoints|fleet\.listFindings|apis\.getVerifications)/;
    await page.route(checks, async (route) => {
      await isAsked;
      await route.fulfill({ status: 503, json: { error: down } });
    });
    await page.evaluate("location.hash = '#/'");
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    const calm = inbox.getByText('All quiet');
    expect(await calm.count()).toBe(0);
    answer();
    for (const what of ['Keys', 'Webhooks', 'Redis', 'Refusals'])
      await inbox.getByText(`${what} could not be checked: Redis does not answer.`).waitFor();
    expect(await calm.count()).toBe(0);
    await page.unroute(checks);
    // One check is late.
    await page.route('**/v1/webhooks.listEndpoints', () => undefined);
    await dashboard.page.reload();
    await inbox.getByRole('heading', { name: 'Checking…' }).waitFor();
    expect(await calm.count()).toBe(0);
    await dashboard.close();
  });

  test('says so as long as a connection is lost', async () => {
    const dashboard = await stage.signedIn('#/identities');
    const { page } = dashboard;
    // An answer that is under way would say that the connection is back.
    await page.waitForLoadState('networkidle');
    await page.route('**/v1/**', (route) => route.abort());
    await page.route('**/icon.svg', (route) => route.abort());
    await page.getByRole('button', { name: 'New customer' }).click();
    await page.getByLabel('External id such as').fill('never made');
    await page.getByRole('button', { name: 'Create customer' }).click();
    const lost = page.getByText('Connection to the control plane lost.');
    await lost.waitFor();
    // Nothing on this page loads by itself, so only the check of the connection can end this.
    await page.unroute('**/v1/**');
    await page.unroute('**/icon.svg');
    await lost.waitFor({ state: 'detached' });
    await dashboard.close();
  });

  test('finds and stops the key of a pasted secret', async () => {
    const externalId = 'Leaky Ltd';
    const { key, keyId } = await stage.fleet.ok('keys.createKey', {
      apiId: 'leaks',
      externalId,
      name: 'Leaked',
    });
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    await page.evaluate(`navigator.clipboard.writeText(${JSON.stringify(key)})`);
    await page.keyboard.press('Control+V');
    await page.getByRole('dialog', { name: 'Find' }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Leaked' }).waitFor();
    await page.getByRole('link', { name: externalId }).waitFor();
    await page.getByRole('button', { name: 'Disable Leaked' }).click();
    await page.getByRole('button', { name: 'Copy receipt' }).click();
    await page.getByText('Copied.').waitFor();
    const receipt = await page.evaluate('navigator.clipboard.readText()');
    expect(receipt).toContain(`Disabled Leaked: ${keyId}`);
    expect(receipt).toMatch(/Change \d+, complete at 20\d\d-/);
    expect(receipt).not.toContain(key);
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');

    await page.keyboard.press('Control+K');
    await page
      .getByLabel('A secret, key, request id, customer, API or section')
      .fill('no such thing anywhere');
    expect(await page.getByRole('list', { name: 'Matches' }).getByRole('button').count()).toBe(0);
    await page.getByText('Searching…').waitFor();
    await page.getByText('Nothing found; of each of the first 20 APIs').waitFor();
    await page
      .getByLabel('A secret, key, request id, customer, API or section')
      .fill('a-secret-of-nobody-at-all');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page
      .getByRole('alert')
      .getByText(/key .*not found/)
      .waitFor();
    await stage.fleet.ok('identities.createIdentity', { externalId });
    await page.getByLabel('A secret, key, request id, customer, API or section').fill('LEAKY');
    await page.getByRole('button', { name: 'Leaky Ltd customer' }).click();
    await page.getByRole('heading', { name: externalId }).waitFor();
    await dashboard.close(key);
  });

  test('says that a key was found in public', async () => {
    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'public', name: 'Open' });
    const url = 'https://github.com/acme/app/blob/main/.env#L3';
    const leak = JSON.stringify({ at: Date.now() - 1_620_000, url });
    await stage.fleet.client.hset(recordKey('public', keyId), 'K', leak);
    const dashboard = await stage.signedIn('#/apis/public');
    const { page } = dashboard;
    await page.getByRole('table', { name: 'Keys' }).getByText('leaked', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'Open' }).click();
    const banner = page.getByRole('region', { name: 'Leak' });
    await banner.getByText('found in public 27 minutes ago and it is still accepted').waitFor();
    expect(await banner.getByRole('link').getAttribute('href')).toBe(url);
    await banner.getByRole('button', { name: 'Disable Open' }).click();
    await banner.getByText('it is disabled').waitFor();
    expect(await stage.fleet.verdict(key)).toBe('DISABLED');
    await dashboard.go('#/audit?operation=leaks.report');
    expect(await page.getByLabel('Operation').inputValue()).toBe('leaks.report');
    await dashboard.close(key);
  });

  test('tells an unused key from a refused one', async () => {
    const { key, keyId } = await stage.fleet.ok('keys.createKey', { apiId: 'vain', name: 'Vain' });
    const asked = { authorization: { permissions: 'admin.all' } };
    expect(await stage.fleet.verdict(key, asked)).toBe('INSUFFICIENT_PERMISSIONS');
    await stage.fleet.until(
      async () => (await stage.fleet.ok('keys.getKey', { keyId })).lastRefusedAt !== undefined,
    );
    const dashboard = await stage.signedIn('#/apis/vain');
    const row = async () => (await dashboard.rows('Keys'))[0]?.join(' ').replaceAll(/\s+/g, ' ');
    expect(await row()).toMatch(/never refused (now|\d+ seconds? ago)/);
    await dashboard.go(`#/keys/${keyId}`);
    await dashboard.page
      .getByText('Last accepted never')
      .or(dashboard.page.getByText('Last refused'))
      .waitFor();
    await dashboard.close(key);
  });

  test('finds all kinds of things, and does some', async () => {
    const { fleet } = stage;
    const { key } = await fleet.ok('keys.createKey', { apiId: 'finding', name: 'Acme nightly prod' });
    await fleet.ok('keys.createKey', { apiId: 'finding', name: 'Acme staging' });
    await fleet.ok('permissions.createRole', { name: 'cashier' });
    await fleet.ok('rootKeys.createRootKey', { name: 'Terraform', permissions: ['api.*.read_key'] });
    const dashboard = await stage.signedIn('#/fleet');
    const { page } = dashboard;
    const field = page.getByLabel('A secret, key, request id, customer, API or section');
    const first = page.getByRole('list', { name: 'Matches' }).getByRole('button').first();
    const top = async () => (await page.getByRole('dialog').boundingBox())?.y;
    await page.keyboard.press('Control+K');
    const place = await top();
    for (const [text, found] of [
      ['acme prod', /^Acme nightly prod/],
      ['stop acme prod', /^Acme nightly prod/],
      ['cashier', /^cashier\s+role/],
      ['go terraform', /^Terraform\s+root key/],
      ['new key in finding', /^New key in finding/],
      ['10:56 GET /x Authorization: Bearer SECRET, 403', /^The key with this secret/],
      ['level=warn request=1b2b9f8c4e7c996d2wq status=403', /^The key of this refused request/],
    ] as const) {
      await field.fill(text.replace('SECRET', key));
      await expect.poll(() => first.innerText()).toMatch(found);
    }
    // It does not jump as results come, and shows what Enter opens.
    expect(await top()).toBe(place);
    await field.fill('new key in finding');
    await expect.poll(() => first.innerText()).toMatch(/^New key in finding/);
    await page.keyboard.press('Enter');
    await page.getByRole('form', { name: 'New key' }).waitFor();
    await page.keyboard.press('Escape');
    expect(new URL(page.url()).hash).toBe('#/apis/finding');
    // A secret goes into no address, whatever stands beside it.
    await page.getByLabel('Filter').fill(`Bearer ${key}, 403`);
    await page.getByText('keys are not sent in addresses').waitFor();
    expect(page.url()).not.toContain(key);
    await dashboard.close(key);
  });
});
