import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { plainLine, printPlainly } from '../../deploy/dev/plain-log.ts';
import { createLogger } from '../../shared/process/log.ts';

/** Returns what our logger writes. */
function logged(write: (log: ReturnType<typeof createLogger>) => void): string {
  const lines: string[] = [];
  write(createLogger('verifier', 'trace', { write: (line) => void lines.push(line.trimEnd()) }));
  return lines.join('\n');
}

test('shows a line with its fields, but no stack', () => {
  const cause = new Error('connect ECONNREFUSED');
  const err = new Error('renew lease', { cause });
  const line = logged((log) => log.warn({ err, keyId: 'key_1', apis: ['a', 'b'] }, 'waiting'));
  expect(line).toContain(' at ');
  expect(plainLine(line, 'verifier')).toBe(
    'verifier: warning: waiting (keyId key_1, apis ["a","b"]): renew lease: connect ECONNREFUSED',
  );
  expect(
    plainLine(
      logged((log) => log.info('ready')),
      'verifier',
    ),
  ).toBe('verifier: ready');
  expect(
    plainLine(
      logged((log) => log.fatal({ err: cause }, 'stopping')),
      'control plane',
    ),
  ).toBe('control plane: error: stopping: connect ECONNREFUSED');
  expect(
    plainLine(
      logged((log) => log.error({ durable: false }, 'not durable')),
      'verifier',
    ),
  ).toBe('verifier: error: not durable (durable false)');
});

test('what is no line of the log is shown as it is', () => {
  for (const line of ['', 'Segmentation fault', '{', '12', 'null', '"text"', '{"a":1}'])
    expect(plainLine(line, 'verifier')).toBe(line);
});

test('shows a log line by line, however it arrives', async () => {
  const log = new PassThrough();
  const shown: string[] = [];
  printPlainly(log, 'verifier', (line) => shown.push(line));
  const text = `${logged((to) => to.info('one'))}\n${logged((to) => to.info('two'))}\n`;
  log.write(text.slice(0, 20));
  log.end(text.slice(20));
  await expect.poll(() => shown).toEqual(['verifier: one', 'verifier: two']);
});
