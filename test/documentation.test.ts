import { execFile, execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { Value } from 'typebox/value';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PropagationResponse } from '../control-plane/core/schema/changes.ts';
import { eventSchema } from '../control-plane/subjects/webhooks/events-of.ts';
import { documents } from '../deploy/dev/docs.ts';
import { takeFolder, tell } from '../deploy/dev/folder.ts';
import { RECALL_MS } from '../shared/metering/exchange.ts';
import { VERDICT_CODES } from '../shared/rules/verdict-codes.ts';
import { VERDICT_FIELDS } from '../verifier/core/verdict-body.ts';
import { engineSettings } from '../verifier/engine.ts';
import { clientSettings } from '../verifier/library/client-settings.ts';
import { bareEnv, SHELLS } from './harness/bare-machine.ts';
import { Fleet, ROOT_KEY } from './harness/fleet.ts';
import { freePort } from './harness/ports.ts';
import { skippedWithout } from './harness/programs.ts';

const ROOT = join(import.meta.dirname, '..');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const commands = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block?.trim() ?? '');

test('npm run docs changes nothing', async () => {
  for (const { file, present, content } of await documents())
    expect(present, `${file}: run npm run docs`).toBe(content);
});

test('every served metric is in its table', async () => {
  const fleet = await Fleet.start();
  try {
    for (const [process, file] of [
      [fleet.controlPlanes[0], 'control-plane/metrics.md'],
      [fleet.verifiers[0], 'verifier/metrics.md'],
    ] as const) {
      const { body } = await fleet.get(`${process?.adminAddress}/metrics`);
      const names = [...String(body).matchAll(/^# TYPE (keyfence_\w+)/gm)].map(([, name]) => name);
      expect(names.length).toBeGreaterThan(5);
      const text = readFileSync(join(ROOT, file), 'utf8');
      for (const name of names) expect(text).toContain(`\`${name}\``);
    }
  } finally {
    await fleet.stop();
  }
});

test('every key that Keyfence stores in Redis is in its table', async () => {
  const page = readFileSync(join(ROOT, 'shared/redis/redis-layout.md'), 'utf8');
  const names = [...page.matchAll(/`(kf:[^`]+)`/g)].map(
    ([, name = '']) =>
      new RegExp(
        `^${name
          .replace(/[{}!*]/g, '\\$&')
          .replace(/<\w+>$/, '.+')
          .replace(/<\w+>/g, '[^:{}]+')}$`,
      ),
  );
  const fleet = await Fleet.start();
  const redis = new Redis(fleet.redisUrl);
  try {
    const { keyId, key } = await fleet.ok('keys.createKey', {
      ...{ apiId: 'shop', externalId: 'ada', expires: 4e12, meta: { text: 'x'.repeat(100) } },
      ...{ remaining: 5, ratelimit: { limit: 9, duration: 60_000 } },
    });
    await fleet.ok('keys.updateRemaining', {
      keyId,
      op: 'increment',
      value: 1,
      operationId: 'one-that-is-long-enough',
    });
    await fleet.ok('permissions.createRole', { name: 'admin', permissions: ['a'] });
    await fleet.ok('identities.createIdentity', { externalId: 'ada' });
    await fleet.verdict(key, { ratelimits: [{ name: 'own', limit: 5, duration: 60_000 }] });
    const keys = await redis.keys('*');
    expect(keys.length).toBeGreaterThan(30);
    expect(
      keys.filter((name) => !names.some((pattern) => pattern.test(name.replace('{!ws}', '{ws}')))),
    ).toEqual([]);
  } finally {
    redis.disconnect();
    await fleet.stop();
  }
});

test('every link leads to a file and its heading', () => {
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.md'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
    .trim()
    .split('\n')
    .filter((file) => existsSync(join(ROOT, file)));
  const links = files.flatMap((file) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(/\]\((?!https?:)([^)#]*)#?([^)]*)\)/g)].map(
      ([, path, anchor]) => ({ file, path: path || basename(file), anchor }),
    ),
  );
  expect(links.filter(({ anchor }) => anchor).length).toBeGreaterThan(10);
  const broken = links.filter(({ file, path, anchor }) => {
    const target = join(ROOT, dirname(file), path);
    return !existsSync(target) || (anchor && !headingsOf(target).includes(anchor));
  });
  expect(broken).toEqual([]);
});

/** Returns the anchors of a page's headings, as GitHub makes them. */
function headingsOf(page: string): string[] {
  const headings = readFileSync(page, 'utf8').matchAll(/^#+ (.*)$/gm);
  return [...headings].map(([, text = '']) =>
    text
      .toLowerCase()
      .replace(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  );
}

/** Pages of which one reads a section, never the whole. */
const LOOKED_UP = ['deploy/alerts.md', 'SECURITY.md', 'bench/results.md'];

test('a page has at most 1,500 words', () => {
  const pages = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.md'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const long = pages
    .trim()
    .split('\n')
    .filter((page) => existsSync(join(ROOT, page)))
    .filter(
      (page) => wordsOf(readFileSync(join(ROOT, page), 'utf8')) > (LOOKED_UP.includes(page) ? 1800 : 1500),
    );
  expect(long).toEqual([]);
});

test('a release of the changelog has at most 1,000 words', () => {
  const [, ...releases] = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8').split(/^## /m);
  expect(releases.filter((release) => wordsOf(release) > 1000)).toEqual([]);
});

/** Words for which the pages have others: CONTRIBUTING.md, "Words". */
const NOT_SAID =
  /\bpersons\b|\b(?:go|goes|going|went) on\b|\balso if\b|\bby chance\b|\bat hand\b|\bregistrations?\b|\bworkspace\b|\bjudged?\b/g;

test('pages say the words that CONTRIBUTING.md lists, not those that it replaces', () => {
  const pages = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.md'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const wrong = pages
    .trim()
    .split('\n')
    .filter((page) => existsSync(join(ROOT, page)) && !/^(?:CHANGELOG|CONTRIBUTING)\.md$|^bench\//.test(page))
    .flatMap((page) =>
      (readFileSync(join(ROOT, page), 'utf8').match(NOT_SAID) ?? []).map((word) => `${page}: ${word}`),
    );
  expect(wrong).toEqual([]);
});

/** Returns the number of words of a page, without its code blocks, HTML and generated tables. */
function wordsOf(page: string): number {
  const prose = page.replace(/<!-- generated:.*?<!-- end -->|```.*?```|<[^>]*>/gs, '').split(/\s+/);
  return prose.filter((word) => /\w/.test(word)).length;
}

test.each([
  ['core/keys', PropagationResponse],
  ['subjects/webhooks', eventSchema('key.disabled')],
])('the JSON on the page of %s has the documented form', (page, schema) => {
  const text = readFileSync(join(ROOT, 'control-plane', page, 'README.md'), 'utf8');
  expect([...Value.Errors(schema, JSON.parse(/```json\n([\s\S]*?)```/.exec(text)?.[1] ?? ''))]).toEqual([]);
});

test('a page names no other version of Keyfence', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const pages = execFileSync('git', ['ls-files', '*.md', ':!CHANGELOG.md'], { cwd: ROOT, encoding: 'utf8' });
  const named = pages
    .trim()
    .split('\n')
    .flatMap((page) => [
      ...readFileSync(join(ROOT, page), 'utf8').matchAll(
        /(?:Keyfence |keyfence[:@]|What )(\d+\.\d+(?:\.\d+)?)/g,
      ),
    ])
    .map(([, each = '']) => each);
  expect(named).not.toEqual([]);
  expect(named.filter((each) => !`${version}.`.startsWith(`${each}.`))).toEqual([]);
});

test('the way of a question leads to every verdict', () => {
  const [, way = ''] = /```\n([\s\S]*?)```/.exec(readFileSync(join(ROOT, 'verifier/MAP.md'), 'utf8')) ?? [];
  expect(VERDICT_CODES.filter((code) => !way.includes(code))).toEqual([]);
});

test('the table of seeds has all kinds of worlds', () => {
  const folder = join(ROOT, 'test/proof/simulation');
  const kinds = readFileSync(join(folder, 'plan.ts'), 'utf8').matchAll(/_SEEDS = ([\d_]+);/g);
  const rows = readFileSync(join(folder, 'README.md'), 'utf8').matchAll(/^\| ([\d,]+) \|/gm);
  expect([...rows].map(([, from = '']) => Number(from.replaceAll(',', '')))).toEqual(
    [...kinds].map(([, from = '']) => Number(from.replaceAll('_', ''))).sort((a, b) => a - b),
  );
});

test('the verdicts on their page have the documented form', () => {
  const page = readFileSync(join(ROOT, 'verifier/core/verdicts.md'), 'utf8');
  const [, ...verdicts] = [...page.matchAll(/```json\n([\s\S]*?)```/g)].map(([, json = '']) =>
    JSON.parse(json),
  );
  expect(verdicts.map(({ code }) => code)).toEqual(['VALID', 'RATE_LIMITED']);
  for (const { valid, code, requestId, ...fields } of verdicts) {
    expect([valid, requestId]).toEqual([code === 'VALID', expect.any(String)]);
    for (const [name, value] of Object.entries(fields)) {
      const { schema } = VERDICT_FIELDS[name as keyof typeof VERDICT_FIELDS];
      expect([...Value.Errors(schema as never, value)], name).toEqual([]);
    }
  }
});

test('the example of metering.md is decided as it says', async () => {
  const page = readFileSync(join(ROOT, 'verifier/metering/metering.md'), 'utf8');
  const rows = [...page.matchAll(/^\| ([^|]+) \|[^|]+\|[^|]+\|[^|]+\| ([\d,]+) \| ?([A-Z_]*)/gm)].map(
    ([, call, credits = '', code]) => [call, Number(credits.replace(',', '')), code] as const,
  );
  const fleet = await Fleet.start();
  try {
    const shared = { per: 'identity', autoApply: true };
    await fleet.ok('permissions.createRole', {
      name: 'pro',
      ratelimits: [{ name: 'requests', limit: 1000, duration: 60_000, ...shared }],
      concurrency: [{ name: 'streams', limit: 3, per: 'identity' }],
    });
    await fleet.ok('identities.createIdentity', {
      externalId: 'wayne',
      roles: ['pro'],
      credits: { remaining: 40_000 },
    });
    const ratelimit = { limit: 100, duration: 60_000 };
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', externalId: 'wayne', ratelimit });
    const holds: string[] = [];
    const ask = async () => {
      const { body } = await fleet.verify(key, { hold: { credits: 20_000 } });
      if (body.hold) holds.push(body.hold.id);
      return body.code;
    };
    for (const [call = '', credits, verdict] of rows) {
      let code = '';
      if (call.startsWith('`release`'))
        await fleet.post(`${fleet.verifiers[0]?.address}/v1/keys.release`, { hold: holds[0], cost: 1234 });
      else if (call.includes('updateCredits'))
        await fleet.ok('identities.updateCredits', { externalId: 'wayne', op: 'increment', value: 100_000 });
      else if (call !== 'before') for (const _ of call.split(', ')) code = await ask();
      expect(code, call).toBe(verdict);
      const left = async () =>
        (await fleet.ok('identities.getIdentity', { externalId: 'wayne' })).credits.remaining;
      await expect.poll(left, { message: call }).toBe(credits);
    }
    expect(rows).toHaveLength(9);
  } finally {
    await fleet.stop();
  }
});

test('an old Node is told first what to install', () => {
  const { status, stderr } = spawnSync('node', ['deploy/dev/node-version.js'], {
    cwd: ROOT,
    env: bareEnv(),
    encoding: 'utf8',
  });
  const version = execFileSync('node', ['-p', 'process.versions.node'], {
    env: bareEnv(),
    encoding: 'utf8',
  }).trim();
  const isOld = Number.parseInt(version, 10) < 24;
  expect(status).toBe(isOld ? 1 : 0);
  if (isOld) expect(stderr).toMatch(`Node 24 or newer; this is ${version}.`);
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  expect(scripts['prestart']).toMatch(
    /^node deploy\/dev\/is-installed\.js --omit=dev \|\| npm ci --omit=dev /,
  );
  expect(scripts['packages']).toMatch(/^node deploy\/dev\/is-installed\.js \|\| npm ci --include=dev /);
  for (const name of ['prestart', 'packages'])
    expect(scripts[name]).toMatch(/ && node deploy\/dev\/node-version\.js$/);
  for (const name of ['pretest', 'pretest:unit', 'pretest:watch'])
    expect(scripts[name]).toMatch(/^npm run --silent packages\b/);
});

test('the first start uses the Node just installed', () => {
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-first-'));
  try {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const [machine, packages] = [join(folder, 'machine'), join(folder, 'packages')];
    for (const each of [machine, packages]) mkdirSync(each);
    const command = (file: string, text: string) =>
      writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    command(join(packages, 'new'), 'echo new');
    command(join(machine, 'node'), 'case $1 in *is-installed.js) exit 1;; esac; echo old');
    command(join(machine, 'npm'), `ln -s new "${packages}/node"`);
    // As npm sets it: what packages bring goes before what the machine has.
    const env = { PATH: `${packages}:${machine}:${bareEnv()['PATH']}` };
    for (const shell of SHELLS.filter(({ missing }) => !missing)) {
      rmSync(join(packages, 'node'), { force: true });
      const [option = ''] = shell.options.slice(-1);
      const { stdout } = spawnSync(shell.name, [option, scripts.prestart], { env, encoding: 'utf8' });
      expect(stdout, shell.name).toBe('new\n');
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('installs packages only if not as locked', () => {
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-installed-'));
  try {
    const script = 'deploy/dev/is-installed.js';
    cpSync(join(ROOT, script), join(folder, script), { recursive: true });
    cpSync(join(ROOT, 'package.json'), join(folder, 'package.json'));
    const lock = (file: string, packages: object) => {
      mkdirSync(join(folder, file, '..'), { recursive: true });
      writeFileSync(join(folder, file), JSON.stringify({ packages }));
    };
    const run = (...args: string[]) =>
      spawnSync('node', [script, ...args], { cwd: folder, env: bareEnv(), encoding: 'utf8' });
    const isInstalled = (...args: string[]) => run(...args).status === 0;
    const a = { integrity: 'sha512-a' };
    const other = { integrity: 'sha512-b', optional: true };
    lock('package-lock.json', {
      '': { engines: { node: '>=24' } },
      'node_modules/a': a,
      'node_modules/b': other,
      'node_modules/c': { integrity: 'sha512-c', dev: true },
    });
    expect(isInstalled(), 'nothing is there').toBe(false);
    expect(run('--omit=dev').stderr).toContain('installing 1 packages with npm ci');
    lock('node_modules/.package-lock.json', { 'node_modules/a': a });
    expect(isInstalled('--omit=dev'), 'all but a package of another platform').toBe(true);
    expect(run().stderr, 'what only tests need').toContain('installing 1 packages with npm ci');
    lock('node_modules/.package-lock.json', {
      'node_modules/a': { integrity: 'sha512-old' },
      'node_modules/c': { integrity: 'sha512-c', dev: true },
    });
    expect(isInstalled(), 'another version').toBe(false);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('the top level is what the README says', () => {
  const hidden = /^\.|^node_modules$/;
  const files = readdirSync(ROOT).filter((name) => !hidden.test(name));
  const expected =
    'CHANGELOG.md CONTRIBUTING.md LICENSE README.md SECURITY.md bench biome.json control-plane deploy knip.json package-lock.json package.json shared test tsconfig.json verifier vitest.config.ts';
  expect(expected.split(' ')).toEqual(expect.arrayContaining(files));
});

describe("the README's commands", () => {
  let fleet: Fleet;
  beforeAll(async () => {
    // A slow machine is not what is tested.
    fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  });
  afterAll(() => fleet.stop());

  const [start, ...others] = commands;
  /** All of it is copied into one terminal. */
  const walk = others.join('\n');
  const composePage = readFileSync(join(ROOT, 'deploy/compose.md'), 'utf8');
  const compose = /```sh\n([\s\S]*?)```/.exec(composePage)?.[1] ?? '';
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'keyfence-readme-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  test('are tested elsewhere, on a short page', () => {
    expect(start).toBe('npm start');
    expect(commands).toHaveLength(5);
    expect(readme.split('\n').indexOf('npm start')).toBeLessThan(25);
    // zsh, as people use it, takes a line that begins with # for a command.
    expect([...commands, compose].filter((command) => /(?:^|\s)#/m.test(command))).toEqual([]);
    expect(wordsOf(readme)).toBeLessThanOrEqual(700);
  });

  /** Runs a block as it stands, but for the addresses, in a fresh shell, and returns the answers of its calls. */
  async function answersOf(block: string, { name, options }: (typeof SHELLS)[number], env = bareEnv()) {
    const script = block
      .replaceAll('http://127.0.0.1:3000', fleet.controlPlanes[0]?.address ?? '')
      .replaceAll('http://127.0.0.1:3001', fleet.verifiers[0]?.address ?? '');
    // Answers end without a line break.
    const lines = `curl() { command curl "$@"; echo; }\n${script}`;
    const { stdout } = await promisify(execFile)(name, [...options, lines], { cwd: folder, env });
    return stdout
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));
  }

  test.for(SHELLS)('of the walk work in $name $skipped', async (shell, { skip }) => {
    skip(shell.missing, 'not on this machine');
    // Where npm start leaves it.
    mkdirSync(join(folder, '.keyfence'));
    writeFileSync(join(folder, '.keyfence/root-key'), `${ROOT_KEY}\n`);
    expect(await answersOf(walk, shell)).toEqual([
      { keyId: expect.any(String), key: expect.any(String) },
      expect.objectContaining({ valid: true, code: 'VALID', apiId: 'shop', name: 'Ada' }),
      {
        propagation: expect.objectContaining({
          state: 'complete',
          by: 'acks',
          durable: true,
          verifiers: 1,
        }),
      },
      expect.objectContaining({ valid: false, code: 'DISABLED', enabled: false }),
    ]);
  });

  const noComposer = skippedWithout('docker-compose');
  test.skipIf(noComposer)(
    `for Docker Compose make the secrets that it takes, and create a key${noComposer}`,
    async () => {
      cpSync(join(ROOT, 'deploy'), join(folder, 'deploy'), { recursive: true, verbatimSymlinks: true });
      // No engine runs here: compose reads all files, and the control plane of the fleet takes the place of its own.
      const docker = [
        '#!/bin/sh -e',
        'test "$1 $2 $3 $4" = "compose -f deploy/compose.yaml up"',
        'for name in root-key control-plane-password verifier-password operator-password; do',
        '  test "$(wc -c < deploy/secrets/$name)" = 65; done',
        'docker-compose -f deploy/compose.yaml config -q',
        `echo ${ROOT_KEY} > deploy/secrets/root-key`,
      ];
      writeFileSync(join(folder, 'docker'), docker.join('\n'), { mode: 0o755 });
      for (const shell of SHELLS.filter(({ missing }) => !missing)) {
        rmSync(join(folder, 'deploy/secrets'), { recursive: true, force: true });
        const env = bareEnv();
        env['PATH'] = `${folder}:${env['PATH']}`;
        expect(await answersOf(compose, shell, env), shell.name).toEqual([
          { keyId: expect.any(String), key: expect.any(String) },
        ]);
      }
    },
  );
});

test('the commands of control-plane/clients/cli/README.md work as they stand, beside npm start', async () => {
  const page = readFileSync(join(ROOT, 'control-plane/clients/cli/README.md'), 'utf8');
  const [walk = '', ...others] = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block);
  expect(others).toEqual([]);
  const fleet = await Fleet.start();
  const folder = besideNpmStart(fleet);
  try {
    const env = bareEnv({ KEYFENCE_DATA: join(folder, '.keyfence'), XDG_CONFIG_HOME: folder });
    const { stdout } = await promisify(execFile)('sh', ['-ec', walk], { cwd: folder, env });
    expect(stdout).toContain('refused everywhere');
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shop' });
    expect(keys).toEqual([
      expect.objectContaining({ name: 'Ada', externalId: 'ada', enabled: true }),
      expect.objectContaining({ name: 'Grace', enabled: true }),
    ]);
  } finally {
    await fleet.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

const noCaddy = skippedWithout('caddy', 'bash');
test.skipIf(noCaddy)(
  `the commands of deploy/first-gateway.md work as they stand, beside npm start${noCaddy}`,
  async () => {
    const hour = () => Math.floor(Date.now() / 3_600_000);
    const before = hour();
    let statuses = await firstGateway();
    // The page's limit is of an hour, and a new one had begun.
    if (hour() !== before) statuses = await firstGateway();
    expect(statuses).toEqual([
      '401',
      'Hello from the API. 200',
      '403',
      'Hello from the API. 200',
      'Hello from the API. 200',
      '429',
      'HTTP/1.1 429',
      expect.stringMatching(/^retry-after: \d+/i),
      '401',
    ]);
  },
);

/** Follows the page, and returns the statuses that it prints. */
async function firstGateway(): Promise<readonly string[] | null> {
  const page = readFileSync(join(ROOT, 'deploy/first-gateway.md'), 'utf8');
  const [start = '', ...walk] = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block);
  const fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  const folder = besideNpmStart(fleet);
  try {
    const [gateway, api] = [await freePort(), await freePort()];
    const script = [
      "trap 'kill $(jobs -p)' EXIT",
      `until curl -s -o /dev/null http://127.0.0.1:8080/ && curl -s -o /dev/null http://127.0.0.1:8081/; do sleep 0.1; done`,
      ...walk,
    ].join('\n');
    const lines = `${start}${script}`
      .replaceAll('127.0.0.1:3001', new URL(fleet.verifiers[0]?.address ?? '').host)
      .replaceAll('127.0.0.1:8081', `127.0.0.1:${api}`)
      .replaceAll('127.0.0.1:8080', `127.0.0.1:${gateway}`)
      .replaceAll('PORT=8080', `PORT=${gateway}`);
    const env = bareEnv({ KEYFENCE_DATA: join(folder, '.keyfence'), XDG_CONFIG_HOME: folder });
    const { stdout } = await promisify(execFile)('bash', ['-ec', lines], { cwd: folder, env });
    const printed = stdout.replace(/^x-request-id: .*$/gim, '');
    return printed.match(/(?:Hello from the API\. |(?<![-\w =]))\d{3}$|^HTTP\S+ \d+|^Retry-After: \d+/gim);
  } finally {
    await fleet.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

test('a client waits longer than its sidecar for Redis', () => {
  const longest = Number(engineSettings.LOOKUP_WAIT_MS.default) + 2 * RECALL_MS;
  expect(Number(clientSettings.TIMEOUT_MS.default)).toBeGreaterThan(longest);
});

/** Returns a folder like the project's, with what npm start leaves there while it runs. */
function besideNpmStart(fleet: Fleet): string {
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-commands-'));
  for (const file of ['package.json', 'node_modules', 'control-plane', 'deploy', 'shared', 'verifier'])
    symlinkSync(join(ROOT, file), join(folder, file));
  mkdirSync(join(folder, '.keyfence'));
  writeFileSync(join(folder, '.keyfence/root-key'), `${ROOT_KEY}\n`);
  const [controlPlane = '', verifier = ''] = [fleet.controlPlanes[0]?.address, fleet.verifiers[0]?.address];
  takeFolder(join(folder, '.keyfence'));
  tell(join(folder, '.keyfence'), { pid: process.pid, controlPlane, verifier });
  return folder;
}
