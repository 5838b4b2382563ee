import { expect, test } from 'vitest';
import { memberName, neededBy, PROTOCOL, sequenceOf } from '../../shared/contract/protocol.ts';

test("a head's sequence and the protocol that its API needs are told apart", () => {
  for (const none of [null, undefined]) expect([sequenceOf(none), neededBy(none)]).toEqual([0, 1]);
  expect([sequenceOf('0'), neededBy('0')]).toEqual([0, 1]);
  expect([sequenceOf('15'), neededBy('15')]).toEqual([15, 1]);
  expect([sequenceOf('2:0'), neededBy('2:0')]).toEqual([0, 2]);
  expect([sequenceOf('12:345'), neededBy('12:345')]).toEqual([345, 12]);
});

test('a verifier registers under a name that tells what it speaks', () => {
  expect(memberName('abc.1')).toBe(`${PROTOCOL}.abc.1`);
});
