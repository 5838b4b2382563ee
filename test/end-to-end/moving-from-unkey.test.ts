import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { appendFileSync, copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { type HostedKey, HostedService } from '../harness/hosted-service.ts';

/**
 * The programs of control-plane/unkey-v2/moving.md, as they stand, with the client of today on both sides: they move keys
 * from a simulated service while keys are used, and are killed before and after calls that matter.
 */
const API = 'api_moved';
const ROOT = join(import.meta.dirname, '..', '..');

const newKey = (n: number): HostedKey => ({
  secret: `hosted_${randomBytes(16).toString('base64url')}`,
  isRecoverable: n % 2 === 0,
  data: {
    ...{ keyId: `key_there_${n}`, start: 'hosted_', createdAt: 1_700_000_000_000 + n, enabled: n % 10 !== 3 },
    ...(n % 3 ? { name: `Key ${n}` } : {}),
    ...(n % 4 ? {} : { meta: { plan: `plan ${n}` } }),
    ...(n % 5 ? {} : { permissions: [`files.${n}`, 'files.read'] }),
    ...(n % 6 ? {} : { roles: ['Billing Manager', 'reader'] }),
    ...(n % 7 ? {} : { identity: { id: 'id_there', externalId: n % 2 ? 'ada' : 'grace' } }),
    ...(n % 10 === 4 ? { expires: n % 20 === 4 ? 1_600_000_000_000 : 4_000_000_000_000 } : {}),
    ...(n % 10 === 5 ? { credits: { remaining: n === 5 ? 0 : 100_000 + n } } : {}),
    ...(n % 10 === 8
      ? { credits: { remaining: 100_000 - n, refill: { interval: 'monthly', amount: 9, refillDay: 3 } } }
      : {}),
    ...(n % 9
      ? {}
      : {
          ratelimits: [
            { id: `rl_${n}`, name: 'default', limit: 1000, duration: 60_000, autoApply: false },
            { id: `rm_${n}`, name: 'tokens', limit: 5, duration: 60_000, autoApply: true },
          ],
        }),
  },
});
const keys = [...Array(130).keys()].map(newKey);
/** In so many parts, one after the other, keys are used. */
const PARTS = 8;
/** Those of which nobody has the hash until they are used. */
const UNRECORDED = [7, 21, 101];

let fleet: Fleet;
let hosted: HostedService;
let folder: string;
let crossing: Crossing;
let verify: (question: { key: string }) => Promise<{ code: string; keyId?: string }>;
let env: Record<string, string>;
const children: ChildProcess[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({
    env: { FOREIGN_KEYS: 'true', LEASE_MS: '30000', LOOKUP_WAIT_MS: '5000', ROOT_KEY_CALLS_PER_MINUTE: '0' },
  });
  const permissions = ['files.read', 'files.write'].map((slug) => ({
    id: `perm_${slug}`,
    slug,
    name: `May ${slug}`,
  }));
  hosted = await HostedService.start({
    keys,
    permissions,
    roles: [
      { id: 'role_1', name: 'Billing Manager', description: 'Bills', permissions },
      { id: 'role_2', name: 'reader', permissions: permissions.slice(0, 1) },
    ],
    identities: [
      {
        ...{ id: 'id_there', externalId: 'ada', meta: { country: 'uk' } },
        ratelimits: [{ id: 'rl_i', name: 'requests', limit: 10_000, duration: 60_000, autoApply: false }],
      },
    ],
  });
  crossing = await Crossing.start(fleet.controlPlanes[0]?.address ?? '', hosted.address);
  folder = join(fleet.directory, 'move');
  mkdirSync(join(folder, 'node_modules/@unkey'), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules/unkey-api-2'), join(folder, 'node_modules/@unkey/api'));
  for (const program of ['verify.mjs', 'move.mjs'])
    copyFileSync(join(ROOT, 'control-plane/unkey-v2', program), join(folder, program));
  const sums = keys.flatMap(({ data, secret, isRecoverable }, n) =>
    isRecoverable || UNRECORDED.includes(n)
      ? []
      : [
          `${data.keyId},${createHash('sha256')
            .update(secret)
            .digest(n % 3 ? 'base64' : 'hex')}\n`,
        ],
  );
  writeFileSync(join(folder, 'hashes.csv'), sums.join(''));
  env = {
    ...{ API_ID: API, THERE_ROOT_KEY: hosted.rootKey, THERE_URL: crossing.there, DECRYPT: 'true' },
    ...{ HERE_ROOT_KEY: ROOT_KEY, HERE_URL: crossing.here, VERIFIER_URL: fleet.verifiers[0]?.address ?? '' },
  };
  verify = await gateway();
});
afterAll(async () => {
  for (const child of children) child.kill();
  await crossing?.stop();
  await hosted?.stop();
  await fleet.stop();
});

/** Runs the page's gateway in a process of its own, and returns its function. */
async function gateway(): Promise<typeof verify> {
  const program = `
    import { createInterface } from 'node:readline';
    import { verify } from ${JSON.stringify(pathToFileURL(join(folder, 'verify.mjs')).href)};
    for await (const line of createInterface({ input: process.stdin })) {
      const { n, question } = JSON.parse(line);
      verify(question).then(
        (verdict) => console.log(JSON.stringify({ n, verdict })),
        (error) => console.log(JSON.stringify({ n, error: String(error) })),
      );
    }`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    ...{ cwd: folder, env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'inherit'] },
  });
  const waiting = new Map<number, (answer: { verdict: { code: string }; error?: string }) => void>();
  let rest = '';
  child.stdout?.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const answer = JSON.parse(line);
      waiting.get(answer.n)?.(answer);
    }
  });
  children.push(child);
  let n = 0;
  return (question) =>
    new Promise((resolve, reject) => {
      const mine = n++;
      waiting.set(mine, ({ verdict, error }) => (error ? reject(new Error(error)) : resolve(verdict)));
      child.stdin?.write(`${JSON.stringify({ n: mine, question })}\n`);
    });
}

