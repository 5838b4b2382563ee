import type { Logger } from '#shared/process/log.ts';
import type { HostLogger } from './key-verifier.ts';

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

/** Creates the engine's logger, which writes to the application's logger, or nowhere without one. */
export function engineLog(host: HostLogger | undefined): Logger {
  const to = (level: (typeof LEVELS)[number]) => {
    return (fields: unknown, message?: unknown) => {
      if (typeof fields === 'string') host?.[level]({}, fields);
      else host?.[level](withoutCommands(fields), String(message ?? ''));
    };
  };
  const [debug, info, warn, error] = [to('debug'), to('info'), to('warn'), to('error')];
  return { trace: debug, debug, info, warn, error, fatal: error };
}

/** Returns the fault of an application's logger; undefined = none. */
export function logFault(log: unknown): string | undefined {
  const methods = Object(log) as Record<string, unknown>;
  return log === undefined || LEVELS.every((level) => typeof methods[level] === 'function')
    ? undefined
    : `log: must have the methods ${LEVELS.join(', ')}`;
}

/**
 * Returns the fields with each error as a plain object. Leaves out the Redis command that ioredis attaches to
 * an error: AUTH contains a password.
 */
function withoutCommands(fields: unknown): object {
  const entries = Object.entries(Object(fields) as object);
  return Object.fromEntries(
    entries.map(([name, value]) => [name, value instanceof Error ? errorFields(value) : value]),
  );
}

function errorFields({ name, message, stack, cause }: Error): object {
  return { name, message, stack, ...(cause instanceof Error ? { cause: errorFields(cause) } : {}) };
}
