import { afterAll, beforeAll, expect, test } from 'vitest';
import type { CredentialSource } from '../../../../verifier/doors/http/credentials.ts';
import { share } from '../../../harness/share.ts';
import { verifierSubject } from '../../../harness/side-by-side.ts';

const LONG = `x-${'long-'.repeat(12)}key`;
const SETS: readonly CredentialSource[][] = [
  ['header:apikey'],
  ['x-api-key', 'basic', 'header:apikey', `header:${LONG}`],
  ['bearer', 'basic'],
  ['bearer', 'header:apikey', 'cookie:k'],
  ['bearer', 'header:my_key'],
];
const sets = SETS.map((sources) => ({
  sources,
  lane: verifierSubject({ FAST_LANE: true }, { sources }),
  reference: verifierSubject({ FAST_LANE: false }, { sources }),
}));
const subjects = sets.flatMap(({ lane, reference }) => [lane, reference]);
beforeAll(() => Promise.all(subjects.map((subject) => subject.start())));
afterAll(() => Promise.all(subjects.map((subject) => subject.stop())));

const basic = (text: string) => `Authorization: Basic ${Buffer.from(text).toString('base64')}`;
const LINES = [
  '',
  'Authorization: Bearer good',
  'Authorization: Bearer disabled',
  ...['good:', ':good', 'good:disabled', ':'].map(basic),
  'Authorization: Basic ***',
  'Authorization: good',
  'Authorization: Bearer:good',
  'Authorization: Bearer\tgood',
  'Authorization: Digest good',
  'X-Api-Key: good',
  'x-api-key: disabled',
  'ApiKey: good',
  'apikey: disabled',
  `${LONG}: good`,
  'MY_KEY: good',
  'my-key: disabled',
  'Cookie: k=good',
  'Cookie: a=1; k=disabled',
  'Cookie: k=good; k=good',
];

/** Each line alone, and every third pair of them, other ones at the next commit. */
const HEADS = [
  ...LINES.map((line) => [line]),
  ...share(
    LINES.flatMap((first) => LINES.filter(Boolean).map((second) => [first, second])),
    3,
  ),
].map((lines) => lines.filter(Boolean));

test.each(sets)('both find a key in $sources the same', async ({ sources, lane, reference }) => {
  // Of a request, and of the one that follows it and that the lane answers.
  let answeredMost = 0;
  const passed = new Set<string>();
  for (const lines of HEADS) {
    const text = ['GET /authz/forward-auth HTTP/1.1', 'Host: a', 'X-Request-Id: r', ...lines, '', ''].join(
      '\r\n',
    );
    const writes = [Buffer.from(text)];
    const before = lane.server.lane.answered;
    const [ours, nodes] = await Promise.all([
      lane.hear(writes, 'patient'),
      reference.hear(writes, 'patient'),
    ]);
    expect(ours, text).toEqual(nodes);
    answeredMost = Math.max(answeredMost, lane.server.lane.answered - before);
    if (ours.answered.startsWith('HTTP/1.1 200 ') && lines.length < 2)
      passed.add(lines[0]?.split(':')[0] ?? '');
  }
  const names = sources.map(
    (source) =>
      ({ bearer: 'Authorization', basic: 'Authorization', 'x-api-key': 'X-Api-Key' })[source as string] ??
      { apikey: 'ApiKey', my_key: 'MY_KEY', k: 'Cookie' }[source.split(':')[1] ?? ''] ??
      LONG,
  );
  expect(passed).toEqual(new Set(names));
  expect(answeredMost).toBe(sources.includes('header:my_key') ? 1 : 2);
});
