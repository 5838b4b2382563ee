import { execFile } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readCallLine } from '../../bench/revocation/call-line.ts';
import { type History, outcomes } from '../../bench/revocation/outcome.ts';
import { readTarget } from '../../bench/revocation/target.ts';

const ROOT = join(import.meta.dirname, '../..');
const ask = (sentMs: number, verdict: 'accepted' | 'refused' | 'failed') =>
  ({ kind: 'ask', trial: 0, instance: 0, sentMs, answeredMs: sentMs + 1, verdict }) as const;

test('the history alone decides what an outcome is', () => {
  const history: History = [
    ask(90, 'accepted'),
    { kind: 'revoke', trial: 0, sentMs: 100, answeredMs: 120, isClaimed: true },
    ...[ask(110, 'accepted'), ask(119.5, 'accepted'), ask(130, 'refused'), ask(140, 'accepted')],
    ...[ask(150, 'failed'), { ...ask(500, 'accepted'), trial: 1 }],
  ];
  const [outcome] = outcomes(history);
  expect(outcome).toEqual({
    claimedMs: 20,
    lastAcceptedMs: 40,
    falseComplete: 1,
    afterClaimMs: 20,
    failed: 1,
  });
  const unclaimed = history.map((event) =>
    event.kind === 'revoke' ? { ...event, isClaimed: false } : event,
  );
  expect(outcomes(unclaimed)[0]).toMatchObject({ claimedMs: undefined, falseComplete: 0 });
});

test('reads a curl line as a shell does', () => {
  const line = `curl -fsX POST 'http://a.example/x y' -H "X-Key: a\\"b" --json '{"a": 1}'`;
  expect(readCallLine(line, 'ask')).toEqual({
    ...{ method: 'POST', url: 'http://a.example/x y', body: '{"a": 1}' },
    headers: { 'x-key': 'a"b', 'content-type': 'application/json' },
  });
  expect(readCallLine('curl -u a:b http://a.example/', 'ask').headers).toEqual({
    authorization: 'Basic YTpi',
  });
  for (const [wrong, why] of [
    ['wget http://a.example/', 'begins with curl'],
    ['curl', 'an address'],
    ["curl 'http://a.example/", "the quote ' is not closed"],
    ['curl http://a.example/ http://b.example/', 'one address only'],
    ['curl http://a.example/ -d @file', 'not in a file'],
    ['curl http://a.example/ -H x', "'Name: value'"],
    ['curl http://a.example/ -o x', '-o is not understood'],
    ['curl http://a.example/ -H', '-H needs a value'],
  ] as const)
    expect(() => readCallLine(wrong, 'ask'), wrong).toThrow(why);
});

describe('a target', () => {
  const good = {
    name: 'x',
    create: { curl: 'curl http://a.example/create', take: { KEY: 'data.key' } },
    ask: { curl: 'curl http://a.example/$KEY', accepted: { status: 200 } },
    revoke: { curl: 'curl http://a.example/revoke', claim: { status: 200, has: 'done' } },
  };

  test('fills in what was taken, and the environment', () => {
    const target = readTarget(JSON.stringify(good), { KEY: 'of the environment' });
    expect(target.asks({ KEY: 'abc' }).map(({ url }) => url)).toEqual(['http://a.example/abc']);
    expect(() => readTarget(JSON.stringify(good), {}).asks({})).toThrow('ask.curl[0]: $KEY is not known');
  });

  test.each([
    ['{', 'not JSON'],
    ['[]', 'the file: an object with name'],
    [JSON.stringify({ ...good, asks: {} }), 'the file: asks is not known'],
    [JSON.stringify({ ...good, name: 1 }), 'name: a text'],
    [JSON.stringify({ ...good, ask: { ...good.ask, accepted: {} } }), 'ask.accepted.status: the number'],
    [JSON.stringify({ ...good, ask: { ...good.ask, curl: [] } }), 'ask.curl: at least one line'],
  ])('is refused with the field: %s', (text, why) => {
    expect(() => readTarget(text, {})).toThrow(why);
  });

  test('of ours can each be read', () => {
    const files = globSync('bench/revocation/targets/*.json', { cwd: ROOT });
    expect(files.length).toBeGreaterThan(8);
    for (const file of files) {
      const text = readFileSync(join(ROOT, file), 'utf8');
      const names = [...text.matchAll(/\$([A-Z][A-Z0-9_]*)/g)].map(([, name = '']) => name);
      const target = readTarget(text, Object.fromEntries(names.map((name) => [name, 'http://a.example'])));
      expect([target.create(), ...target.asks({}), target.revoke({})].length, file).toBeGreaterThan(2);
    }
    const page = readFileSync(join(ROOT, 'bench/revocation/README.md'), 'utf8');
    const [, example = ''] = /```json\n([\s\S]*?)```/.exec(page) ?? [];
    expect(readTarget(example, { API_1: 'http://a', API_2: 'http://b' }).asks({ KEY: 'k' })).toHaveLength(2);
  });
});

