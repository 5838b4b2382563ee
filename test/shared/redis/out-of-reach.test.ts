import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import { request } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { createLogger } from '../../../shared/process/log.ts';
import { RedisNodes } from '../../../shared/redis/redis.ts';
import { troubleOf } from '../../../shared/redis/redis-fault.ts';
import { start } from '../../control-plane/clients/cli/keyfence.ts';
import { makeCertificate } from '../../harness/certificates.ts';
import { redisConfig } from '../../harness/config.ts';
import { freePort } from '../../harness/ports.ts';
import { Process } from '../../harness/processes.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { OldRedis } from './old-redis.ts';

const ROOT_KEY = `root-key-${'0123456789'.repeat(3)}`;
const processes: Process[] = [];
const stops: (() => Promise<unknown>)[] = [];
let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'keyfence-out-of-reach-'));
});
afterEach(async () => {
  for (const process of processes.splice(0)) await process.stop('SIGKILL');
  for (const stop of stops.splice(0)) await stop();
  rmSync(directory, { recursive: true });
});

/** Both processes at one Redis; LOG_LEVEL is what a careful operator would set at the most. */
async function startBoth(REDIS_URL: string, env = {}) {
  const all = { REDIS_URL, LOG_LEVEL: 'info', ...env };
  const controlPlane = new Process('control-plane/main.ts', { ...all, ROOT_KEY });
  const verifier = new Process('verifier/main.ts', { ...all, API_IDS: 'shop' });
  processes.push(controlPlane, verifier);
  await Promise.all([controlPlane.start(), verifier.start()]);
  return { controlPlane, verifier };
}

const call = async (at: Process, operation: string, body: object) => {
  const headers = { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' };
  const options = { method: 'POST', headers, body: JSON.stringify(body) } as const;
  const answer = await request(`${at.address}/v1/${operation}`, options);
  await answer.body.dump();
  return answer.statusCode;
};
const readyz = async (at: Process) => {
  const answer = await request(`${at.adminAddress}/readyz`);
  return { status: answer.statusCode, text: await answer.body.text() };
};
/** Warnings and worse, without how often. */
const said = ({ output }: Process) =>
  output
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { level: number; msg: string })
    .filter(({ level }) => level >= 40)
    .map(({ msg }) => msg);

test('both name Redis 6 as too old at once', async () => {
  const redis = await OldRedis.start();
  stops.push(() => redis.stop());
  const { controlPlane, verifier } = await startBoth(redis.url);
  const tooOld = 'Redis 6.2.14 is too old: use Redis 7 or newer, and set REDIS_URL to its address';
  expect(await call(controlPlane, 'keys.createKey', { apiId: 'shop' })).toBe(503);
  expect(await call(verifier, 'keys.verifyKey', { key: 'key' })).toBe(200); // by its checksum alone
  for (const process of [controlPlane, verifier]) {
    await expect.poll(() => said(process)).toContain(`Redis is out of reach: ${tooOld}`);
    await expect
      .poll(() => readyz(process))
      .toMatchObject({ status: 503, text: expect.stringContaining(tooOld) });
  }
  const env = { PATH: process.env['PATH'] ?? '', REDIS_URL: redis.url, KEYFENCE_URL: controlPlane.address };
  const doctor = await start(['doctor'], env).ended;
  expect(doctor.stdout).toContain(tooOld);
  expect(doctor.stderr).not.toMatch(/^\s+at /m);
  expect(doctor.status).toBe(1);
});

test('Redis absent at the start is named at once', async () => {
  const port = await freePort();
  const { controlPlane, verifier } = await startBoth(`redis://127.0.0.1:${port}`);
  const absent = new RegExp(`^Redis is out of reach: .*ECONNREFUSED 127.0.0.1:${port}; .*REDIS_URL`);
  for (const process of [controlPlane, verifier]) {
    await expect.poll(() => said(process)).toContainEqual(expect.stringMatching(absent));
    expect(said(process).filter((line) => absent.test(line))).toHaveLength(1);
  }
  const redis = await RedisNode.start(directory, [], port);
  stops.push(() => redis.stop());
  for (const process of [controlPlane, verifier]) {
    await expect.poll(() => process.output).toContain('Redis is in reach again');
    await expect.poll(async () => (await readyz(process)).status).toBe(200);
  }
});

test('a wrong password or TLS names the setting', async () => {
  const redis = await RedisNode.start(directory);
  stops.push(() => redis.stop());
  await redis.command('ACL', 'SETUSER', 'keyfence', 'on', '>right', '~*', '&*', '+@all');
  const troubleWith = async (env: Record<string, string>) => {
    const config = redisConfig({
      REDIS_URL: redis.url,
      REDIS_CONNECT_TIMEOUT_MS: '30000',
      ...env,
    });
    const nodes = new RedisNodes(config, systemClock, createLogger('verifier', 'silent'));
    await Promise.resolve(nodes.connection('')).catch(() => undefined);
    await nodes.close();
    return nodes.trouble ?? '';
  };
  const wrong = await troubleWith({ REDIS_USERNAME: 'keyfence', REDIS_PASSWORD: 'hunter2' });
  expect(wrong).toMatch(/WRONGPASS.*REDIS_PASSWORD_FILE/);
  expect(wrong).not.toContain('hunter2');
  // Such a Redis waits for the end of a line, in vain.
  const toPlainPort = { REDIS_URL: `rediss://127.0.0.1:${redis.port}`, REDIS_CONNECT_TIMEOUT_MS: '500' };
  expect(await troubleWith(toPlainPort)).toMatch(/redis:\/\/.*REDIS_URL/);
  expect(await troubleWith({ REDIS_URL: 'redis://no-such-host.invalid' })).toContain('REDIS_URL');
  expect(await troubleWith({ REDIS_URL: `unix://${directory}/none.sock` })).toMatch(/ENOENT.*REDIS_URL/);
  const { cert, keyFile, certFile } = makeCertificate(directory, 'weak', undefined, 'rsa:1024');
  const ciphers = 'DEFAULT@SECLEVEL=0'; // or this server itself would refuse it
  const weak = createServer({ cert, key: readFileSync(keyFile), ciphers }).listen(0, '127.0.0.1');
  await once(weak, 'listening');
  const { port } = weak.address() as AddressInfo;
  const atWeak = { REDIS_URL: `rediss://127.0.0.1:${port}`, REDIS_TLS_CA_FILE: certFile };
  expect(await troubleWith(atWeak)).toMatch(/key too weak.*2,048 bits/);
  weak.close();
  expect(await troubleWith({})).toBe('');
  await redis.command('ACL', 'SETUSER', 'default', 'off');
  expect(await troubleWith({})).toMatch(/NOAUTH.*REDIS_PASSWORD_FILE/);
});

test('tells errors that no advice is known for', () => {
  expect(troubleOf(new Error('something else'))).toBe('something else');
});
