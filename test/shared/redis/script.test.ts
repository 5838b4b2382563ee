import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { Script } from '../../../shared/redis/script.ts';
import { scratch } from '../../harness/scratch.ts';

const folder = scratch('script');
afterAll(() => rmSync(folder, { recursive: true }));

test('a script has each file once that it or one of them includes', () => {
  mkdirSync(join(folder, 'deep'));
  const files = {
    'main.lua': '#!lua\n-- include deep/both.lua\n-- include one.lua\nreturn one + two\n',
    'deep/both.lua': '-- Both\n-- include ../one.lua\n-- include two.lua\n',
    'deep/two.lua': '-- include both.lua\nlocal two = 2\n',
    'one.lua': 'local one = 1\n',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const { lua } = new Script(pathToFileURL(join(folder, 'main.lua')));
  expect(lua.split('\n').filter((line) => line !== '')).toEqual([
    ...['#!lua', '-- Both', 'local one = 1', 'local two = 2', 'return one + two'],
  ]);
});
