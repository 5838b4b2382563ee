import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { FaultProxy } from '../../../../deploy/dev/fault-proxy.ts';
import { LENGTH_MS, usageField } from '../../../../shared/protocol/records/usage.ts';
import type { VerifierStatus as Verifier } from '../../../../shared/protocol/records/verifier-status.ts';
import { apiUsageKey, usageKey } from '../../../../shared/redis/redis-keys.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { VERDICTS } from '../../../../shared/rules/verdict-codes.ts';
import type { Fleet } from '../../../harness/fleet.ts';
import { Dashboard } from './chromium.ts';
import { onStage } from './stage.ts';

const SCREENSHOTS = join(
  import.meta.dirname,
  '..',
  '..',
  '..',
  '..',
  'control-plane',
  'clients',
  'dashboard',
  'screenshots',
);

/** Of the API that screenshots show. */
const KEYS = [
  ['Android app', 'team-mobile', true],
  ['iOS app', 'team-mobile', true],
  ['Old till', 'shop-17', false],
  ['Partner feed', 'partner-ada', true],
  ['Night import', 'team-data', true],
  ['Status page', 'team-web', true],
] as const;

/** Some traffic, and what a page's clock shows of it in 2 s; true once the chart is full. */
let round = 0;
async function traffic(page: Page, keys: readonly { key: string }[], fleet: Fleet): Promise<boolean> {
  round++;
  const good = keys.filter((_, i) => KEYS[i]?.[2]);
  const count = Math.round(14 + 8 * Math.sin(round / 4) + 3 * Math.sin(round * round));
  const asked = Array.from({ length: count }, (_, i) => good[i % good.length]?.key ?? '');
  if (round % 5 < 3) asked.push(keys[2]?.key ?? '');
  if (round % 7 === 0) asked.push(generateKey(16), generateKey(16));
  await Promise.all(asked.map((key, i) => fleet.verdict(key, { at: i % 3 })));
  await page.clock.runFor(2000);
  const label = await page.evaluate<string | undefined>(`document.querySelector('.chart')?.ariaLabel`);
  return Number(/: (\d+) bars/.exec(label ?? '')?.[1] ?? 0) >= CHART_BARS;
}

const CHART_BARS = 36;

onStage('the pictures of the README', (stage) => {
  test('the README shows it as it looks', async () => {
    const folder = process.env['SCREENSHOTS'] ? SCREENSHOTS : stage.directory;
    const shootOf = async (page: Page, name: string) => {
      const path = join(folder, `${name}.png`);
      await page.screenshot({ path, animations: 'disabled' });
      expect(statSync(path).size).toBeLessThan(130_000);
    };
    const proxy = new FaultProxy(() => stage.redis.port);
    const port = await proxy.listen();
    const env = { STATUS_PERIOD_MS: '100' };
    await stage.fleet.addVerifier({ ...env, REDIS_URL: stage.redis.url });
    await stage.fleet.addVerifier({ ...env, REDIS_URL: `redis://127.0.0.1:${port}` });
    try {
      const made: { key: string; keyId: string }[] = [];
      for (const [name, externalId, enabled] of KEYS) {
        const key = { apiId: 'orders', name, externalId, enabled, prefix: 'live', meta: { plan: 'pro' } };
        made.push(await stage.fleet.ok('keys.createKey', key));
      }
      const { key = '', keyId = '' } = made[3] ?? {};
      await stage.fleet.until(async () => {
        for (const at of [0, 1, 2]) await stage.fleet.verdict(key, { at });
        const { verifiers } = await stage.fleet.ok('fleet.listVerifiers');
        const follows = ({ apis }: Verifier) => apis.some((api) => api.apiId === 'orders' && api.member);
        return verifiers.filter(follows).length === 3;
      });
      // Changes before the one that is shown, as on any server that has run for a while.
      for (const { keyId } of made.filter((_, i) => KEYS[i]?.[2]))
        await stage.fleet.ok('keys.updateKey', { keyId, enabled: true });
      const hour = Math.floor(Date.now() / LENGTH_MS.hour);
      for (let i = 1; i < 48; i++) {
        const count = Math.round(900 + 600 * Math.sin((hour - i) / 3.8) + 90 * Math.sin(i * i));
        const usage = usageKey('orders', keyId);
        await stage.redis.command(
          'HSET',
          usage,
          usageField('hour', hour - i, VERDICTS.VALID.usage.letter),
          String(count),
        );
        const expired = i % 7 === 0 ? 60 + 9 * i : 0;
        await stage.redis.command(
          'HSET',
          usage,
          usageField('hour', hour - i, VERDICTS.DISABLED.usage.letter),
          String(expired),
        );
      }
      const minute = Math.floor(Date.now() / LENGTH_MS.minute);
      for (let i = 1; i < 60; i++) {
        const counts = {
          VALID: Math.round(300 + 120 * Math.sin((minute - i) / 6) + 30 * Math.sin(i * i)),
          DISABLED: i % 9 === 0 ? 20 + i : 0,
        };
        for (const [code, count] of Object.entries(counts)) {
          const { letter } = VERDICTS[code as keyof typeof counts].usage;
          const field = usageField('minute', minute - i, letter);
          await stage.redis.command('HSET', apiUsageKey('orders'), field, String(count));
        }
      }
      for (const colorScheme of ['light', 'dark'] as const) {
        const viewport = { width: 1100, height: 760 };
        const overview = await Dashboard.open(stage.browser, stage.base, { viewport, colorScheme });
        await overview.signIn();
        await overview.page.clock.install();
        await overview.go('#/apis');
        await overview.go('#/');
        await stage.fleet.until(() => traffic(overview.page, made, stage.fleet));
        await shootOf(overview.page, `overview-${colorScheme}`);
        await overview.close();
        const dashboard = await Dashboard.open(stage.browser, stage.base, { viewport, colorScheme });
        const { page } = dashboard;
        await dashboard.signIn();
        await page.getByRole('heading', { name: 'Overview' }).waitFor();
        const shoot = (name: string) => shootOf(page, `${name}-${colorScheme}`);
        await dashboard.go('#/apis/orders');
        await dashboard.act('Night import', 'Disable');
        await page.getByText(/Complete in/).waitFor();
        await dashboard.loaded();
        await shoot('keys');
        await dashboard.act('Night import', 'Enable');
        await page.getByText(/Enabled Night import. Complete in/).waitFor();
        if (colorScheme === 'dark') {
          await dashboard.go(`#/keys/${keyId}`);
          proxy.set('blackhole');
          await page.setViewportSize({ width: 1100, height: 820 });
          await page.getByRole('button', { name: 'Disable Partner feed' }).click();
          await page.getByText('Waiting for 1 of 3 verifiers.').waitFor();
          await shoot('fence');
        }
        await dashboard.close(key);
      }
    } finally {
      proxy.set('none');
      await Promise.all(stage.fleet.verifiers.splice(1).map((verifier) => verifier.stop()));
      proxy.close();
    }
  });
});
