import { LUA_FIELDS } from '#shared/protocol/key-record.ts';
import { command, oneOf } from '#shared/redis/command.ts';

/** Disables a key unless it was used meanwhile. */
export const disableUnused = command(
  new URL('../keys/disable-unused.lua', import.meta.url),
  ['head', 'log', 'index', 'members', 'record', 'long', 'unused'],
  ['keyId', 'channel', 'now', 'maxlen', 'longest', 'base', 'rule', 'last'],
  oneOf('status', { OK: ['sequence#'], USED: [], NOT_FOUND: [] }),
  LUA_FIELDS,
);
