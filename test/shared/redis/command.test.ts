import { expect, test } from 'vitest';
import { command, oneOf, row } from '../../../shared/redis/command.ts';

const file = new URL('../../../shared/protocol/writer/set-lease.lua', import.meta.url);
const declared = command(
  file,
  ['head', '...members'],
  ['step', 'lease'],
  row('sequence#', 'hash', '...names'),
);

test('a command names its arguments to the script', () => {
  const { keys, args, script } = declared({ lease: 5, step: 'grant', members: ['m', 'n'], head: 'h' });
  expect([keys, args]).toEqual([
    ['h', 'm', 'n'],
    ['grant', 5],
  ]);
  expect(script.lua.split('\n').slice(0, 2)).toEqual([
    '#!lua flags=allow-oom',
    'local head = unpack(KEYS, 1, 1) local members = #KEYS < 1000 and {unpack(KEYS, 2)} or {} for i = 2 + #members, #KEYS do members[i - 1] = KEYS[i] end local step, lease = unpack(ARGV, 1, 2) ',
  ]);
  // @ts-expect-error a name is missing
  declared({ step: 'grant', members: [], head: 'h' });
  // @ts-expect-error no such name
  declared({ lease: 5, step: 'grant', members: [], head: 'h', token: '' });
});

test('optional arguments come last', () => {
  const optional = command(file, ['head', 'long?'], ['step', 'own?'], row('places[]'));
  const { keys, args, script } = optional({ head: 'h', step: 'grant', long: 'l' });
  expect([keys, args]).toEqual([['h', 'l'], ['grant']]);
  expect(script.lua).toContain('local head, long = unpack(KEYS, 1, 2) local step, own = unpack(ARGV, 1, 2)');
  expect(optional({ head: 'h', step: 'grant' }).read([['a', null]])).toEqual({ places: ['a', ''] });
});

test('a reply has names, and numbers if declared', () => {
  const { read } = declared({ lease: 5, step: 'grant', members: [], head: 'h' });
  const { sequence, hash, names } = read(['7', null, 'a', 'b']);
  const typed: [number, string, readonly string[]] = [sequence, hash, names];
  expect(typed).toEqual([7, '', ['a', 'b']]);
});

test('a reply has the parts of a declared status', () => {
  const read = oneOf('state', { OK: ['count#'], LOST: [] });
  expect([read(['OK', '3']), read('LOST')]).toEqual([{ state: 'OK', count: 3 }, { state: 'LOST' }]);
  expect(() => read(['OTHER'])).toThrow('a script answered OTHER');
});