describe('the command', () => {
  /** Refuses a key 0 or 1000 ms after the call that revokes it ended. */
  let server: Server;
  let directory: string;
  let lateMs = 0;
  const revoked = new Map<string, number>();
  let keys = 0;

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'keyfence-revocation-'));
    server = createServer((request, response) => {
      const [, act, key = ''] = request.url?.split('/') ?? [];
      if (act === 'create') return void response.end(JSON.stringify({ key: String(keys++) }));
      if (act === 'revoke') revoked.set(key, Date.now() + lateMs);
      else if ((revoked.get(key) ?? Number.POSITIVE_INFINITY) <= Date.now()) response.statusCode = 401;
      response.end('{}');
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const target = {
      name: 'a server',
      create: { curl: `curl ${base}/create`, take: { KEY: 'key' } },
      ask: { curl: `curl ${base}/ask/$KEY`, accepted: { status: 200 } },
      revoke: { curl: `curl -X POST ${base}/revoke/$KEY`, claim: { status: 200 } },
    };
    writeFileSync(join(directory, 'ours.json'), JSON.stringify(target));
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const run = async (...args: string[]) => {
    const command = [
      join(ROOT, 'bench/revocation/revocation.ts'),
      '--revocations',
      '2',
      '--quiet',
      '300',
      ...args,
    ];
    return promisify(execFile)(process.execPath, command, { cwd: directory }).then(
      ({ stdout }) => ({ code: 0, stdout, stderr: '' }),
      (error: { code: number; stdout: string; stderr: string }) => error,
    );
  };

  test('finds no false claim where there is none', async () => {
    lateMs = 0;
    const { code, stdout } = await run(
      '--target',
      'ours.json',
      '--history',
      'history.jsonl',
      '--plot',
      'plot.svg',
    );
    expect(code).toBe(0);
    expect(stdout).toMatch(/accepted although the call claimed +0 of 2/);
    const history = readFileSync(join(directory, 'history.jsonl'), 'utf8').trim().split('\n');
    expect(outcomes(history.map((line) => JSON.parse(line)))).toHaveLength(2);
    expect(readFileSync(join(directory, 'plot.svg'), 'utf8')).toContain('<svg');
  });

  test('ends with status 3 after a false claim', async () => {
    lateMs = 1000;
    const { code, stdout } = await run('--target', 'ours.json', '--json');
    expect(code).toBe(3);
    for (const { lastAcceptedMs, falseComplete } of JSON.parse(stdout).outcomes) {
      expect(falseComplete).toBeGreaterThan(0);
      expect(lastAcceptedMs).toBeGreaterThan(0);
    }
  });

  test.each([
    [[], 2, '--target is missing'],
    [['--target', 'nowhere.json'], 1, 'ENOENT'],
    [['--target', 'ours.json', '--clients', '0'], 2, '--clients: a number from 1 to 1000'],
    [['--target', 'ours.json', '--wrong'], 2, '--wrong'],
  ])('says what is wrong with %j', async (args, status, why) => {
    const { code, stderr } = await run(...args);
    expect([code, stderr]).toEqual([status, expect.stringContaining(why)]);
  });
});
