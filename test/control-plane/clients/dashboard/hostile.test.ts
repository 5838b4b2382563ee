import { expect, test } from 'vitest';
import { onStage } from './stage.ts';

onStage('what others wrote', (stage) => {
  const evil = `"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}\${7*7}`;

  test('is text on every page, whatever it looks like', async () => {
    const meta = { [evil]: evil, __proto__: { toString: 1 }, constructor: evil };
    const body = { apiId: 'evil', name: evil, externalId: evil, meta };
    const { keyId } = await stage.fleet.ok('keys.createKey', body);
    await stage.fleet.ok('apis.createApi', { name: evil, apiId: 'evil-name' });
    await stage.fleet.ok('rootKeys.createRootKey', { name: evil, permissions: ['api.x.read_key'] });
    await stage.fleet.ok('keys.updateKey', { keyId, name: `${evil}!` });
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    for (const hash of [
      '#/',
      '#/apis',
      '#/apis/evil',
      `#/keys/${keyId}`,
      '#/root-keys',
      '#/fleet',
      '#/audit',
      `#/audit/${keyId}`,
      `#/apis/${encodeURIComponent(evil)}`,
      `#/apis/${evil}`,
      `#/keys/${evil}`,
      '#/javascript:window.pwned=1',
    ]) {
      await dashboard.go(hash);
      for (const summary of (await page.locator('summary').all()).slice(0, 10)) await summary.click();
      expect(await page.locator('main img, main script').count(), hash).toBe(0);
    }
    await dashboard.go(`#/keys/${keyId}`);
    await page.getByRole('heading', { name: `${evil}!` }).waitFor();
    await dashboard.openTab('Settings');
    expect(await page.getByLabel('Meta').inputValue()).toContain('onerror');
    await page.getByRole('button', { name: `Disable ${evil}!` }).click();
    await page.getByText(`Disabled ${evil}!`).waitFor();
    expect(await page.evaluate('window.pwned')).toBe(undefined);
    await dashboard.close();
  });

  test('is no markup even past a dashboard bug', async () => {
    const dashboard = await stage.signedIn();
    const { page } = dashboard;
    const attempt = (code: string) => page.evaluate(code).catch((error: Error) => error.message);
    expect(await attempt(`document.body.innerHTML = '<b>x</b>'`)).toContain('TrustedHTML');
    expect(await attempt(`setTimeout('window.pwned = 1')`)).toContain('TrustedScript');
    const refusedBy = (code: string) =>
      attempt(`new Promise((done) => {
        addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective), { once: true });
        ${code}
      })`);
    expect(await refusedBy(`fetch('http://localhost:1/').catch(() => {})`)).toBe('connect-src');
    expect(await refusedBy(`new Image().src = 'http://localhost:1/x.png'`)).toBe('img-src');
    expect(
      await refusedBy(`document.body.append(Object.assign(document.createElement('iframe'), { src: '/' }))`),
    ).toBe('frame-src');
    await dashboard.page.context().close();
  });
});
