import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { writeTogether } from '../../../shared/redis/redis.ts';

test('writes of one turn go out together, in order', async () => {
  const gone: string[] = [];
  const stream = new Writable({
    decodeStrings: false,
    write(chunk: string, _encoding, done) {
      gone.push(chunk);
      done();
    },
    writev(chunks, done) {
      gone.push(chunks.map(({ chunk }) => chunk).join(' '));
      done();
    },
  });
  writeTogether(stream);
  for (const text of ['one', 'two']) stream.write(text);
  await Promise.resolve().then(() => stream.write('three'));
  expect(gone).toEqual([]);
  await new Promise(setImmediate);
  expect(gone).toEqual(['one two three']);
  stream.end('four');
  await new Promise(setImmediate);
  expect(gone).toEqual(['one two three', 'four']);
});
