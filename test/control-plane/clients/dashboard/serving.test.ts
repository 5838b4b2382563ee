import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import config from '../../../../control-plane/clients/dashboard/vite.config.ts';
import { Fleet } from '../../../harness/fleet.ts';

const ASSETS = join(
  import.meta.dirname,
  '..',
  '..',
  '..',
  '..',
  'control-plane',
  'clients',
  'dashboard',
  'assets',
);
const contentOf = (folder: string) =>
  Object.fromEntries(readdirSync(folder).map((file) => [file, readFileSync(join(folder, file), 'utf8')]));

test('the assets are those of the sources', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-dashboard-'));
  try {
    await build({ ...config, configFile: false, build: { ...config.build, outDir: folder } });
    const [built, committed] = [contentOf(folder), contentOf(ASSETS)];
    expect(Object.keys(committed)).toEqual(Object.keys(built));
    expect(Object.keys(built).filter((file) => built[file] !== committed[file])).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the assets are small and call no other server', () => {
  const assets = contentOf(ASSETS);
  const { 'app.woff2': _, ...texts } = assets;
  const bytes = Object.values(texts).reduce((sum, text) => sum + gzipSync(text).length, 0);
  expect(gzipSync(assets['app.js'] ?? '').length).toBeLessThan(70_000);
  expect(bytes).toBeLessThan(90_000);
  expect(statSync(join(ASSETS, 'app.woff2')).size).toBeLessThan(100_000);
  expect(assets['index.html']).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\son\w+=|style=|https?:/);
  expect((assets['app.css'] ?? '').replace('url(./app.woff2)', '')).not.toMatch(/@import|url\(/);
  const addresses = [...(assets['app.js'] ?? '').matchAll(/https?:\/\/[\w./-]+/g)].map(
    ([address]) => address,
  );
  // Names of XML vocabularies, which nobody asks for, and addresses in examples.
  const isNamed = (address: string) =>
    /^https?:\/\/(www\.w3\.org\/|127\.0\.0\.1$|app\.example\.com$)/.test(address);
  expect(addresses.filter((address) => !isNamed(address))).toEqual([]);
});

test('colours, corners, shadows and type are tokens', () => {
  const style = join(ASSETS, '..', 'style');
  const literal =
    /#[\da-f]{3,8}\b|\b(?:rgb|hsl|oklch|color-mix|light-dark)\(|(?:font-size|border(?:-\w+)*-radius|box-shadow): (?!var\(|none|inherit|0;)/i;
  const found = readdirSync(style)
    .filter((file) => file !== 'tokens.css')
    .flatMap((file) =>
      readFileSync(join(style, file), 'utf8')
        .split('\n')
        .map((line) => `${file}: ${line}`),
    )
    .filter((line) => literal.test(line));
  expect(found).toEqual([]);
});

describe('the control plane', () => {
  let fleet: Fleet;
  let base: string;
  beforeAll(async () => {
    fleet = await Fleet.start({ verifiers: 0 });
    base = fleet.controlPlanes[0]?.address ?? '';
  });
  afterAll(() => fleet.stop());

  test('serves the dashboard, which calls only here', async () => {
    for (const from of ['/', '/dashboard']) {
      const { status, headers } = await fleet.get(base + from);
      expect([status, headers['location']]).toEqual([302, 'dashboard/']);
    }
    for (const file of ['', ...readdirSync(ASSETS)]) {
      const { status, headers } = await fleet.get(`${base}/dashboard/${file}`);
      expect(status, file).toBe(200);
      const policy = String(headers['content-security-policy']);
      expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self';");
      expect(policy).toContain("connect-src 'self'");
      expect(policy).toContain("require-trusted-types-for 'script'; trusted-types 'none'");
      expect(policy).not.toMatch(/unsafe|https?:|data:|\*/);
      expect(headers).toMatchObject({
        'cache-control': 'no-cache',
        'x-content-type-options': 'nosniff',
        'x-frame-options': 'DENY',
        'referrer-policy': 'no-referrer',
      });
    }
  });

  test('serves it compressed, and once', async () => {
    const file = `${base}/dashboard/app.js`;
    const ask = (headers: Record<string, string>) => fetch(file, { headers });
    const compressed = await ask({ 'accept-encoding': 'gzip, br' });
    expect(Number(compressed.headers.get('content-length'))).toBeLessThan(70_000);
    expect(compressed.headers.get('vary')).toBe('accept-encoding');
    const plain = await ask({ 'accept-encoding': 'identity' });
    expect(plain.headers.get('content-encoding')).toBe(null);
    expect(await compressed.text()).toBe(await plain.text());
    const known = await ask({ 'if-none-match': plain.headers.get('etag') ?? '' });
    expect([known.status, await known.text()]).toEqual([304, '']);
  });

  test('answers other paths as if it had no dashboard', async () => {
    for (const path of [
      '/dashboard/none.js',
      '/dashboard/../package.json',
      '/dashboard/%2e%2e/main.tsx',
      '/dashboards',
      '/app.js',
    ]) {
      const { status, body, headers } = await fleet.get(base + path);
      expect(status, path).toBe(404);
      expect(body.error, path).toMatchObject({ code: 'NOT_FOUND', message: 'no such path' });
      expect(headers['cache-control']).toBe('no-store');
      expect(headers['content-security-policy']).not.toContain('self');
    }
    const posted = await fleet.post(`${base}/dashboard/app.js`, {});
    expect(posted.status).toBe(405);
    expect(posted.body.error.code).toBe('METHOD_NOT_ALLOWED');
    const call = await fleet.get(`${base}/v1/apis.listApis`);
    expect(call.status).toBe(401);
    expect(call.headers['content-security-policy']).not.toContain('self');
    const document = (await fleet.get(`${base}/openapi.json`)).body;
    expect(Object.keys(document.paths).filter((path) => !path.startsWith('/v1/'))).toEqual([]);
  });
});
