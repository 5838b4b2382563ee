import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { readBuffer, readCopies, readIntoBuffer } from '../../../shared/process/read-buffer.ts';

const server = createServer({ allowHalfOpen: true });
afterEach(() => void server.close());

async function pair(): Promise<{ client: Socket; accepted: Socket }> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [accepted] = (await once(server, 'connection')) as [Socket];
  return { client, accepted };
}

/** Fails where a release of Node.js has other names: then the fast lane works, but slower. */
test('an accepted socket reads, pauses and ends', async () => {
  const { client, accepted } = await pair();
  const texts: string[] = [];
  let heard = Promise.withResolvers<void>();
  const reads = readIntoBuffer(accepted, (length) => {
    texts.push(readBuffer.toString('latin1', 0, length));
    heard.resolve();
    return true;
  });
  expect(reads).toBe(true);
  accepted.resume();
  client.write('one');
  await heard.promise;

  accepted.pause();
  client.write('two');
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  expect(texts).toEqual(['one']);
  heard = Promise.withResolvers();
  accepted.resume();
  await heard.promise;
  expect(texts).toEqual(['one', 'two']);

  const ended = once(accepted, 'end');
  client.end();
  await ended;
  expect(accepted.bytesRead).toBe(6);
  accepted.end();
});

test('a socket that breaks says so', async () => {
  const { client, accepted } = await pair();
  readIntoBuffer(accepted, () => true);
  accepted.resume();
  const broken = once(accepted, 'error');
  client.resetAndDestroy();
  expect(await broken).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('a copying socket gives a slow reader all', async () => {
  const { client, accepted } = await pair();
  readBuffer.fill(0);
  readCopies(client);
  const sent = randomBytes(2_000_000);
  accepted.end(sent);
  const chunks: Buffer[] = [];
  for await (const chunk of client) {
    chunks.push(chunk as Buffer);
    await new Promise(setImmediate);
  }
  expect(Buffer.concat(chunks).equals(sent)).toBe(true);
  expect(readBuffer.some((byte) => byte !== 0)).toBe(true);
});
