import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../../../shared/process/clock.ts';
import { Scopes } from '../../../../shared/protocol/follower/shared-log.ts';
import { rootKeyMark } from '../../../../shared/protocol/records/root-keys-record.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { Callers } from '../../../../verifier/core/callers.ts';
import { verifierSubject } from '../../../harness/side-by-side.ts';

/** What verifiers know of root keys; undefined = nothing at this instant. */
let scopes: Scopes | undefined;
const scopeOf = (rootKey: string, apis: '*' | readonly string[]) => [
  rootKeyMark(hashSecret(rootKey)),
  { apis, limits: false },
];
const KNOWN = new Scopes(
  JSON.stringify({
    rootKeys: Object.fromEntries([
      scopeOf('all', '*'),
      scopeOf('of-payments', ['payments']),
      scopeOf('of-others', ['others']),
      scopeOf('of-none', []),
    ]),
  }),
);
const callers = () =>
  new Callers({
    sharedLog: {
      get scopes() {
        return scopes;
      },
      readRecord: async () => undefined,
    },
    ...{ clock: systemClock, waitMs: 10_000, tooSlow: () => new Error('too slow') },
  });
const lane = verifierSubject({ FAST_LANE: true }, { callers: callers() });
const reference = verifierSubject({ FAST_LANE: false }, { callers: callers() });
beforeAll(() => Promise.all([lane.start(), reference.start()]));
afterAll(() => Promise.all([lane.stop(), reference.stop()]));

const LINES = [
  ...['all', 'of-payments', 'of-others', 'of-none', 'unknown'].map(
    (key) => `Authorization: Bearer ${key}\r\n`,
  ),
  'authorization: bearer all\r\n',
  'Authorization: Bearer   all\r\n',
  'Authorization: Bearer all  \r\n',
  'Authorization:\tBearer all\r\n',
  'Authorization: Bearer all x\r\n',
  'Authorization: Bearer\r\n',
  'Authorization: all\r\n',
  'Authorization: Basic YWxs\r\n',
  'Authorization: Bearer all\r\nAuthorization: Bearer unknown\r\n',
  'Authorization: Bearer unknown\r\nAuthorization: Bearer all\r\n',
  'X-Api-Key: all\r\n',
  '',
];
const asked = (generation: 'v1' | 'v2', line: string, body: object) => {
  const text = JSON.stringify(body);
  return `POST /${generation}/keys.verifyKey HTTP/1.1\r\nHost: a\r\nX-Request-Id: r\r\n${line}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
};
const BODIES = [
  { key: 'good' },
  { key: 'disabled' },
  { key: 'rich' },
  { key: 'slow' },
  { key: 'none' },
  { wrong: 1 },
];

test.each(['v1', 'v2'] as const)('%s: both treat its root key the same', async (generation) => {
  scopes = KNOWN;
  for (const line of LINES) {
    const texts = BODIES.map((body) => asked(generation, line, body));
    for (const text of [...texts, texts.join('')]) {
      const writes = [Buffer.from(text, 'latin1')];
      const [ours, nodes] = await Promise.all([
        lane.hear(writes, 'patient'),
        reference.hear(writes, 'patient'),
      ]);
      expect(ours).toEqual(nodes);
    }
  }
});

test('without root keys nobody gets a verdict', async () => {
  scopes = undefined;
  for (const line of LINES) {
    const writes = [Buffer.from(asked('v1', line, { key: 'good' }), 'latin1')];
    const [ours, nodes] = await Promise.all([
      lane.hear(writes, 'patient'),
      reference.hear(writes, 'patient'),
    ]);
    expect(ours).toEqual(nodes);
    expect(ours.answered).toMatch(/^HTTP\/1.1 (401|503|400) /);
    expect(ours.asked).toEqual([]);
  }
});

test('the lane itself answers whoever may ask', async () => {
  scopes = KNOWN;
  const before = { ...lane.server.lane };
  const writes = [Buffer.from(asked('v1', LINES[0] ?? '', { key: 'good' }))];
  expect((await lane.hear(writes, 'hurried')).answered).toContain('"code":"VALID"');
  expect(lane.server.lane.answered - before.answered).toBe(1);
});
