import { stripVTControlCharacters } from 'node:util';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { jsonObject, whole } from '../../../../control-plane/clients/cli/arguments.ts';
import { type Client, callPatiently } from '../../../../control-plane/clients/cli/client.ts';
import { CliError } from '../../../../control-plane/clients/cli/exit.ts';
import { collect, pages } from '../../../../control-plane/clients/cli/pages.ts';
import { createProgram } from '../../../../control-plane/clients/cli/program.ts';
import {
  columns,
  count,
  json,
  list,
  printable,
  table,
  time,
} from '../../../../control-plane/clients/cli/terminal/output.ts';
import { timeIn, zonedTime } from '../../../../control-plane/clients/cli/times.ts';

/** The parts of the command line by themselves. */

describe('an argument', () => {
  describe('that is a time', () => {
    const NOW = Date.UTC(2026, 5, 15, 12);
    const until = { sign: '+', date: 'after' } as const;
    const read = (text: string, rule: Parameters<typeof timeIn>[1] = until) => timeIn(text, rule, NOW);
    afterEach(() => vi.unstubAllEnvs());

    test('is milliseconds, a date, a time or relative', () => {
      expect(read('1767225600000')).toBe(1_767_225_600_000);
      expect(read('100000000000')).toBe(100_000_000_000);
      expect(read('2026-01-01T00:00:00.5Z')).toBe(1_767_225_600_500);
      for (const [text, ms] of [
        ['+90m', 5_400_000],
        ['+12h', 43_200_000],
        ['+30d', 2_592_000_000],
        ['+999999m', 59_999_940_000],
      ] as const)
        expect(read(text)).toBe(NOW + ms);
      for (const text of ['90m', '-90m'])
        expect(read(text, { sign: '-', date: 'first' })).toBe(NOW - 5_400_000);
      const wrong = [
        '',
        '12345678901',
        '12345678901234567',
        '9999999999999999',
        '2026',
        '+90',
        '+90s',
        '90m',
      ];
      for (const text of [...wrong, '+90mm', '+1234567m', 'x2026-01-01', '-1', '2026-01-01Z', 'today'])
        expect(() => read(text), text).toThrow(/Give a date/);
    });

    test.each(['UTC', 'America/New_York', 'Europe/Berlin', 'Asia/Kathmandu'])(
      'covers its day, local without offset: %s',
      (zone) => {
        vi.stubEnv('TZ', zone);
        expect(read('2030-12-31')).toBe(new Date(2031, 0, 1).getTime());
        expect(read('2026-02-28', { sign: '-', date: 'first' })).toBe(new Date(2026, 1, 28).getTime());
        expect(read('2026-02-28', { sign: '-', date: 'last' })).toBe(new Date(2026, 2, 1).getTime() - 1);
        const today = new Date(NOW).setHours(0, 0, 0, 0);
        expect(read('today', { sign: '-', date: 'first' })).toBe(today);
        expect(read('yesterday', { sign: '-', date: 'last' })).toBe(today - 1);
        expect(read('2030-12-31T10:00')).toBe(new Date(2030, 11, 31, 10).getTime());
        expect(read('2030-12-31T10:00Z')).toBe(Date.UTC(2030, 11, 31, 10));
        expect(read('2030-12-31 10:00:05+05:30')).toBe(Date.UTC(2030, 11, 31, 4, 30, 5));
        const told = zonedTime(read('2030-12-31'));
        expect(told).toMatch(/^2031-01-01T00:00:00[+-]\d\d:\d\d \(\w+(\/\w+)?\)$/);
        expect(Date.parse(told.split(' ')[0] ?? '')).toBe(read('2030-12-31'));
      },
    );

    test('is refused if calendar or clock lack it', () => {
      vi.stubEnv('TZ', 'Europe/Berlin');
      const none = [
        '2030-02-31',
        '0099-01-01',
        '2026-13-01',
        '2027-02-29',
        '2030-02-31T10:00Z',
        '2030-01-01T24:00',
        '2030-01-01T10:60Z',
      ];
      // The clocks go from 2 to 3 on that day.
      for (const text of [...none, '2026-03-29T02:30', '2030-01-01T10:00:60', '2030-01-01T10:00+19:00'])
        expect(() => read(text), text).toThrow(/There is no such time/);
      expect(read('2028-02-29T10:00Z')).toBe(Date.UTC(2028, 1, 29, 10));
    });
  });

  test('that is an object is JSON of one', () => {
    expect(jsonObject('{"a":[1]}')).toEqual({ a: [1] });
    for (const text of ['', '[]', 'null', '1', '"a"', '{', '{a:1}'])
      expect(() => jsonObject(text), text).toThrow('Give a JSON object.');
  });

  test('that is a whole number is within its limits', () => {
    const parse = whole(1, 100);
    expect([parse('1'), parse('100'), parse('007')]).toEqual([1, 100, 7]);
    for (const text of ['0', '101', '', '1.5', '1e1', '-1', ' 1', '1 ', '0x1'])
      expect(() => parse(text), text).toThrow('Give a whole number from 1 to 100.');
    expect(() => whole(0, Number.POSITIVE_INFINITY)('1'.repeat(16))).toThrow();
    expect(whole(0, Number.POSITIVE_INFINITY)('1'.repeat(15))).toBe(111_111_111_111_111);
  });
});