type Moment = 'before' | 'after';

/** Stands between the mover and both sides, and stops the mover at one call: before it arrives, or before its answer does. */
class Crossing {
  #stopsAt: { path: string; moment: Moment; nth: number; stop: () => Promise<void> } | undefined;
  readonly #servers: Server[] = [];
  readonly #waiting: (() => void)[] = [];
  here = '';
  there = '';

  static async start(here: string, there: string): Promise<Crossing> {
    const crossing = new Crossing();
    crossing.here = await crossing.#towards(here);
    crossing.there = await crossing.#towards(there);
    return crossing;
  }

  stopAt(path: string, moment: Moment, nth: number, stop: () => Promise<void>): void {
    this.#stopsAt = { path, moment, nth, stop };
  }

  /** Resolves at the next call of whoever. */
  nextCall(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Lets go whoever waits for a call. */
  release(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  async stop(): Promise<void> {
    for (const server of this.#servers) {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    }
  }

  async #towards(target: string): Promise<string> {
    const server = createServer(async (request, response) => {
      const { method = '', url = '' } = request;
      this.release();
      const body = await text(request);
      if (await this.#stops(url, 'before')) return;
      const headers = {
        authorization: request.headers.authorization ?? '',
        'content-type': 'application/json',
      };
      const answer = await fetch(target + url, { method, headers, body });
      const content = await answer.text();
      if (await this.#stops(url, 'after')) return;
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(content);
    });
    this.#servers.push(server);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  async #stops(url: string, moment: Moment): Promise<boolean> {
    const at = this.#stopsAt;
    if (at?.path !== url || at.moment !== moment || --at.nth > 0) return false;
    this.#stopsAt = undefined;
    await at.stop();
    return true;
  }
}

/** Runs the page's mover to its end, or until it is killed at a call. Returns what it wrote, or undefined. */
async function move(
  killedAt?: readonly [path: string, moment: Moment, nth: number],
): Promise<string | undefined> {
  const child = spawn(process.execPath, ['move.mjs'], {
    ...{ cwd: folder, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] },
  });
  const exit = once(child, 'exit');
  if (killedAt)
    crossing.stopAt(...killedAt, async () => {
      child.kill('SIGKILL');
      await exit;
    });
  const [out, errors] = await Promise.all([text(child.stdout as never), text(child.stderr as never), exit]);
  expect(errors).toBe('');
  expect(child.signalCode).toBe(killedAt ? 'SIGKILL' : null);
  return killedAt ? undefined : out.trim();
}

/** The code of each key's verdict, before the move and after it. */
const codeOf = (n: number): string => {
  if (n % 10 === 3) return 'DISABLED';
  if (n % 20 === 4) return 'EXPIRED';
  return n === 5 ? 'USAGE_EXCEEDED' : 'VALID';
};

/** The whole lines of the journal. */
const journal = () =>
  [...readFileSync(join(folder, 'moved.ndjson'), 'utf8').matchAll(/^\{.*\}$/gm)].map(
    ([line]) => JSON.parse(line) as { keyId: string; movedTo?: string },
  );
const newIds = () => new Map(journal().flatMap(({ keyId, movedTo }) => (movedTo ? [[keyId, movedTo]] : [])));

test('a killed mover loses and doubles no key', async () => {
  // Those without a limit that these uses would reach.
  const used = [...keys.keys()].filter((n) => n % 9 !== 0 && !UNRECORDED.includes(n));
  const accepted = new Map<number, number>();
  const wrong: string[] = [];
  let isMoving = true;
  const use = async (n: number) => {
    const { code } = await verify({ key: keys[n]?.secret ?? '' });
    if (code !== codeOf(n)) wrong.push(`key ${n}: ${code}`);
    if (code === 'VALID') accepted.set(n, (accepted.get(n) ?? 0) + 1);
  };
  const using = (async () => {
    // A part of the keys at each call of the mover: it is the move that is tried, not the machine.
    for (let part = 0; isMoving; part++) {
      await Promise.all(used.filter((n) => n % PARTS === part % PARTS).map(use));
      if (isMoving) await crossing.nextCall();
    }
  })();
  const initial = keys.map(({ data }) => data.credits?.remaining);
  for (const kill of [
    ['/v2/permissions.createRole', 'after', 1],
    ['/v2/keys.migrateKeys', 'before', 1],
    ['/v2/keys.migrateKeys', 'after', 1],
    ['/v2/keys.migrateKeys', 'after', 2],
    ['/v1/keys.updateRemaining', 'before', 2],
    ['/v1/keys.updateRemaining', 'after', 3],
  ] as const)
    await move(kill);
  // A line of the journal that was cut off.
  appendFileSync(join(folder, 'moved.ndjson'), '\n{"keyId":"key_th');
  expect(await move()).toBe('127 moved, 3 without a hash');
  isMoving = false;
  crossing.release();
  await using;
  expect(wrong).toEqual([]);

  const admin = new Unkey({ rootKey: ROOT_KEY, serverURL: fleet.controlPlanes[0]?.address ?? '' });
  expect((await fleet.ok('apis.listKeys', { apiId: API, limit: '1' })).total).toBe(127);
  const ids = newIds();
  for (const [n, { data }] of keys.entries()) {
    if (UNRECORDED.includes(n)) continue;
    const { keyId, start: _start, createdAt: _createdAt, identity, credits, ratelimits, ...fields } = data;
    const read = async () => (await admin.keys.getKey({ keyId: ids.get(keyId) ?? '' })).data;
    const shown = await read();
    expect(shown).toMatchObject(fields);
    expect(shown.identity?.externalId).toBe((identity as { externalId: string } | undefined)?.externalId);
    expect(shown.ratelimits?.map(({ id: _id, ...limit }) => limit)).toEqual(
      (ratelimits as { id: string }[] | undefined)?.map(({ id: _id, ...limit }) => ({
        ...limit,
        autoApply: true,
      })),
    );
    expect(shown.credits?.refill).toEqual(credits?.refill);
    if (!credits) expect(shown.credits).toBeUndefined();
    // What a verifier holds of the credits is counted when it gives it back.
    else
      await fleet.until(
        async () => (await read()).credits?.remaining === (initial[n] ?? 0) - (accepted.get(n) ?? 0),
      );
    expect(await verify({ key: keys[n]?.secret ?? '' })).toMatchObject({
      code: codeOf(n),
      keyId: ids.get(keyId),
    });
  }
  const { data: role } = await admin.permissions.getRole({ role: 'Billing Manager' });
  expect(role).toMatchObject({
    description: 'Bills',
    permissions: [{ slug: 'files.read' }, { slug: 'files.write' }],
  });
  const { data: identity } = await admin.identities.getIdentity({ identity: 'ada' });
  expect(identity).toMatchObject({
    meta: { country: 'uk' },
    ratelimits: [{ name: 'requests', limit: 10_000 }],
  });
});

test('moves a key without a known hash once used', async () => {
  for (const n of UNRECORDED)
    expect(await verify({ key: keys[n]?.secret ?? '' })).toMatchObject({
      code: 'VALID',
      keyId: `key_there_${n}`,
    });
  expect(await move()).toBe('130 moved, 0 without a hash');
  await fleet.until(async () => {
    const verdicts = await Promise.all(UNRECORDED.map((n) => verify({ key: keys[n]?.secret ?? '' })));
    return verdicts.every(
      ({ code, keyId }, i) => code === 'VALID' && keyId === newIds().get(`key_there_${UNRECORDED[i]}`),
    );
  });
});

test('leaves alone what was changed here', async () => {
  const [disabled] = keys;
  await fleet.ok('keys.updateKey', { keyId: newIds().get(disabled?.data.keyId ?? ''), enabled: false });
  expect(await move()).toBe('130 moved, 0 without a hash');
  expect(await verify({ key: disabled?.secret ?? '' })).toMatchObject({ code: 'DISABLED' });
  await fleet.redis.stop();
  // In no verifier's memory; the service would answer.
  const unknown = () => verify({ key: `nobody_${randomBytes(16).toString('hex')}` });
  await fleet.until(async () =>
    unknown().then(
      () => false,
      () => true,
    ),
  );
});
