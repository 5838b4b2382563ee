import { expect, test } from 'vitest';
import { checkQuestion } from '../../../verifier/doors/grpc/check.ts';
import { endToEndHeaders } from '../../../verifier/proxy/headers.ts';

// Compared each with each, these would take minutes, in which nobody is answered.
const MANY = 100_000;

test('finds unwanted headers at once among many', () => {
  const named = Array.from({ length: MANY }, (_, i) => `h${i}`);
  const raw = named.flatMap((name, i) => [i % 2 === 0 ? name : `kept-${name}`, '1']);
  const kept = endToEndHeaders(raw, named.join(', '), () => false);
  expect(kept.length).toBe(MANY);
  expect(kept.slice(0, 4)).toEqual(['kept-h1', '1', 'kept-h3', '1']);
});

test('a check reads a header of many lines at once', () => {
  const headers = Array.from({ length: MANY }, (_, i) => ({ key: 'X-Api-Key', value: `${i}` }));
  const request = { attributes: { request: { http: { header_map: { headers } } } } };
  const settings = {
    sources: ['bearer', 'x-api-key'],
    withMeta: false,
    allowPreflight: false,
    needsApi: false,
  } as const;
  expect(checkQuestion(request, settings)).toMatchObject({ code: 'KEY_AMBIGUOUS' });
});
