import { command, oneOf } from '../../redis/command.ts';
import { LUA_FIELDS } from '../records/key-record.ts';

/** Disables a key unless it was used meanwhile. */
export const disableUnused = command(
  new URL('./disable-unused.lua', import.meta.url),
  ['head', 'log', 'index', 'members', 'record', 'long', 'unused'],
  ['keyId', 'channel', 'now', 'maxlen', 'longest', 'base', 'rule', 'last'],
  oneOf('status', { OK: ['sequence#'], USED: [], NOT_FOUND: [] }),
  LUA_FIELDS,
);
