import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createClient } from '../../../verifier/library/client.ts';
import { envOf, useCommandLine } from '../../control-plane/clients/cli/keyfence.ts';
import { Fleet } from '../../harness/fleet.ts';

let fleet: Fleet;
const commandLine = useCommandLine();
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { USAGE_PERIOD_MS: '50' } });
});
afterAll(() => fleet.stop());

const OFFICE = ['192.0.2.0/24', '2001:db8::/32'];
const keyFor = (fields: object): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const codeFrom = (key: string, clientIp?: string, more: object = {}) =>
  fleet.verdict(key, { ...(clientIp === undefined ? {} : { clientIp }), ...more });

describe('a key with an allow list', () => {
  test('is accepted from there only, in either form', async () => {
    const { key } = await keyFor({ allowedIps: OFFICE });
    for (const at of [0, 1]) {
      for (const inside of [
        '192.0.2.1',
        '192.0.2.255',
        '::ffff:192.0.2.7',
        '::ffff:c000:207',
        '2001:db8:1::1',
      ])
        expect(await codeFrom(key, inside, { at }), inside).toBe('VALID');
      for (const outside of [
        '192.0.3.1',
        '10.0.0.1',
        '::1',
        '2001:db9::1',
        '::192.0.2.1',
        '64:ff9b::192.0.2.1',
      ])
        expect(await codeFrom(key, outside, { at }), outside).toBe('FORBIDDEN');
      expect(await codeFrom(key, undefined, { at })).toBe('FORBIDDEN');
    }
    const { body } = await fleet.verify(key, { clientIp: '10.0.0.1' });
    expect(Object.keys(body).sort()).toEqual(['code', 'requestId', 'valid']);
  });

  test('says first that it is disabled or expired', async () => {
    const authorization = { permissions: 'files.read' };
    const disabled = await keyFor({ allowedIps: OFFICE, enabled: false });
    expect(await codeFrom(disabled.key, '10.0.0.1')).toBe('DISABLED');
    const { key } = await keyFor({ allowedIps: OFFICE });
    expect(await codeFrom(key, '10.0.0.1', { authorization })).toBe('FORBIDDEN');
    expect(await codeFrom(key, '192.0.2.1', { authorization })).toBe('INSUFFICIENT_PERMISSIONS');
  });

  test('spends nothing if refused, and is counted', async () => {
    const { key, keyId } = await keyFor({ allowedIps: OFFICE, remaining: 1 });
    for (let i = 0; i < 3; i++) expect(await codeFrom(key, '10.0.0.1')).toBe('FORBIDDEN');
    expect(await codeFrom(key, '192.0.2.1')).toBe('VALID');
    expect(await codeFrom(key, '192.0.2.1')).toBe('USAGE_EXCEEDED');
    const address = fleet.verifiers[0]?.adminAddress;
    const metrics = (await fleet.get(`${address}/metrics`)).body;
    expect(Number(/^keyfence_address_refusals_total (\d+)$/m.exec(metrics)?.[1])).toBeGreaterThanOrEqual(3);
    const now = Date.now();
    const usage = { keyId, start: String(now - 3_600_000), end: String(now), granularity: 'hour' };
    await fleet.until(async () => {
      const { verifications } = await fleet.ok('keys.getVerifications', usage);
      return verifications.some(({ forbidden }: { forbidden: number }) => forbidden >= 3);
    });
  });

  test('has it like any field at every verifier', async () => {
    const { key, keyId } = await keyFor({});
    for (const at of [0, 1]) expect(await codeFrom(key, '10.0.0.1', { at })).toBe('VALID');
    for (const [allowedIps, stored, inside, outside] of [
      [['::FFFF:10.0.0.0/104', '10.1.1.1'], ['10.0.0.0/8', '10.1.1.1'], '10.0.0.1', '11.0.0.1'],
      [['11.0.0.1/32'], ['11.0.0.1'], '11.0.0.1', '10.0.0.1'],
    ] as const) {
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, allowedIps });
      expect(propagation.state).toBe('complete');
      for (const at of [0, 1]) {
        expect((await fleet.verifyOnce(key, { at, clientIp: outside })).body.code).toBe('FORBIDDEN');
        expect(await codeFrom(key, inside, { at })).toBe('VALID');
      }
      expect((await fleet.ok('keys.getKey', { keyId })).allowedIps).toEqual(stored);
    }
    const { events } = await fleet.ok('audit.listEvents', { keyId, operation: 'keys.updateKey', limit: '1' });
    expect([events[0].before, events[0].after]).toEqual([
      { allowedIps: ['10.0.0.0/8', '10.1.1.1'] },
      { allowedIps: ['11.0.0.1'] },
    ]);
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shop', search: keyId });
    expect(keys[0].allowedIps).toEqual(['11.0.0.1']);
    for (const allowedIps of [[], null]) {
      await fleet.ok('keys.updateKey', { keyId, allowedIps: ['11.0.0.1'] });
      await fleet.ok('keys.updateKey', { keyId, allowedIps });
      expect(await codeFrom(key)).toBe('VALID');
      expect((await fleet.ok('keys.getKey', { keyId })).allowedIps).toBeUndefined();
    }
    await fleet.ok('keys.updateKeys', {
      apiId: 'shop',
      keyIds: [keyId],
      allowedIps: ['12.0.0.0/8'],
    });
    expect(await codeFrom(key, '12.1.1.1')).toBe('VALID');
    expect(await codeFrom(key, '13.1.1.1')).toBe('FORBIDDEN');
  });

  test('keeps it in a rotation and an export', async () => {
    const { keyId } = await keyFor({ allowedIps: OFFICE });
    const { key: next, keyId: nextId } = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await codeFrom(next, '192.0.2.1')).toBe('VALID');
    expect(await codeFrom(next, '10.0.0.1')).toBe('FORBIDDEN');
    expect(await codeFrom(next)).toBe('FORBIDDEN');
    const { stdout } = await commandLine.run(['keys', 'export', 'shop'], envOf(fleet));
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.find((line) => line.keyId === nextId).allowedIps).toEqual(OFFICE);
  });

  test('may have 50 ranges of the longest form', async () => {
    const allowedIps = Array.from(
      { length: 50 },
      (_, i) => `2001:db8:ffff:ffff:ffff:ffff:ffff:${(0xff00 + i).toString(16)}`,
    );
    const { key, keyId } = await keyFor({ allowedIps });
    expect((await fleet.ok('keys.getKey', { keyId })).allowedIps).toEqual(allowedIps);
    for (const address of [allowedIps[0], allowedIps[49]]) expect(await codeFrom(key, address)).toBe('VALID');
    expect(await codeFrom(key, '2001:db8:ffff:ffff:ffff:ffff:ffff:ff32')).toBe('FORBIDDEN');
    const keys = [
      { sha256: 'ab'.repeat(32), allowedIps },
      { sha256: 'cd'.repeat(32), allowedIps: ['x'] },
    ];
    const { results } = await fleet.ok('keys.importKeys', { apiId: 'shop', keys });
    expect((await fleet.ok('keys.getKey', { keyId: results[0].keyId })).allowedIps).toEqual(allowedIps);
    expect(JSON.stringify(results[1])).toMatch(/allowedIps\.0: must be an address or a range/);
  });
});

