import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { envOf, start, useCommandLine } from './keyfence.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { FOREIGN_KEYS: 'true' } });
});
afterAll(() => fleet.stop());

const commandLine = useCommandLine();
const run = (args: readonly string[], env = {}, input?: string) =>
  commandLine.run(args, envOf(fleet, env), input);
const fileOf = (name: string, lines: readonly unknown[]) => {
  const file = join(fleet.directory, name);
  const text = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)));
  writeFileSync(file, `${text.join('\n')}\n`);
  return file;
};
const total = async (apiId: string) => (await fleet.ok('apis.listKeys', { apiId, limit: '1' })).total;
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

/** A way to the control plane on which the calls of one operation are counted and can be held or refused. */
async function gate(operation: string, decide: (n: number) => 'pass' | 'hold' | 'refuse') {
  let calls = 0;
  const server = createServer((incoming: IncomingMessage, outgoing) => {
    const counts = incoming.url?.startsWith(`/v1/${operation}`);
    const decision = counts ? decide(++calls) : 'pass';
    if (decision === 'hold') return;
    if (decision === 'refuse') {
      outgoing.writeHead(503, { 'retry-after': '0' });
      return outgoing.end('{"error":{"code":"SERVICE_UNAVAILABLE","message":"not now","requestId":"r"}}');
    }
    const onwards = request(`${fleet.controlPlanes[0]?.address}${incoming.url}`, {
      method: incoming.method ?? '',
      headers: incoming.headers,
    });
    onwards.once('error', () => outgoing.destroy());
    onwards.once('response', (answer) => {
      outgoing.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(outgoing);
    });
    incoming.pipe(onwards);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls: () => calls,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

describe('import', () => {
  test('takes plain keys and sends only hashes', async () => {
    const [ours, foreign, hashed] = [generateKey(16, 'shop'), 'sk_live_secret-0123456789', 'another-secret'];
    const file = fileOf('mixed.ndjson', [
      { key: ours, name: 'Ada' },
      '',
      { key: foreign, externalId: 'o1', enabled: false },
      { sha256: sha256(hashed), meta: { plan: 'pro' } },
    ]);
    const { status, stdout, stderr } = await run(['keys', 'import', 'mixed', file]);
    expect(status).toBe(0);
    expect(stdout).toBe('4 lines: 3 created, 0 already there, 0 refused\n');
    expect(stderr).toContain('FOREIGN_KEYS=true');
    expect((await fleet.verify(ours)).body).toMatchObject({ code: 'VALID', name: 'Ada' });
    expect((await fleet.verify(foreign)).body).toMatchObject({ code: 'DISABLED' });
    expect((await fleet.verify(hashed)).body).toMatchObject({ code: 'VALID', meta: { plan: 'pro' } });
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'mixed' });
    expect(keys.map(({ start: shown }: { start: string }) => shown)).toEqual([ours.slice(0, 9), '', '']);
    const again = await run(['keys', 'import', 'mixed', '-', '--json'], {}, readFileSync(file, 'utf8'));
    expect(JSON.parse(again.stdout)).toMatchObject({ lines: 4, created: 0, exists: 3, refused: 0 });
  });

  test('reports refused lines by number only', async () => {
    const secret = 'do-not-repeat-me';
    const file = fileOf('faulty.ndjson', [
      { key: 'good-1' },
      `{"key":"${secret}"`,
      { key: secret, sha256: sha256(secret) },
      { name: secret },
      { key: `${secret} with a space` },
      { sha256: secret },
      { key: secret, enabeld: false },
      { key: 'x'.repeat(70_000) },
      [secret],
      { key: 'good-2' },
    ]);
    const { status, stdout, stderr } = await run(['keys', 'import', 'faulty', file, '--json']);
    expect(status).toBe(65);
    expect(JSON.parse(stdout)).toMatchObject({ lines: 10, created: 2, exists: 0, refused: 8 });
    const refused = stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(refused.map(({ line }) => line)).toEqual([2, 3, 4, 5, 6, 7, 8, 9]);
    expect(stderr).not.toContain(secret);
    expect(refused.map(({ message }) => message)).toEqual([
      'not a JSON object',
      'key and sha256: give only one of them',
      'key or a digest (sha256, sha512, sha1, hmacSha256): required',
      expect.stringContaining('key: must be'),
      expect.stringContaining('sha256: '),
      expect.stringContaining('enabeld'),
      expect.stringContaining('longer than'),
      'not a JSON object',
    ]);
  });

  test('sends no more bytes at once than are taken', async () => {
    const meta = { text: 'x'.repeat(8000) };
    const lines = Array.from({ length: 300 }, (_, i) => ({ sha256: sha256(`long-${i}`), meta }));
    const through = await gate('keys.importKeys', () => 'pass');
    try {
      const file = fileOf('long.ndjson', lines);
      const { status, stdout, stderr } = await run(['keys', 'import', 'long', file], {
        KEYFENCE_URL: through.url,
      });
      expect({ status, stdout, stderr }).toMatchObject({
        status: 0,
        stdout: '300 lines: 300 created, 0 already there, 0 refused\n',
      });
      expect(through.calls()).toBe(3);
      expect(await total('long')).toBe(300);
    } finally {
      through.close();
    }
  });

  /** Kills an import of `lines` when it has 2000 behind it, and gives what runs it again. */
  async function killed(apiId: string, lines: readonly unknown[]) {
    const file = fileOf(`${apiId}.ndjson`, lines);
    let open = false;
    const way = await gate('keys.importKeys', (n) => (n > 4 && !open ? 'hold' : 'pass'));
    const env = envOf(fleet, { KEYFENCE_URL: way.url });
    const { child, ended } = start(['keys', 'import', apiId, file], env);
    await fleet.until(() => way.calls() > 4);
    child.kill('SIGKILL');
    await ended;
    open = true;
    const before = way.calls();
    return {
      file,
      async again() {
        const ended = await start(['keys', 'import', apiId, file], env).ended;
        way.close();
        return { ...ended, calls: way.calls() - before };
      },
    };
  }

  test('resumes after a kill, making each key once', async () => {
    const keys = Array.from({ length: 2999 }, (_, i) => ({ key: `killed-${i}` }));
    const { file, again } = await killed('killed', [{ nonsense: 1 }, ...keys]);
    expect(await total('killed')).toBe(1999);
    const { status, stdout, stderr, calls } = await again();
    expect(stderr).toContain('Continuing after line 2,000.');
    expect(stdout).toBe('3,000 lines: 2,999 created, 0 already there, 1 refused\n');
    expect({ status, calls }).toEqual({ status: 65, calls: 2 });
    expect(existsSync(`${file}.progress`)).toBe(false);
  });

  test('begins anew for another file', async () => {
    const keys = Array.from({ length: 2500 }, (_, i) => ({ key: `changed-${i}` }));
    const { again } = await killed('changed', keys);
    fileOf('changed.ndjson', keys.toReversed());
    const { stdout, stderr } = await again();
    expect(stderr).toContain('starting from the beginning');
    expect(stdout).toBe('2,500 lines: 500 created, 2,000 already there, 0 refused\n');
  });

  test('stops after Ctrl-C once answers are noted', async () => {
    const file = fileOf(
      'stopped.ndjson',
      Array.from({ length: 2500 }, (_, i) => ({ key: `stopped-${i}` })),
    );
    let held = true;
    const way = await gate('keys.importKeys', () => (held ? 'refuse' : 'pass'));
    const { child, ended } = start(
      ['keys', 'import', 'stopped', file],
      envOf(fleet, { KEYFENCE_URL: way.url }),
    );
    await fleet.until(() => way.calls() > 4);
    held = false;
    child.kill('SIGINT');
    const { status, stderr } = await ended;
    way.close();
    expect(status).toBe(130);
    expect(stderr).toContain('after line 2000; run the command again to continue');
    expect(await total('stopped')).toBe(2000);
  });

  test('reads a file that is larger than its memory', async () => {
    const padding = ' '.repeat(60_000);
    const file = fileOf(
      'large.ndjson',
      Array.from({ length: 1500 }, (_, i) => `{"key":"large-${i}"${padding}}`),
    );
    const env = envOf(fleet, { NODE_OPTIONS: '--max-old-space-size=48' });
    const { status, stdout } = await start(['keys', 'import', 'large', file], env).ended;
    rmSync(file);
    expect(stdout).toBe('1,500 lines: 1,500 created, 0 already there, 0 refused\n');
    expect(status).toBe(0);
  });

  test('waits while the control plane is full', async () => {
    const file = fileOf('patient.ndjson', [{ key: 'patient-1' }]);
    const way = await gate('keys.importKeys', (n) => (n <= 3 ? 'refuse' : 'pass'));
    const { status, stdout, stderr } = await run(['keys', 'import', 'patient', file], {
      KEYFENCE_URL: way.url,
    });
    way.close();
    expect(stderr).toContain('not now; trying again\n');
    expect(stdout).toContain('1 created');
    expect(status).toBe(0);
  });
});

describe('export', () => {
  test('writes keys by creation, without secrets', async () => {
    const lines = Array.from({ length: 250 }, (_, i) => ({ key: `exported-${i}`, name: `n${i}` }));
    await run(['keys', 'import', 'exported', fileOf('exported.ndjson', lines)]);
    const { stdout } = await run(['keys', 'export', 'exported']);
    const keys = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(new Set(keys.map(({ name }) => name)).size).toBe(250);
    expect(keys.toSorted((a, b) => a.createdAt - b.createdAt)).toEqual(keys);
    expect(stdout).not.toContain('exported-');
    expect(stdout).not.toContain(sha256('exported-1'));
  });

  test('into a file resumes, with each key once', async () => {
    const output = join(fleet.directory, 'out.ndjson');
    let held = true;
    const way = await gate('apis.listKeys', (n) => (n > 2 && held ? 'hold' : 'pass'));
    const env = envOf(fleet, { KEYFENCE_URL: way.url });
    const { child, ended } = start(['keys', 'export', 'exported', '--output', output], env);
    await fleet.until(() => way.calls() > 2);
    child.kill('SIGKILL');
    await ended;
    writeFileSync(output, '{"half a li', { flag: 'a' });
    held = false;
    const second = await start(['keys', 'export', 'exported', '--output', output], env).ended;
    way.close();
    expect(second).toMatchObject({ status: 0, stdout: '250 keys exported\n' });
    expect(second.stderr).toContain('Continuing after 200 keys.');
    const names = readFileSync(output, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).name);
    expect(new Set(names).size).toBe(250);
    expect(names).toHaveLength(250);
    expect(existsSync(`${output}.progress`)).toBe(false);
    const third = await run(['keys', 'export', 'exported', '--output', output]);
    expect(third.status, 'what is there already is not written over').toBe(64);
  });
});
