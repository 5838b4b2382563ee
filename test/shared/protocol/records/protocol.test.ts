import { expect, test } from 'vitest';
import { memberName, PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';

test('the name of a verifier tells its protocol', () => {
  expect(memberName('abc.1')).toBe(`${PROTOCOL}.abc.1`);
});

test('the name of a verifier tells its region', () => {
  expect(memberName('abc.1', 'eu-west')).toBe(`${PROTOCOL}.eu-west.abc.1`);
});
