import { type ChildProcess, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { Fleet } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';
import { skippedWithout } from '../harness/programs.ts';

const MONITORING = join(import.meta.dirname, '../../deploy/monitoring');
const alerts = join(MONITORING, 'alerts.yaml');
const read = (file: string) => readFileSync(join(MONITORING, file), 'utf8');

const alertNames = [...read('alerts.yaml').matchAll(/- alert: (\w+)/g)].map(([, name]) => name ?? '');
const panels = (
  JSON.parse(read('dashboard.json')) as { panels: { title: string; targets?: { expr: string }[] }[] }
).panels;
/** Every query of the dashboard, with what Grafana puts in for its variables. */
const queries = panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => ({
    title,
    expr: expr.replaceAll('$__rate_interval', '1m').replaceAll('$verifier', '.*'),
  })),
);

const why = skippedWithout('prometheus', 'promtool');

test('the dashboard says by colour what is wrong, and has the numbers of every part', () => {
  const { panels } = JSON.parse(read('dashboard.json')) as {
    panels: { type: string; fieldConfig?: { defaults: { thresholds?: { steps: unknown[] } } } }[];
  };
  const stats = panels.filter(({ type }) => type === 'stat');
  expect(stats.filter(({ fieldConfig }) => !fieldConfig?.defaults.thresholds?.steps.length)).toEqual([]);
  const text = queries.map(({ expr }) => expr).join();
  for (const part of ['webhook', 'leak', 'credits', 'limits', 'undecided', 'durable'])
    expect(text, part).toMatch(`_${part}`);
});

test('every alert has a test in which it fires', () => {
  const fired = new Set(
    [...read('alerts.test.yaml').matchAll(/alertname: (\w+)\n\s+exp_alerts:/g)].map(([, name]) => name),
  );
  expect(alertNames.length).toBeGreaterThan(15);
  expect(alertNames.filter((name) => !fired.has(name))).toEqual([]);
});

describe.skipIf(why)(`promtool's opinion${why}`, () => {
  const promtool = (...args: string[]) => execFileSync('promtool', args, { encoding: 'utf8', stdio: 'pipe' });

  test('the alert rules are valid', () => {
    expect(promtool('check', 'rules', '--lint=all', '--lint-fatal', alerts)).toContain('SUCCESS');
  });

  test("the page's rule for the disk of Redis is valid", () => {
    const page = readFileSync(join(MONITORING, '../monitoring.md'), 'utf8');
    const [, rules = ''] = /^```yaml\n([\s\S]*?)^```/m.exec(page) ?? [];
    const file = join(mkdtempSync(join(tmpdir(), 'rules-')), 'rules.yaml');
    writeFileSync(file, rules);
    expect(promtool('check', 'rules', '--lint=all', '--lint-fatal', file)).toContain('SUCCESS');
    rmSync(dirname(file), { recursive: true });
  });

  test('every alert fires on what it is for only', () => {
    expect(promtool('test', 'rules', join(MONITORING, 'alerts.test.yaml'))).toContain('SUCCESS');
  });
});

