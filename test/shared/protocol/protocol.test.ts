import { expect, test } from 'vitest';
import { memberName, PROTOCOL } from '../../../shared/protocol/protocol.ts';

test('a verifier registers under a name that tells what it speaks', () => {
  expect(memberName('abc.1')).toBe(`${PROTOCOL}.abc.1`);
});