test('an operation without words has its commands', () => {
  const fields = [
    { name: 'couponId', kind: 'text', help: 'The coupon.', required: true },
    { name: 'credits', kind: 'whole', help: 'What it gives.', bounds: [1, 500] },
    { name: 'tags', kind: 'names', help: 'Its tags.', clearable: true },
    { name: 'form', kind: 'text', help: 'Its form.', choices: ['gift', 'sale'] },
    { name: 'enabled', kind: 'flag', help: '' },
  ] as const;
  const program = createProgram(undefined, [
    {
      ...{ name: 'coupons.updateCoupon', words: 'coupons update', summary: 'Change a coupon' },
      ...{ description: 'It needs a root key.', fields, example: { couponId: 'c7', credits: 50 } },
    },
  ]);
  const coupons = program.commands.find((command) => command.name() === 'coupons');
  expect(coupons?.commands.map((command) => command.name())).toEqual(['update', 'enable', 'disable']);
  let help = '';
  const write = (text: string) => {
    help += text;
  };
  coupons?.commands[0]?.configureOutput({ writeOut: write, getOutHelpWidth: () => 200 }).outputHelp();
  for (const line of [
    'Usage: keyfence coupons update [options] <couponId>',
    'change a coupon. It needs a root key.',
    /--credits <number> +what it gives \(1 to 500\)/,
    /--tags <names> +its tags \(separated by commas\)/,
    /--form <form> +its form \(choices: "gift", "sale"\)/,
    /--clear <field...> +clear a field \(choices: "tags"\)/,
    'Example:\n  keyfence coupons update c7 --credits 50',
  ])
    expect(help).toMatch(line);
});

describe('pages', () => {
  /** A listing of so many items, at most `most` a page. */
  const listing = (total: number, most = 100) => {
    const limits: number[] = [];
    const call = async (_operation: string, input: object) => {
      const { limit, cursor = '0' } = input as { limit: number; cursor?: string };
      limits.push(limit);
      const from = Number(cursor);
      const to = Math.min(total, from + Math.min(limit, most));
      const items = Array.from({ length: to - from }, (_, i) => from + i);
      return { items, total, ...(to < total ? { cursor: String(to) } : {}) };
    };
    return { limits, call: call as Client['call'] };
  };

  test.each([
    [0, 10, [10], 0],
    [250, 1000, [100, 100, 100], 250],
    [250, 100, [100], 100],
    [250, 101, [100, 1], 101],
    [100, 100, [100], 100],
  ])('of %i items are asked for until there are %i', async (total, limit, limits, length) => {
    const list = listing(total);
    const client = { call: list.call } as Client;
    const { items, cursor, total: told } = await collect<number>(client, 'x.list', {}, 'items', limit);
    expect(list.limits).toEqual(limits);
    expect(items).toEqual(Array.from({ length }, (_, i) => i));
    expect([cursor, told]).toEqual([length < total ? String(length) : undefined, total]);
  });

  test('ask for more when short', async () => {
    const found: number[] = [];
    for await (const { items } of pages<number>(listing(7, 2).call, 'x.list', { cursor: '1' }, 'items'))
      found.push(...items);
    expect(found).toEqual([1, 2, 3, 4, 5, 6]);
  });
});

