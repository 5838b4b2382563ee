import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';

/** Keys that were made elsewhere: which texts can be one, in JSON as in a header. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { FOREIGN_KEYS: 'true' } });
});
afterAll(() => fleet.stop());

test.each([
  ['a key of 512 characters', 'k'.repeat(512), 'VALID', 200],
  ['every printable character of ASCII', '!"#$%&()*+,-./09:;<=>?@AZ[]^_`az{|}~', 'VALID', 200],
  ['a key of 513 characters', 'l'.repeat(513), 'BAD_REQUEST', 401],
  ['a blank at the end', 'trailing_blank_of_a_key ', 'NOT_FOUND', 401],
  ['a blank within', 'a blank_within_a_key', 'NOT_FOUND', 401],
  ['a character beyond ASCII', 'schl\u00fcssel_of_somebody', 'NOT_FOUND', 401],
])('%s', async (_what, secret, code, status) => {
  const sha256 = createHash('sha256').update(secret).digest('hex');
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'shop', keys: [{ sha256 }] });
  expect(results).toEqual([{ result: 'created', keyId: expect.any(String) }]);
  const { body } = await fleet.verify(secret);
  expect(body.code ?? body.error.code).toBe(code);
  // Node sends the characters of Latin-1 as one byte each; others send UTF-8.
  for (const header of new Set([secret, Buffer.from(secret).toString('latin1')])) {
    const answer = await fleet.decided(() =>
      fleet.get(`${fleet.verifiers[0]?.address}/authz/api/shop/auth-request`, { 'x-api-key': header }),
    );
    expect(answer.status).toBe(status);
  }
});