test('refuses wrong lists, with rule and fix', async () => {
  const refusalOf = async (allowedIps: unknown) => {
    const { status, body } = await fleet.admin('keys.createKey', { apiId: 'shop', allowedIps });
    expect(status).toBe(400);
    return body.error.message;
  };
  expect(await refusalOf(['10.0.0.1/8'])).toBe(
    'allowedIps.0: must not have bits beyond its length; write 10.0.0.0/8',
  );
  expect(await refusalOf(['10.0.0.1', 'localhost'])).toMatch(
    /^allowedIps\.1: must be an address or a range such as/,
  );
  expect(await refusalOf(Array.from({ length: 51 }, (_, i) => `10.0.0.${i}`))).toMatch(/^allowedIps: .*50/);
  expect(await refusalOf('10.0.0.1')).toMatch(/^allowedIps: /);
  const { key } = await keyFor({ allowedIps: OFFICE });
  for (const clientIp of ['', 'x', '192.0.2.1:80', '[2001:db8::1]', '192.0.2.1, 192.0.2.2', 7]) {
    const { status, body } = await fleet.verifyOnce(key, { clientIp });
    expect([status, body.error.message]).toEqual([400, 'clientIp: must be an IPv4 or IPv6 address']);
  }
});

test('the command line and our client know it', async () => {
  const run = (line: string) => commandLine.run(line.split(' '), envOf(fleet));
  const made = await run('keys create shop --allowed-ips 192.0.2.0/24,::1 --json');
  const { key, keyId } = JSON.parse(made.stdout);
  expect((await run(`keys get ${keyId}`)).stdout).toMatch(/allowedIps +192\.0\.2\.0\/24 ::1/);
  const verify = (more: string) =>
    commandLine.run(`keys verify${more}`.split(' '), envOf(fleet, { KEYFENCE_KEY: key }));
  expect((await verify(' --client-ip 192.0.2.1')).status).toBe(0);
  expect(await verify('')).toMatchObject({ status: 1, stdout: expect.stringContaining('FORBIDDEN') });
  const client = createClient({ url: fleet.verifiers[0]?.address ?? '' });
  expect(await client.verify(key, { clientIp: '192.0.2.1' })).toMatchObject({ code: 'VALID' });
  expect(await client.verify(key)).toEqual({ valid: false, code: 'FORBIDDEN' });
  await expect(client.verify(key, { clientIp: 'x' })).rejects.toThrow('clientIp: must be an IPv4');
  await client.close();
});
