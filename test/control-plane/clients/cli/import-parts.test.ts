import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Checkpoint } from '../../../../control-plane/clients/cli/commands/checkpoint.ts';
import { readCandidate } from '../../../../control-plane/clients/cli/commands/import.ts';
import { CliError } from '../../../../control-plane/clients/cli/exit.ts';
import {
  type InputLine,
  LINE_BYTES_MAX,
  readLines,
} from '../../../../control-plane/clients/cli/read-lines.ts';
import { generateKey, hashSecret } from '../../../../shared/rules/key-format.ts';

/** The parts of an import by themselves. */

describe('lines of a file', () => {
  const read = async (chunks: readonly Buffer[], after = { number: 0, end: 0 }): Promise<InputLine[]> => {
    const lines: InputLine[] = [];
    async function* source() {
      yield* chunks;
    }
    for await (const line of readLines(source(), after)) lines.push(line);
    return lines;
  };

  test('are the same however the file is cut', async () => {
    const text = fc.string({ unit: fc.constantFrom('a', '\n', 'é', '😀', '\r') });
    await fc.assert(
      fc.asyncProperty(text, fc.array(fc.nat(40)), async (text, cuts) => {
        const bytes = Buffer.from(text);
        const places = [0, ...cuts.filter((cut) => cut <= bytes.length).sort((a, b) => a - b), bytes.length];
        const chunks = places.slice(1).map((end, i) => bytes.subarray(places[i], end));
        const texts = text.split('\n');
        if (texts.at(-1) === '') texts.pop();
        const lines = await read(chunks, { number: 5, end: 100 });
        expect(lines.map(({ text }) => text)).toEqual(texts);
        expect(lines.map(({ number }) => number)).toEqual(texts.map((_, i) => 6 + i));
        for (const [i, { end }] of lines.entries()) {
          const upTo = texts.slice(0, i + 1).join('\n').length;
          const lineBreak = upTo < text.length ? 1 : 0;
          expect(end).toBe(100 + Buffer.byteLength(text.slice(0, upTo)) + lineBreak);
        }
      }),
    );
  });

  test('have no text if too long or not UTF-8', async () => {
    const longest = 'x'.repeat(LINE_BYTES_MAX);
    const whole = Buffer.concat([
      Buffer.from(`${longest}\n${longest}y\n`),
      Buffer.from([0xff]),
      Buffer.from('\nz'),
    ]);
    for (const size of [1000, LINE_BYTES_MAX, whole.length]) {
      const chunks: Buffer[] = [];
      for (let from = 0; from < whole.length; from += size) chunks.push(whole.subarray(from, from + size));
      const lines = await read(chunks);
      expect(lines.map(({ text }) => text)).toEqual([longest, undefined, undefined, 'z']);
      expect(lines.at(-1)?.end).toBe(whole.length);
    }
  });
});

describe('a line of an import', () => {
  const read = (text: string | undefined) => readCandidate({ number: 7, end: 0, text });
  const refused = (message: string) => ({ line: 7, code: 'BAD_REQUEST', message });

  test('refuses a whole number that would change', () => {
    for (const number of [
      '9007199254740993',
      '-9007199254740993',
      '[12345678901234567890]',
      `1${'0'.repeat(400)}`,
    ])
      expect(read(`{"key":"a","meta":{"n":${number}}}`)).toEqual(
        refused('has a whole number of more than 53 bits; write it as a string'),
      );
    for (const number of ['9007199254740992', '1e20', '"9007199254740993"'])
      expect(read(`{"key":"a","meta":{"n":${number}}}`)).toHaveProperty('body');
  });

  test('sends a key of ours as hash with its hint', () => {
    const key = generateKey(16, 'shop');
    const body = { foreign: false, sha256: hashSecret(key) };
    expect(read(`\ufeff {"key":"${key}","name":"Ada"} `)).toEqual({
      line: 7,
      foreign: false,
      body: { start: key.slice(0, 9), name: 'Ada', ...body },
    });
    expect(read(`{"key":"${key}","start":"x"}`)).toMatchObject({ body: { start: 'x' } });
    expect(read(`{"key":"${key}","foreign":true}`)).toMatchObject({ foreign: false, body });
  });

  test('shows nothing of a foreign key', () => {
    const longest = 'k'.repeat(512);
    for (const key of ['!', '~', longest])
      expect(read(JSON.stringify({ key }))).toEqual({
        line: 7,
        foreign: true,
        body: { foreign: true, sha256: hashSecret(key) },
      });
    expect(read('{"sha256":"x"}')).toEqual({ line: 7, foreign: true, body: { sha256: 'x' } });
    expect(read('{"sha512":"x"}')).toEqual({ line: 7, foreign: true, body: { sha512: 'x' } });
    expect(read('{"sha256":"x","foreign":false}')).toMatchObject({
      foreign: false,
      body: { foreign: false },
    });
  });

  test('is skipped if empty, refused if malformed', () => {
    for (const text of ['', '  ', '\ufeff', '\r']) expect(read(text)).toBeUndefined();
    expect(read(undefined)).toEqual(refused('longer than 65536 bytes, or not UTF-8'));
    for (const text of ['{', '[]', 'null', '"x"', '1'])
      expect(read(text)).toEqual(refused('not a JSON object'));
    expect(read('{}')).toEqual(refused('key or a digest (sha256, sha512, sha1, hmacSha256): required'));
    expect(read('{"key":"a","sha1":"b"}')).toEqual(refused('key and sha1: give only one of them'));
    expect(read('{"key":"a","sha256":"b"}')).toEqual(refused('key and sha256: give only one of them'));
    for (const key of ['', 'a b', 'ä', 'a\n', 7, null, 'k'.repeat(513)])
      expect(read(JSON.stringify({ key }))).toEqual(
        refused('key: must be 1 to 512 printable ASCII characters'),
      );
  });
});

describe('a checkpoint', () => {
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'keyfence-parts-'));
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  test('gives back what the same run wrote last', () => {
    const file = join(directory, 'progress');
    const mine = () => new Checkpoint<{ n: number }>(file, ['import', 'shop', 'http://a/']);
    expect(mine().read()).toBeUndefined();
    mine().write({ n: 1 });
    mine().write({ n: 2 });
    expect(mine().read()).toEqual({ n: 2 });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(existsSync(`${file}.new`)).toBe(false);
    expect(new Checkpoint(file, ['import', 'shop', 'http://b/']).read()).toBeUndefined();
    mine().remove();
    mine().remove();
    expect(existsSync(file)).toBe(false);
  });

  test('is an error naming the file if unusable', () => {
    const file = join(directory, 'other');
    writeFileSync(file, 'some notes of mine');
    expect(() => new Checkpoint(file, []).read()).toThrow(`${file} is in the way`);
    expect(readFileSync(file, 'utf8')).toBe('some notes of mine');
    for (const use of [
      () => new Checkpoint(directory, []).read(),
      () => new Checkpoint(join(directory, 'none', 'x'), []).write({}),
    ]) {
      expect(use).toThrow(/^cannot read or write .+: [a-z ]+/);
      expect(use).toThrow(CliError);
      expect(use).toThrow(expect.objectContaining({ exit: 'USAGE' }));
    }
  });
});
