import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { ROOT_KEY } from '../../../harness/fleet.ts';
import { HOLDS_MS_MAX } from '../../../harness/waiting.ts';

const NAMES = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];

/** Chromium without a window, which costs half as much processor time, or another; undefined where there is none. */
export const executable = (process.env['PATH'] ?? '')
  .split(delimiter)
  .flatMap((folder) => NAMES.map((name) => join(folder, name)))
  .find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

export function startChromium(): Promise<Browser> {
  // Without a sandbox, because CI is root in a container; it opens pages of ours only.
  return chromium.launch({ executablePath: executable ?? '', args: ['--no-sandbox', '--disable-gpu'] });
}

/** A page of the dashboard, watched for what must never happen, whatever is done on it. */
export class Dashboard {
  readonly page: Page;
  readonly #base: string;
  readonly #urls: string[] = [];
  readonly #wrong: string[] = [];

  private constructor(page: Page, base: string) {
    this.page = page;
    this.#base = base;
    page.setDefaultTimeout(HOLDS_MS_MAX);
    page.on('request', (request) => this.#urls.push(request.url()));
    page.on('framenavigated', (frame) => this.#urls.push(frame.url()));
    page.on('pageerror', (error) => this.#wrong.push(String(error)));
    page.on('dialog', (dialog) => {
      this.#wrong.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('console', (message) => {
      if (/Content.Security.Policy|Trusted/i.test(message.text())) this.#wrong.push(message.text());
    });
  }

  static async open(browser: Browser, base: string, options: BrowserContextOptions = {}): Promise<Dashboard> {
    const context = await browser.newContext({ viewport: { width: 1100, height: 800 }, ...options });
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const dashboard = new Dashboard(await context.newPage(), base);
    await dashboard.page.goto(`${base}/dashboard`);
    return dashboard;
  }

  async signIn(rootKey = ROOT_KEY): Promise<void> {
    await this.page.getByLabel('Root key').fill(rootKey);
    await this.page.getByRole('button', { name: 'Sign in' }).click();
  }

  /** Goes to a view as a link would, and waits for what it loads. */
  async go(hash: string): Promise<void> {
    await this.page.evaluate(`new Promise((done) => {
      const target = ${JSON.stringify(hash)};
      if (location.hash === target) return done();
      addEventListener('hashchange', () => setTimeout(done), { once: true });
      location.hash = target;
    })`);
    await this.loaded();
  }

  /** Shows a part of the page. */
  async openTab(name: string): Promise<void> {
    await this.page.getByRole('tab', { name }).click();
    await this.loaded();
  }

  /** Chooses an action of the menu beside the heading. */
  async choose(action: string): Promise<void> {
    await this.page.getByText('More', { exact: true }).click();
    await this.page.getByRole('button', { name: action }).click();
  }

  /** Chooses an action of the menu in the row of something. */
  async act(name: string, action: string): Promise<void> {
    await this.page.getByLabel(`Actions on ${name}`, { exact: true }).click();
    await this.page.getByRole('button', { name: `${action} ${name}`, exact: true }).click();
  }

  async loaded(): Promise<void> {
    await this.page.locator('main h1').waitFor();
    await this.page.locator('[aria-busy="true"]').first().waitFor({ state: 'detached' });
  }

  /** Cells of the table of this name. */
  async rows(label: string): Promise<string[][]> {
    const rows = await this.page.getByRole('table', { name: label }).locator('tbody tr').all();
    return Promise.all(rows.map((row) => row.locator('td').allInnerTexts()));
  }

  /** Closes the page; nothing must have asked another server, no secret may have left a trace, nothing been refused. */
  async close(...secrets: string[]): Promise<void> {
    expect(this.#wrong).toEqual([]);
    for (const url of this.#urls) {
      expect(new URL(url).origin).toBe(this.#base);
      for (const secret of [ROOT_KEY, ...secrets]) expect(decodeURIComponent(url)).not.toContain(secret);
    }
    const session = { name: 'keyfence_session', httpOnly: true, sameSite: 'Strict' };
    for (const cookie of await this.page.context().cookies()) expect(cookie).toMatchObject(session);
    expect(await this.page.evaluate('localStorage.length')).toBe(0);
    await this.page.context().close();
  }
}