describe.skipIf(why)(`a real Prometheus that scrapes both processes${why}`, () => {
  let fleet: Fleet;
  let prometheus: ChildProcess;
  let base: string;
  const admins = () => ({
    'keyfence-control-plane': fleet.controlPlanes[0]?.adminAddress ?? '',
    'keyfence-verifier': fleet.verifiers[0]?.adminAddress ?? '',
  });

  /** The value of an instant query; rejects where Prometheus cannot parse it. */
  const query = async (
    expr: string,
  ): Promise<{ metric: Record<string, string>; value: [number, string] }[]> => {
    const { body } = await fleet.get(`${base}/api/v1/query?${new URLSearchParams({ query: expr })}`);
    if (body.status !== 'success') throw new Error(`${expr}: ${body.error}`);
    return body.data.result;
  };

  beforeAll(async () => {
    fleet = await Fleet.start({ env: { API_IDS: 'shop' } });
    const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await fleet.verdict(key)).toBe('DISABLED');
    expect((await fleet.admin('keys.getKey', { keyId }, { rootKey: 'wrong' })).status).toBe(401);

    const scrape = Object.entries(admins()).map(
      ([job, url]) => `  - job_name: ${job}\n    static_configs: [{ targets: ['${new URL(url).host}'] }]\n`,
    );
    const config = join(fleet.directory, 'prometheus.yml');
    const global = 'global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }\n';
    writeFileSync(config, `${global}rule_files: ['${alerts}']\nscrape_configs:\n${scrape.join('')}`);
    const address = `127.0.0.1:${await freePort()}`;
    base = `http://${address}`;
    prometheus = spawnBound('prometheus', [
      `--config.file=${config}`,
      `--storage.tsdb.path=${join(fleet.directory, 'tsdb')}`,
      `--web.listen-address=${address}`,
      '--log.level=error',
    ]);
    await fleet.until(async () => {
      const up = await query('sum(up) == 2').catch(() => []); // not listening yet
      return up.length > 0;
    }, 'Prometheus does not see both processes');
  });

  afterAll(async () => {
    const exited = new Promise((resolve) => prometheus.once('exit', resolve));
    prometheus.kill('SIGTERM');
    await exited;
    await fleet.stop();
  });

  test('promtool finds nothing wrong with the exports', async () => {
    for (const url of Object.values(admins())) {
      const { body } = await fleet.get(`${url}/metrics`);
      expect(execFileSync('promtool', ['check', 'metrics'], { input: String(body), encoding: 'utf8' })).toBe(
        '',
      );
    }
  });

  test('no alert fires on a healthy fleet', async () => {
    interface Rule {
      name: string;
      health: string;
      state: string;
      lastError?: string;
    }
    const rules = async (): Promise<Rule[]> =>
      (await fleet.get(`${base}/api/v1/rules`)).body.data.groups.flatMap(
        ({ rules }: { rules: Rule[] }) => rules,
      );
    await fleet.until(async () => (await rules()).every(({ health }) => health !== 'unknown'));
    const all = await rules();
    expect(all.map(({ name }) => name).sort()).toEqual(alertNames.toSorted());
    expect(all.filter(({ health, state }) => health !== 'ok' || state === 'firing')).toEqual([]);
  });

  test('it parses every query of the dashboard', async () => {
    expect(queries.length).toBeGreaterThan(20);
    for (const { expr } of queries) await query(expr);
  });

  test('alerts and dashboard name real series only', async () => {
    const rules: { query: string }[] = (await fleet.get(`${base}/api/v1/rules`)).body.data.groups.flatMap(
      ({ rules }: { rules: { query: string }[] }) => rules,
    );
    const expressions = [...rules.map((rule) => rule.query), ...queries.map(({ expr }) => expr)];
    const selectors = new Set(
      expressions.flatMap(
        (expr) => expr.match(/\b(?:keyfence|nodejs|process)_\w+(?:\{[^}]*\})?|\bup\{[^}]*\}/g) ?? [],
      ),
    );
    expect(selectors.size).toBeGreaterThan(30);
    for (const selector of selectors) {
      // The operator is not here: test/control-plane/clients/operator/app.test.ts has its metrics.
      if (selector.startsWith('keyfence_operator_')) continue;
      // No call has failed here: that label holds any status.
      const found = await query(selector.replace(/status=(~"5\.\."|"500")/, 'status=~".+"'));
      expect(found, selector).not.toEqual([]);
    }
  });

  test('has a value for every documented metric', async () => {
    for (const file of ['control-plane/metrics.md', 'verifier/metrics.md']) {
      const text = readFileSync(join(MONITORING, '../..', file), 'utf8');
      const names = [...text.matchAll(/^\| `(keyfence_\w+)` \| (\w+)/gm)];
      expect(names.length).toBeGreaterThan(5);
      for (const [, name, type] of names) {
        const series = type === 'histogram' ? `${name}_count` : `${name}`;
        expect(await query(series), series).not.toEqual([]);
      }
    }
  });

  test('no number of keys or callers adds series', async () => {
    const count = async () => (await query('count({__name__=~"keyfence_.*"})'))[0]?.value[1];
    const scrapes = async () => Number((await query('sum(scrape_samples_scraped)'))[0]?.value[0]);
    const untilScraped = async () => {
      const seenAt = await scrapes();
      await fleet.until(async () => (await scrapes()) > seenAt + 2);
    };
    // From the first key with an externalId on, a verifier follows the shared log too.
    const first = await fleet.ok('keys.createKey', { apiId: 'shop', externalId: 'owner' });
    await fleet.verdict(first.key);
    await untilScraped();
    const before = await count();
    for (let i = 0; i < 20; i++) {
      const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', externalId: `owner-${i}` });
      await fleet.verdict(key);
      await fleet.verdict(`shop_unknown_${i}`);
    }
    await untilScraped();
    // createKey's own status and operation were counted before.
    expect(await count()).toBe(before);
  });
});