describe('patience', () => {
  const failing = (failures: readonly CliError[]) => {
    let calls = 0;
    const call = async () => {
      const failure = failures[calls++];
      if (failure) throw failure;
      return 'done';
    };
    return { client: { call: call as Client['call'] } as Client, calls: () => calls };
  };
  const away = () => new CliError('UNAVAILABLE', 'not now');

  test('retries while the server cannot decide', async () => {
    const { client, calls } = failing([away(), away()]);
    const said: string[] = [];
    const stop = new AbortController().signal;
    await expect(callPatiently(client, 'x', {}, stop, (text) => said.push(text))).resolves.toBe('done');
    expect(calls()).toBe(3);
    expect(said).toEqual(['not now; trying again', 'not now; trying again']);
  });

  test('ends at once with other failures or a stop', async () => {
    const refused = failing([new CliError('NO', 'no')]);
    const never = new AbortController().signal;
    await expect(callPatiently(refused.client, 'x', {}, never, () => undefined)).rejects.toThrow('no');
    expect(refused.calls()).toBe(1);
    const stopped = failing([away(), away()]);
    await expect(
      callPatiently(stopped.client, 'x', {}, AbortSignal.abort(), () => undefined),
    ).rejects.toThrow('not now');
    expect(stopped.calls()).toBe(1);
  });

  test('ends after as many attempts as asked', async () => {
    const { client, calls } = failing([away(), away(), away()]);
    const never = new AbortController().signal;
    await expect(callPatiently(client, 'x', {}, never, () => undefined, 1)).rejects.toThrow('not now');
    expect(calls()).toBe(2);
  });
});

describe('what is shown', () => {
  test('holds no control character and the same JSON', () => {
    const nasty = 'a\u001b[31m\n\u0085\u2028\u202e\u2066\u061c\u200fb é 😀';
    const shown = printable(nasty);
    expect(shown).toBe('a\\u001b[31m\\u000a\\u0085\\u2028\\u202e\\u2066\\u061c\\u200fb é 😀');
    expect(JSON.parse(json({ nasty }))).toEqual({ nasty });
    expect(json({ nasty })).not.toMatch(/[\p{Cc}\u2028\u202e]/u);
  });

  test('stands under its column or beside its name', () => {
    const lines = stripVTControlCharacters(
      table(
        [
          { id: 'key_1', n: true },
          { id: 'k', name: 'a\nb', n: 7 },
        ],
        columns('id name n'),
      ),
    );
    expect(lines.split('\n')).toEqual(['id     name      n', 'key_1  –         true', 'k      a\\u000ab  7']);
    const narrow = (width: number) =>
      stripVTControlCharacters(
        table(
          [{ id: 'key_0123456789', name: 'a rather long name', note: 'another text that is long' }],
          columns('id name note'),
          width,
        ),
      ).split('\n');
    expect(narrow(62)[1]).toBe('key_0123456789  a rather long name  another text that is long');
    expect(narrow(50)[1]).toBe('key_0123456789  a rather long n…  another text th…');
    expect(narrow(38)[1]).toBe('key_0123456789  a rather…   another t…');
    expect(narrow(30)).toEqual(['id              name', 'key_0123456789  a rather…']);
    expect(narrow(5)).toEqual(['id', 'key_0123456789']);
    expect(stripVTControlCharacters(list({ id: 'x', enabled: false, gone: undefined, n: 0 }))).toBe(
      'id       x\nenabled  false\nn        0',
    );
    expect([time(0), time(undefined), count(1_234_567)]).toEqual([
      '1970-01-01T00:00:00.000Z',
      undefined,
      '1,234,567',
    ]);
  });
});
