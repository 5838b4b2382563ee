import type { Redis } from 'ioredis';
import { unavailable } from '../rules/errors.ts';
import { unusable } from './redis-fault.ts';

/**
 * Returns those of the commands in ARGV, words separated by spaces, that are forbidden or unknown. It is text and no
 * file, because verifiers are bundled, and it runs once.
 */
const CHECK_RIGHTS = `#!lua flags=no-writes
local denied = {}
for _, text in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  local known, permitted = pcall(redis.acl_check_cmd, unpack(words))
  if not (known and permitted) then denied[#denied + 1] = text end
end
return denied`;

/** Thrown if Redis can only be used after its configuration, or that of the process, has changed. */
export class Unfit extends Error {
  override readonly name = 'Unfit';
}

/** Returns those of the commands that the connection's user may not run. Runs none of them. */
export async function deniedCommands(redis: Redis, commands: readonly string[]): Promise<string[]> {
  try {
    return (await redis.eval(CHECK_RIGHTS, 0, ...commands)) as string[];
  } catch (error) {
    if (isReplyError(error) && error.message.startsWith('NOPERM')) return ['eval x 0', 'evalsha x 0'];
    throw error;
  }
}

/** Returns what to add to a user's rules in Redis for these commands, such as `+config|get +info`. */
export function permitting(commands: readonly string[]): string {
  const names = commands.map(
    (command) => /^(config|cluster|xgroup|xinfo) \w+|^\w+/.exec(command)?.[0] ?? command,
  );
  return [...new Set(names)].map((name) => `+${name.replace(' ', '|')}`).join(' ');
}

/** Selects the database. Rejects with Unfit if Redis does not have it, or does not permit it. */
export async function selectDatabase(redis: Redis, database: number): Promise<void> {
  if (database === 0) return;
  await redis.select(database).catch((error: unknown) => {
    if (!isReplyError(error) || !/^(ERR|NOPERM)\b/.test(error.message)) throw error;
    throw new Unfit(
      `REDIS_URL: database ${database} cannot be used (${error.message}): choose another, or permit +select`,
    );
  });
}

/**
 * Rejects if the server is too old or not ready, and with Unfit if its user lacks rights. Accepts a server that does
 * not permit INFO, unless it is among the commands.
 */
export async function refuseUnusable(redis: Redis, commands: readonly string[]): Promise<void> {
  const info = await redis.info().catch((error: unknown) => {
    if (isReplyError(error) && error.message.startsWith('NOPERM')) return '';
    throw error;
  });
  const reason = unusable(info);
  if (reason !== undefined) throw unavailable(reason);
  if (commands.length === 0) return;
  const denied = await deniedCommands(redis, commands);
  if (denied.length > 0)
    throw new Unfit(
      `its user lacks rights: permit ${permitting(denied)}, on the keys that deploy/redis/users.acl names`,
    );
}

/** Returns true if the error is Redis' own reply, which means that Redis did not execute the command. */
export function isReplyError(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}
