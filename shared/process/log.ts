import { type DestinationStream, type LoggerOptions, pino } from 'pino';
import { LogOutput } from './log-output.ts';

/** A logger, as far as modules need one. */
export type Logger = Pick<pino.Logger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'>;

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
    redact: {
      paths: [
        'key',
        'secret',
        'rootKey',
        'password',
        'authorization',
        '*.key',
        '*.secret',
        '*.rootKey',
        '*.password',
        '*.authorization',
      ],
      censor: '[redacted]',
    },
    serializers: { err: withoutCommand },
    timestamp: pino.stdTimeFunctions.isoTime,
  };
  return pino(options, destination);
}

function standardOutput(): LogOutput {
  const output = new LogOutput(1);
  process.once('exit', () => output.flushSync());
  return output;
}

/** An error without the Redis command that ioredis attaches: the arguments of AUTH are a password. */
function withoutCommand(error: Error): object {
  const { command: _, ...rest } = pino.stdSerializers.err(error) as object as Record<string, unknown>;
  return rest;
}
