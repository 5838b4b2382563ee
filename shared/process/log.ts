import { type DestinationStream, type LoggerOptions, pino } from 'pino';
import { systemClock } from '../lang/clock.ts';
import { LogOutput } from './log-output.ts';

/** A logger, as far as modules need one. */
export type Logger = Pick<pino.Logger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'>;

const SECRETS = new Set(['key', 'secret', 'rootKey', 'password', 'authorization']);
const PLACEHOLDER = '[redacted]';

/**
 * The process's logger: JSON lines on standard output. Fields that could hold a secret are cut out wherever
 * a careless caller might put them; nothing in this code base logs a request's headers or body.
 */
export function createLogger(
  process: 'control-plane' | 'verifier',
  level: string,
  destination: DestinationStream = standardOutput(),
): pino.Logger {
  const options: LoggerOptions = {
    level,
    base: { process },
    formatters: { log: (fields) => withoutSecrets(fields) },
    serializers: { err: (error: Error) => withoutSecrets(withoutCommand(error)) },
    timestamp: isoTime,
  };
  const logger = pino(options, destination);
  const { child } = logger;
  // pino leaves out formatters of what a child logs with each line.
  return Object.assign(logger, {
    child(this: pino.Logger, bindings: pino.Bindings, childOptions?: pino.ChildLoggerOptions): pino.Logger {
      return Reflect.apply(child, this, [withoutSecrets(bindings), childOptions]);
    },
  });
}

function standardOutput(): LogOutput {
  const output = new LogOutput(1);
  process.once('exit', () => output.flushSync());
  return output;
}

let time = { ms: 0, text: '' };

/** The time of a line. Made once for all lines of a millisecond. */
function isoTime(): string {
  const ms = systemClock.wallMs();
  if (ms !== time.ms) time = { ms, text: `,"time":"${new Date(ms).toISOString()}"` };
  return time.text;
}

/** The fields, and those of what they hold, without such as could be a secret. By hand: pino's own costs 7 µs a line. */
function withoutSecrets(fields: Record<string, unknown>, isPart = false): Record<string, unknown> {
  let safe = fields;
  for (const [name, value] of Object.entries(fields)) {
    const safeValue = SECRETS.has(name)
      ? PLACEHOLDER
      : isPart || !isPlain(value)
        ? value
        : withoutSecrets(value, true);
    if (safeValue === value) continue;
    if (safe === fields) safe = { ...fields };
    safe[name] = safeValue;
  }
  return safe;
}

/** True of what is logged field by field; an error is not, until it is serialized. */
const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !(value instanceof Error);

/** An error without the Redis command that ioredis attaches: the arguments of AUTH are a password. */
function withoutCommand(error: Error): Record<string, unknown> {
  const { command: _, ...rest } = pino.stdSerializers.err(error) as object as Record<string, unknown>;
  return rest;
}
