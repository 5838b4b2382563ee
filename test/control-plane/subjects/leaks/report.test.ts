import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  feedbackOf,
  leakFaults,
  parseReport,
  ReportKeys,
  readKeys,
} from '../../../../control-plane/subjects/leaks/leaks.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { scratch } from '../../../harness/scratch.ts';
import { publish, Reporter } from './reporter.ts';

const file = join(scratch('report-keys'), 'keys.json');
const parsed = (item: object) => parseReport(Buffer.from(JSON.stringify([item])));
const item = { token: 'x', type: 'shop_key' };

test.each([
  ['no JSON', '[', 'body: is not JSON'],
  ['a body that is not UTF-8', Buffer.from([0x5b, 0xff, 0x5d]), 'body: must be UTF-8'],
  ['no list', '{}', 'body: must be a JSON array'],
  ['null', 'null', 'body: must be a JSON array'],
  ['an item that is no object', '[null]', '[0].token: must be a string'],
])('%s is refused, and told why', (_, body, why) => {
  expect(() => parseReport(Buffer.from(body))).toThrow(why);
});

test('what a report must have is bounded, and what it may have is left out where it is too long', () => {
  expect(parsed({ ...item, token: 'x'.repeat(512), type: 'y'.repeat(256) })).toHaveLength(1);
  expect(() => parsed({ ...item, token: 'x'.repeat(513) })).toThrow(
    '[0].token: must be a string of at most 512',
  );
  expect(() => parsed({ ...item, type: 'y'.repeat(257) })).toThrow(
    '[0].type: must be a string of at most 256',
  );
  const [fits] = parsed({ ...item, token: '-', url: 'u'.repeat(1024), source: 's'.repeat(64) });
  expect([fits?.url.length, fits?.source.length]).toEqual([1024, 64]);
  expect(parsed({ ...item, url: 'u'.repeat(1025), source: 's'.repeat(65) })).toMatchObject([
    { url: '', source: '' },
  ]);
});

test('a URL loses every secret that is recognised in it, whosever it is', () => {
  const [key, other] = [generateKey(16, 'shop'), generateKey(16, 'billing')];
  const [{ url } = { url: '' }] = parsed({
    ...item,
    token: 'a-b=c',
    url: `https://h/${key}/a-b=c?x=${other}#readable_name_of_a_page`,
  });
  expect(url).toBe('https://h/[a key]/[a key]?x=[a key]#readable_name_of_a_page');
  expect(parsed({ ...item, token: '', url: 'https://h/' })).toMatchObject([{ url: 'https://h/' }]);
});

test('feedback names each secret once for each type, by its hash', () => {
  const reported = ['a', 'b', 'a'].map((secret) => ({ secret, type: 't', url: '', source: '' }));
  const feedback = feedbackOf(
    [...reported, { secret: 'a', type: 'u', url: '', source: '' }],
    (each) => each === 'a',
  );
  expect(feedback.map(({ token_type, label }) => [token_type, label])).toEqual([
    ['t', 'true_positive'],
    ['t', 'false_positive'],
    ['u', 'true_positive'],
  ]);
  expect(feedback[0]?.token_hash).toBe('ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb');
});

test('a document of public keys is taken as GitHub has it, and no other', () => {
  const one = new Reporter('a'.repeat(128));
  publish(file, [one, new Reporter('2')]);
  expect([...readKeys(file).keys()]).toEqual(['a'.repeat(128), '2']);
  publish(
    file,
    Array.from({ length: 100 }, (_, i) => one.named(`${i}`)),
  );
  expect(readKeys(file).size).toBe(100);
  publish(
    file,
    Array.from({ length: 101 }, (_, i) => one.named(`${i}`)),
  );
  expect(() => readKeys(file)).toThrow('more than 100 keys');
  for (const wrong of ['a'.repeat(129), '', 'a b']) {
    publish(file, [one.named(wrong)]);
    expect(() => readKeys(file)).toThrow('public_keys[0] lacks key_identifier or key');
  }
  publish(file, [one, new Reporter('p384', 'secp384r1')]);
  expect(() => readKeys(file)).toThrow('public_keys[1] is not an ECDSA key on P-256');
  for (const wrong of ['{}', '[]', 'null', '{"public_keys":[]}', '{"public_keys":{}}']) {
    writeFileSync(file, wrong);
    expect(() => readKeys(file)).toThrow('has no list public_keys');
  }
});

test('settings that cannot work are told at the start', () => {
  expect(leakFaults({ LEAKS: 'off', LEAKS_PUBLIC_KEYS_FILE: '/nowhere' })).toEqual([]);
  expect(leakFaults({ LEAKS: 'tell', LEAKS_PUBLIC_KEYS_FILE: '' })).toEqual([
    'LEAKS_PUBLIC_KEYS_FILE: required unless LEAKS is off',
  ]);
  expect(leakFaults({ LEAKS: 'tell', LEAKS_PUBLIC_KEYS_FILE: '/nowhere' })[0]).toContain('(ENOENT)');
  publish(file, [new Reporter('1')]);
  expect(leakFaults({ LEAKS: 'disable', LEAKS_PUBLIC_KEYS_FILE: file })).toEqual([]);
});

test('a signature with anything behind it is none', async () => {
  const reporter = new Reporter('1');
  publish(file, [reporter]);
  const keys = new ReportKeys(file, systemClock, { warn: () => undefined });
  const body = Buffer.from('[]');
  const signature = reporter.sign('[]');
  expect(await keys.check('1', signature, body)).toBe('valid');
  for (const wrong of [`${signature}!`, `${signature} `, `!${signature}`, ''])
    expect(await keys.check('1', wrong, body)).toBe('invalid');
});
