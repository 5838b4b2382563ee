import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Session } from 'node:inspector/promises';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Metrics } from '../control-plane/metrics.ts';
import { makeParts } from '../control-plane/parts.ts';
import { startRedis } from '../deploy/dev/redis-server.ts';
import { systemClock } from '../shared/process/clock.ts';
import { createLogger } from '../shared/process/log.ts';
import { controlPlaneConfig } from './harness/config.ts';
import { Fleet, ROOT_KEY } from './harness/fleet.ts';
import { scratch } from './harness/scratch.ts';
import { eventually } from './harness/waiting.ts';

const ROOT = join(import.meta.dirname, '..');
const textOf = (file: string) => readFileSync(join(ROOT, file), 'utf8');

interface Step {
  readonly file: string;
  readonly name: string;
  /** The name by which its caller calls it. */
  readonly calledAs: string;
  readonly caller: Step | undefined;
}

/** The steps of each walk, by its title. */
function walksOf(page: string): Map<string, Step[]> {
  const walks = new Map<string, Step[]>();
  for (const section of page.split(/^## /m).slice(1)) {
    const title = section.split('\n', 1)[0] ?? '';
    const callers: Step[] = [];
    const steps = [...section.matchAll(/^( *)- `([^`]+)` › `([^`]+)`(?: \(as `([^`]+)`\))?/gm)];
    walks.set(
      title,
      steps.map(([, indent = '', file = '', name = '', calledAs = name]) => {
        const depth = indent.length / 2;
        const step = { file, name, calledAs, caller: depth === 0 ? undefined : callers[depth - 1] };
        callers[depth] = step;
        return step;
      }),
    );
  }
  return walks;
}

/** The texts of all functions of this name in a file, by its indentation. */
function functionsIn(file: string, name: string): string[] {
  const lines = textOf(file).split('\n');
  const declared = new RegExp(
    `^(\\s*)((?:(?:export|readonly|async|const|function\\*?|get) )*)${name}(?:<.*>)?(?:\\(|: | = )`,
  );
  return lines.flatMap((line, at) => {
    const [, indent = '', words = ''] = declared.exec(line) ?? [undefined, undefined, 'none'];
    if (words === 'none' || (words === '' && /[;,]$/.test(line) && !line.includes('=>'))) return [];
    const isWithin = (each: string) =>
      each.startsWith(`${indent} `) || each.trim() === '' || /^\s*[})].*(?:[{(]|=>)$/.test(each);
    const end = lines.findIndex((each, i) => i > at && !isWithin(each));
    return [lines.slice(at, end + 1).join('\n')];
  });
}

const walks = walksOf(textOf('shared/walks.md'));

describe.each([...walks])('%s', (_title, steps) => {
  test.each(steps.map((step) => [`${step.file} › ${step.name}`, step] as const))('%s', (_name, step) => {
    const { file, name, calledAs, caller } = step;
    expect(functionsIn(file, name)).not.toEqual([]);
    if (!caller) return;
    const call = new RegExp(`(?<![\\w#])${calledAs}(?!\\w)`);
    const callers = functionsIn(caller.file, caller.name);
    expect(callers.filter((text) => call.test(text.slice(text.indexOf('\n') + 1)))).not.toEqual([]);
  });
});

test('only what is there, and what its caller names, would pass', () => {
  expect(functionsIn('shared/protocol/follower/lease.ts', 'holdsNot')).toEqual([]);
  expect(functionsIn('shared/protocol/follower/lease.ts', 'holds').join()).not.toContain('extend(');
  expect(functionsIn('shared/protocol/writer/fence.ts', '#inspect').join()).toContain('#end(change');
  expect(functionsIn('shared/protocol/writer/fence.ts', '#inspect').join()).not.toContain('#cover(');
});

/** The names of the functions that ran, by file. */
type Ran = Map<string, Set<string>>;

/** Watches which functions of this project run in this process. */
class Watch {
  readonly #session = new Session();

  async begin(): Promise<void> {
    this.#session.connect();
    await this.#session.post('Profiler.enable');
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  }

  /** Returns what ran since it was called last. */
  async take(): Promise<Ran> {
    const { result } = await this.#session.post('Profiler.takePreciseCoverage');
    const ran: Ran = new Map();
    for (const { url, functions } of result) {
      const [, file] = /^(?:file:\/\/)?(.*\.tsx?)(?:\?.*)?$/.exec(url) ?? [];
      if (!file?.startsWith(ROOT)) continue;
      const names = functions.filter(({ functionName, ranges }) => functionName && ranges[0]?.count);
      if (names.length > 0)
        ran.set(file.slice(ROOT.length + 1), new Set(names.map(({ functionName }) => functionName)));
    }
    return ran;
  }
}

const watch = new Watch();
beforeAll(() => watch.begin());

const isInBrowser = ({ file }: Step) => /^control-plane\/clients\/(dashboard|client)\//.test(file);

/** The steps of a walk that did not run. */
const missed = (number: number, ran: Ran) =>
  ([...walks.values()][number - 1] ?? [])
    .filter((step) => !isInBrowser(step) && !ran.get(step.file)?.has(step.name))
    .map(({ file, name }) => `${file} › ${name}`);

describe('in a fleet', () => {
  let fleet: Fleet;
  /** What ran since the start. */
  const all: Ran = new Map();

  const taken = async (): Promise<Ran> => {
    const ran = await watch.take();
    for (const [file, names] of ran) all.set(file, new Set([...(all.get(file) ?? []), ...names]));
    return ran;
  };
  /** What runs while something is done. */
  const during = async (act: () => Promise<unknown>): Promise<Ran> => {
    await taken();
    await act();
    return taken();
  };
  const keyWith = (fields: object = {}) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

  beforeAll(async () => {
    fleet = await Fleet.start({
      env: {
        WEBHOOK_NETWORKS: '127.0.0.0/8',
        LEASE_MS: '5000',
        AUTHZ_TOKEN: 'true',
        TOKEN_KEY: 'a secret of walks, long enough for all',
      },
    });
    await fleet.verdict((await keyWith()).key);
  });
  afterAll(() => fleet?.stop());

  test('a hit, a miss, an exchange, updateKey and its message run as the page says', async () => {
    const { key, keyId } = await keyWith();
    const miss = await during(() => fleet.verdict(key));
    expect(missed(2, miss)).toEqual([]);
    const hit = await during(() => fleet.verdict(key));
    expect(missed(1, hit)).toEqual([]);
    const { key: paid } = await keyWith({ remaining: 100 });
    expect(missed(5, await during(() => fleet.verdict(paid)))).toEqual([]);
    const update = await during(() => fleet.ok('keys.updateKey', { keyId, enabled: false }));
    expect(missed(3, update)).toEqual([]);
    expect(missed(4, update)).toEqual([]);
  });

  test('a hold runs as the page says', async () => {
    const { key } = await keyWith({ remaining: 1000, concurrency: [{ name: 'jobs', limit: 100 }] });
    const question = { key, hold: { credits: 5 } };
    const verifier = fleet.verifiers[0]?.address;
    const ask = async () => (await fleet.post(`${verifier}/v1/keys.verifyKey`, question)).body;
    const work = async () => {
      const { hold } = await ask();
      await fleet.post(`${verifier}/v1/keys.release`, { hold: hold.id, cost: 2 });
    };
    await fleet.verdict(key);
    await taken();
    const ran: Ran = new Map();
    await eventually(async () => {
      await work();
      for (const [file, names] of await taken()) ran.set(file, new Set([...(ran.get(file) ?? []), ...names]));
      return missed(8, ran).length === 0;
    }, 'not all of the eighth walk ran').catch(() => undefined);
    expect(missed(8, ran)).toEqual([]);
  });

  test("a token in a gateway's answer runs as the page says", async () => {
    const { key } = await keyWith({ apiId: 'files' });
    await fleet.ok('apis.updateApi', { apiId: 'files', tokens: true });
    const url = `${fleet.verifiers[0]?.address}/authz/api/files/forward-auth`;
    const ran: Ran = new Map();
    await taken();
    await eventually(async () => {
      await fleet.get(url, { authorization: `Bearer ${key}` });
      for (const [file, names] of await taken()) ran.set(file, new Set([...(ran.get(file) ?? []), ...names]));
      return missed(9, ran).length === 0;
    }, 'not all of the ninth walk ran').catch(() => undefined);
    expect(missed(9, ran)).toEqual([]);
  });

  test('a webhook runs as the page says', async () => {
    const arrived = Promise.withResolvers<void>();
    const receiver = createServer((_request, response) => {
      response.end();
      arrived.resolve();
    });
    await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
    const { port } = receiver.address() as AddressInfo;
    const { keyId } = await keyWith();
    await fleet.ok('webhooks.createEndpoint', { url: `http://127.0.0.1:${port}/`, events: ['key.disabled'] });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    await arrived.promise;
    await eventually(async () => {
      await taken();
      return missed(6, all).length === 0;
    }, 'not all of the sixth walk ran').catch(() => undefined);
    expect(missed(6, all)).toEqual([]);
    receiver.close();
  });

  test('a click on Disable runs as the page says', async () => {
    const { keyId } = await keyWith();
    const base = fleet.controlPlanes[0]?.address;
    const session = await fleet.post(`${base}/dashboard/session`, { rootKey: ROOT_KEY });
    const [cookie = ''] = String(session.headers['set-cookie']).split(';');
    const headers = { cookie, 'x-keyfence-csrf': session.body.csrfToken };
    const click = await during(async () => {
      const answer = await fleet.post(`${base}/v1/keys.updateKey`, { keyId, enabled: false }, headers);
      expect(answer.status).toBe(200);
    });
    expect(missed(7, click)).toEqual([]);
  });
});

test('the write and the wait of updateKey run the files that the page lists, and no others', async () => {
  const redis = await startRedis(scratch('walks'));
  const config = controlPlaneConfig({ REDIS_URL: redis.url, ROOT_KEY });
  const log = createLogger('control-plane', 'silent');
  const parts = makeParts({ config, clock: systemClock, log, metrics: new Metrics() });
  try {
    const apiId = 'shop';
    const { keyId } = await parts.keys.create({ apiId, meta: {}, enabled: true });
    const write = { apiId, operation: 'update', keyId, fields: { e: '0' } } as const;
    await parts.changeWriter.apply(write);
    await watch.take();
    expect(await parts.changeWriter.apply(write)).toMatchObject({ state: 'complete' });
    const ran = await watch.take();
    const files = [...ran.keys()].filter((file) => !file.startsWith('test/')).sort();
    const [, list = '', besides = ''] =
      /run code of these files only:\n\n([\s\S]*?)\n\n((?:.+\n)+)/.exec(textOf('shared/walks.md')) ?? [];
    const listed = list.split('\n').flatMap((line) => {
      const [folder = '', ...names] = [...line.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
      return names.length === 0 ? [folder] : names.map((name) => folder + name);
    });
    const ofDurability = [...besides.matchAll(/`([^`]+)`/g)].map(([, file = '']) => file);
    expect([...listed, ...ofDurability].sort()).toEqual(files);
    expect(listed.length).toBeLessThanOrEqual(12);
  } finally {
    await parts.nodes.close();
    await redis.stop();
  }
});
