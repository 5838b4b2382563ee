import { BlockList, isIP } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { IpRanges, rangeFault, rangesText, sourceOf, wordsOf } from '../../../shared/rules/ip-ranges.ts';

/** Addresses that are near each other, so that ranges and addresses often meet, in several spellings. */
const v4 = fc
  .tuple(fc.constantFrom(0, 10, 127, 192, 255), fc.nat(3), fc.nat(255), fc.nat(255))
  .map((parts) => parts.join('.'));
const group = fc.constantFrom('0', '1', 'ffff', 'FFFE', '2001', 'db8', '8000', '00ab');
const v6 = fc.oneof(
  fc.array(group, { minLength: 8, maxLength: 8 }).map((groups) => groups.join(':')),
  fc
    .tuple(fc.array(group, { maxLength: 3 }), fc.array(group, { maxLength: 3 }))
    .map(([head, tail]) => `${head.join(':')}::${tail.join(':')}`),
  v4.map((address) => `::ffff:${address}`),
  v4.map((address) => `64:ff9b::${address}`),
);
const address = fc.oneof(v4, v6);
const isMapped = (text: string) => (wordsOf(text)?.length ?? 0) === 1 && text.includes(':');

test('an address is one exactly where Node says so', () => {
  const text = fc.oneof(
    address,
    fc.stringMatching(/^[0-9a-f:.]{0,20}$/),
    fc.constantFrom(
      '1.2.3',
      '1.2.3.4.',
      '.1.2.3.4',
      '1..2.3',
      '01.2.3.4',
      '256.1.1.1',
      '1.2.3.4 ',
      '',
      '1.2.3.4x',
      '::1%eth0',
      ':::',
    ),
  );
  fc.assert(
    fc.property(text, (candidate) => {
      expect(wordsOf(candidate) !== undefined, candidate).toBe(isIP(candidate) !== 0);
    }),
    { numRuns: 3000 },
  );
});

test('finds the ranges of an address as Node does', () => {
  fc.assert(
    fc.property(address, fc.nat(128), address, (base, length, asked) => {
      const words = wordsOf(base) ?? expect.unreachable();
      const bits = Math.min(length, 32 * words.length);
      // What the message of a refusal proposes is the range that was meant.
      const long = isMapped(base) ? bits + 96 : bits;
      const fault = rangeFault(`${base}/${long}`);
      const range = /write (\S+)$/.exec(fault ?? '')?.[1] ?? `${base}/${long}`;
      expect(rangeFault(range)).toBeUndefined();
      const text = rangesText([range]);
      expect(rangesText([text])).toBe(text);

      const list = new BlockList();
      const family = words.length === 1 ? 'ipv4' : 'ipv6';
      const [canonical = ''] = text.split('/');
      list.addSubnet(canonical, bits, family);
      const askedWords = wordsOf(asked) ?? expect.unreachable();
      const expected =
        askedWords.length === words.length &&
        list.check(
          askedWords.length === 1 ? dotted(asked) : asked,
          askedWords.length === 1 ? 'ipv4' : 'ipv6',
        );
      expect(new IpRanges(text).has(asked), `${asked} in ${text}`).toBe(expected);
    }),
    { numRuns: 5000 },
  );
});

/** The IPv4 address of an address in either form. */
function dotted(text: string): string {
  const [word = 0] = wordsOf(text) ?? [];
  return [24, 16, 8, 0].map((shift) => (word >>> shift) & 255).join('.');
}

test('is the same in every spelling and order', () => {
  expect(rangesText(['2001:DB8:0:0::/32', '::ffff:192.0.2.0/120', '10.0.0.0/8', '192.0.2.0/24', '::1'])).toBe(
    '10.0.0.0/8 192.0.2.0/24 2001:db8::/32 ::1',
  );
  expect(rangesText(['192.0.2.1/32', '2001:db8::1/128', '0.0.0.0/0', '::/0'])).toBe(
    '0.0.0.0/0 192.0.2.1 2001:db8::1 ::/0',
  );
  expect(rangesText([])).toBe('');
  expect(rangeFault('10.0.0.1/8')).toBe('must not have bits beyond its length; write 10.0.0.0/8');
  expect(rangeFault('10.0.0.0/33')).toBe('must have a length of 0 to 32 bits');
  expect(rangeFault('::ffff:10.0.0.0/64')).toBe('must have a length of 96 to 128 bits');
  for (const wrong of [
    '',
    'x',
    '10.0.0.0/',
    '10.0.0.0/08',
    '10.0.0.0/8/8',
    '10.0.0.0/-1',
    'fe80::1%eth0',
    '10.0.0.0-10.0.0.9',
    '010.0.0.1',
    ' 10.0.0.1',
  ])
    expect(rangeFault(wrong), wrong).toMatch(/^must be an address or a range/);
  // IPv4 in the form of IPv6 is IPv4, and no range of IPv6 has it.
  expect(new IpRanges('::/0').has('::ffff:192.0.2.1')).toBe(false);
  expect(new IpRanges('192.0.2.0/24').has('::ffff:192.0.2.1')).toBe(true);
  expect(new IpRanges('fe80::/10').has('fe80::1%eth0')).toBe(true);
  expect(new IpRanges('').has('192.0.2.1')).toBe(false);
});

test.each([
  ['192.0.2.1', '192.0.2.1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['::FFFF:c000:201', '192.0.2.1'],
  ['2001:DB8:0:1:2:3:4:5', '2001:db8:0:1::'],
  ['2001:db8:0:1::', '2001:db8:0:1::'],
  ['fe80::1%eth0', 'fe80::'],
  ['::1', '::'],
  ['Unknown', 'unknown'],
  ['', ''],
])('%s counts for %s in limits', (address, source) => {
  expect(sourceOf(address)).toBe(source);
});
