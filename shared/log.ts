import { pino } from 'pino';

export type Logger = Pick<pino.Logger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'>;

/**
 * The process's logger: JSON lines on standard output. Fields that could hold a secret are cut out wherever
 * a careless caller might put them; nothing in this code base logs a request's headers or body.
 */
export function createLogger(process: 'control-plane' | 'verifier', level: string): pino.Logger {
  return pino({
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
        '*.authorization',
        '*.password',
      ],
      censor: '[redacted]',
    },
    timestamp: pino.stdTimeFunctions.isoTime,
  });
}
