import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { NameResolver } from '../../../shared/process/name-resolver.ts';
import { scratch } from '../../harness/scratch.ts';

const directory = scratch('test');
const [hostsFile, configFile] = [join(directory, 'hosts'), join(directory, 'resolv.conf')];
/** Names that the name server knows, with the last number of their IPv4 address; it is silent about `silent.*`. */
const KNOWN: Readonly<Record<string, number>> = { 'a.example': 1, 'db.svc.cluster': 2 };
const asked: string[] = [];
let server: Socket;

beforeAll(async () => {
  writeFileSync(
    hostsFile,
    '# comment\n127.0.0.1 localhost\n::1 localhost ip6-localhost # loopback\n10.1.2.3\tOwn own.example\n',
  );
  writeFileSync(configFile, 'nameserver 192.0.2.1\nsearch svc.cluster cluster\noptions ndots:5\n');
  server = createSocket('udp4').bind(0, '127.0.0.1');
  await once(server, 'listening');
  server.on('message', (query, { port, address }) => {
    const labels: string[] = [];
    let at = 12;
    for (; query[at]; at += (query[at] ?? 0) + 1)
      labels.push(query.toString('latin1', at + 1, at + 1 + (query[at] ?? 0)));
    const [name, isV4] = [labels.join('.').toLowerCase(), query[at + 2] === 1];
    asked.push(`${isV4 ? 'A' : 'AAAA'} ${name}`);
    if (name.startsWith('silent.')) return;
    const known = KNOWN[name];
    const answers = known !== undefined && isV4 ? 1 : 0;
    const head = [0x81, known === undefined ? 0x83 : 0x80, 0, 1, 0, answers, 0, 0, 0, 0];
    const answer = answers ? [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, known ?? 0] : [];
    server.send(
      Buffer.from([...query.subarray(0, 2), ...head, ...query.subarray(12, at + 5), ...answer]),
      port,
      address,
    );
  });
});
beforeEach(() => {
  asked.length = 0;
});
afterAll(() => server.close());

const newNames = () =>
  new NameResolver(systemClock, { servers: [`127.0.0.1:${server.address().port}`], hostsFile, configFile });

test('takes a name from /etc/hosts without asking', async () => {
  const names = newNames();
  expect(await names.resolve('localhost')).toEqual([
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
  expect(await names.resolve('own')).toEqual([{ address: '10.1.2.3', family: 4 }]);
  expect(asked).toEqual([]);
});

test('asks other names as they are, then by domain', async () => {
  const names = newNames();
  expect(await names.resolve('a.example')).toEqual([{ address: '192.0.2.1', family: 4 }]);
  expect(await names.resolve('db')).toEqual([{ address: '192.0.2.2', family: 4 }]);
  expect(new Set(asked)).toEqual(
    new Set(['A a.example', 'AAAA a.example', 'A db', 'AAAA db', 'A db.svc.cluster', 'AAAA db.svc.cluster']),
  );
  const unknown = names.resolve('db.');
  await expect(unknown).rejects.toMatchObject({ code: 'ENOTFOUND', message: 'no host has the name db.' });
});

test('a silent name server delays no other name', async () => {
  const names = newNames();
  const waiting = Array.from({ length: 20 }, () => names.resolve('silent.example'));
  const failures = Promise.allSettled(waiting);
  expect(await names.resolve('a.example')).toHaveLength(1);
  for (const failure of await failures)
    expect(failure).toMatchObject({ status: 'rejected', reason: { code: 'EAI_AGAIN' } });
  expect(asked.filter((each) => each === 'A silent.example')).toHaveLength(2);
});

test('refuses names beyond 100 at once', async () => {
  const names = newNames();
  const waiting = Array.from({ length: 100 }, (_, i) => names.resolve(`silent.${i}.example`));
  await expect(names.resolve('a.example')).rejects.toThrow('100 other names are being resolved');
  await Promise.allSettled(waiting);
  expect(await names.resolve('a.example')).toHaveLength(1);
});
