import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isOfSame, newestOwners, viewOf } from '../../../shared/redis/cluster-view.ts';

const LAST = 16_383;
type Row = readonly [from: number, to: number, id: string, port: number, epoch: number];
const view = (rows: readonly Row[], hasEpochs = true) =>
  viewOf(
    rows.map(([from, to, id, port]) => [from, to, ['h', port, id]] as const),
    hasEpochs
      ? rows.map(([, , id, port, epoch]) => `${id} h:${port}@1 master - 0 0 ${epoch} connected`).join('\n')
      : undefined,
    { host: 'asked', port: 1 },
    ([host]) => host,
  );
const ownerOf = (views: readonly ReturnType<typeof view>[], slot: number) =>
  newestOwners(views).find(({ from, to }) => from <= slot && slot <= to)?.node.port;

test('of each slot the highest epoch counts, whoever answers first', () => {
  const old = view([
    [0, 8000, 'a', 1, 3],
    [8001, LAST, 'b', 2, 4],
  ]);
  const moved = view([
    [0, 8000, 'c', 3, 5],
    [8001, LAST, 'b', 2, 4],
  ]);
  for (const views of [
    [old, moved],
    [moved, old],
  ]) {
    expect(ownerOf(views, 0)).toBe(3);
    expect(ownerOf(views, LAST)).toBe(2);
  }
  fc.assert(
    fc.property(fc.array(fc.nat(9), { minLength: 1, maxLength: 5 }), fc.nat(LAST), (epochs, slot) => {
      const views = epochs.map((epoch, i) => view([[0, LAST, `n${i}`, i + 1, epoch]]));
      const newest = epochs.indexOf(Math.max(...epochs)) + 1;
      expect(ownerOf(views, slot)).toBe(newest);
    }),
  );
});

test('a node that was removed, or knows a part, hides nobody', () => {
  const whole = view([[0, LAST, 'a', 1, 1]]);
  const part = view([[0, 100, 'b', 2, 9]]);
  expect(ownerOf([view([]), whole], 5)).toBe(1);
  expect(ownerOf([part, whole], 5)).toBe(1);
  expect(ownerOf([part], 5)).toBe(2);
  expect(ownerOf([part], 101)).toBeUndefined();
  expect(newestOwners([])).toEqual([]);
});

test('without CLUSTER NODES, the first account counts', () => {
  const views = [view([[0, LAST, 'a', 1, 1]], false), view([[0, LAST, 'b', 2, 9]], false)];
  expect(ownerOf(views, 0)).toBe(1);
});

test('a Cluster is known by a node that it has in common with before', () => {
  const before = view([[0, LAST, 'a', 1, 1]]).ids;
  expect(isOfSame(view([[0, LAST, 'a', 1, 1]]), before)).toBe(true);
  expect(isOfSame(view([[0, LAST, 'z', 1, 9]]), before)).toBe(false);
  expect(isOfSame(view([[0, LAST, 'z', 1, 9]]), new Set())).toBe(true);
});

test('a node without a host is where it answered', () => {
  const { ranges, replicas } = viewOf(
    [[0, LAST, ['', 7, 'a'], ['', 8, 'b']]],
    '',
    { host: 'asked', port: 7 },
    ([host]) => host,
  );
  expect([ranges[0]?.node, replicas[0]]).toEqual([
    { host: 'asked', port: 7 },
    { host: 'asked', port: 8 },
  ]);
});
