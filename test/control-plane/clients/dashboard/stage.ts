import { rmSync } from 'node:fs';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { lacking } from '../../../harness/programs.ts';
import { RedisNode } from '../../../harness/redis-nodes.ts';
import { scratch } from '../../../harness/scratch.ts';
import { Dashboard, executable, startChromium } from './chromium.ts';

/** What tests of the dashboard play on: a fleet, whose Redis has a port so that a proxy can come in between, and a browser. */
class Stage {
  #parts: { directory: string; fleet: Fleet; browser: Browser; redis: RedisNode } | undefined;

  async start(): Promise<void> {
    const directory = scratch('dashboard');
    const redis = await RedisNode.start(directory);
    // While a lease lasts, the page must have shown that a verifier is missing.
    const env = {
      LEASE_MS: '6000',
      TOKEN_KEY: 'a secret of tokens, long enough for all',
      STATUS_PERIOD_MS: '100',
      USAGE_PERIOD_MS: '100',
      FAILURES_PER_MINUTE: '0',
      WEBHOOK_NETWORKS: '127.0.0.0/8',
    };
    const [fleet, browser] = await Promise.all([Fleet.start({ env, redisUrl: redis.url }), startChromium()]);
    this.#parts = { directory, fleet, browser, redis };
  }

  /** Its own, for files; it goes away with it. */
  get directory(): string {
    return this.#started.directory;
  }

  get fleet(): Fleet {
    return this.#started.fleet;
  }

  get browser(): Browser {
    return this.#started.browser;
  }

  get redis(): RedisNode {
    return this.#started.redis;
  }

  /** Where the dashboard is. */
  get base(): string {
    return this.fleet.controlPlanes[0]?.address ?? '';
  }

  /** A page of the dashboard, signed in. */
  async signedIn(hash = '#/', rootKey = ROOT_KEY): Promise<Dashboard> {
    const dashboard = await Dashboard.open(this.browser, this.base);
    await dashboard.signIn(rootKey);
    await dashboard.page.getByRole('heading', { name: 'Overview' }).waitFor();
    await dashboard.go(hash);
    return dashboard;
  }

  async stop(): Promise<void> {
    if (!this.#parts) return;
    const { directory, fleet, browser, redis } = this.#parts;
    await browser.close();
    await fleet.stop();
    await redis.stop();
    rmSync(directory, { recursive: true, force: true });
  }

  get #started() {
    if (!this.#parts) throw new Error('the stage is not set yet');
    return this.#parts;
  }
}

/** Tests of the dashboard in Chromium; skipped where there is none. */
export function onStage(what: string, play: (stage: Stage) => void): void {
  const skipped = lacking(executable ? [] : ['chromium']);
  describe.skipIf(skipped)(`in Chromium, ${what}${skipped}`, () => {
    const stage = new Stage();
    beforeAll(() => stage.start());
    afterAll(() => stage.stop());
    play(stage);
  });
}
