import { expect, test } from 'vitest';
import { Gathering } from '../../../shared/process/gathering.ts';

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

test('handles items of one turn and name together', async () => {
  const handled: string[] = [];
  const gathering = new Gathering<number, string>(async (name, items) => {
    handled.push(`${name} ${items}`);
    return `${name}!`;
  });
  const first = [gathering.add('a', 1), gathering.add('b', 2), gathering.add('a', 3)];
  expect(first.map(({ place }) => place)).toEqual([0, 0, 1]);
  // Nothing is handled before the turn ends: what comes later in it must not get an earlier answer.
  await Promise.resolve();
  expect(handled).toEqual([]);
  expect(await Promise.all(first.map(({ result }) => result))).toEqual(['a!', 'b!', 'a!']);
  expect(handled).toEqual(['a 1,3', 'b 2']);
  expect(gathering.add('a', 4).place).toBe(0);
  await nextTurn();
  expect(handled).toEqual(['a 1,3', 'b 2', 'a 4']);
});

test('fails all items of one turn, and no other', async () => {
  let fails = true;
  const gathering = new Gathering<undefined, string>(async () => {
    if (fails) throw new Error('no reply');
    return 'an answer';
  });
  const items = [gathering.add('a', undefined), gathering.add('a', undefined)];
  for (const { result } of items) await expect(result).rejects.toThrow('no reply');
  fails = false;
  expect(await gathering.add('a', undefined).result).toBe('an answer');
});
