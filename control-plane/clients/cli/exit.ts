import type { ErrorCode } from '#shared/rules/errors.ts';

/** Exit statuses of the command line, for scripts; never renumbered. From 64 on they follow sysexits.h. */
export const EXITS = {
  OK: [0, 'Done. `keys verify`: the key is valid. `doctor`: nothing to change.'],
  NO: [
    1,
    'The answer is no: the object does not exist or already exists, the key is not valid, a later change set something else than this one, `webhooks test` was not delivered, or `doctor` found something to change.',
  ],
  DIFFERS: [2, '`diff` and `plan`: `apply` would change something.'],
  USAGE: [64, 'An argument, a value or a file is wrong. Nothing was done.'],
  DATA: [
    65,
    '`keys import` rejected some lines, or a command could not change some of many keys. It reported each by its number or id, and did the rest.',
  ],
  UNAVAILABLE: [
    69,
    'The control plane or the verifier is unreachable, or could not decide (503, 429). Try again. Unless the message says otherwise, the outcome of a change is unknown.',
  ],
  BUG: [
    70,
    'A bug in the command line or a server. The log of the server has the details under the request id.',
  ],
  PENDING: [
    75,
    'The change is written, but some verifiers may still answer from the earlier state. `keys propagation` shows whether the change is complete by now.',
  ],
  NOT_PERMITTED: [77, 'The root key is missing, unknown or disabled, or lacks the permission.'],
  CONFIG: [
    78,
    'An environment variable has an invalid value, or its URL points to a service that is not Keyfence.',
  ],
  INTERRUPTED: [
    130,
    'Ctrl-C. Run the command again: `keys import` and `keys export` continue where they stopped. A change of many keys starts over, which is harmless.',
  ],
} as const satisfies Record<string, readonly [status: number, meaning: string]>;

export type Exit = keyof typeof EXITS;

/** An error for the person or script that ran the command. The message must contain no secret. */
export class CliError extends Error {
  readonly exit: Exit;
  readonly code: string;
  readonly requestId: string | undefined;
  /** Time after which a retry makes sense, milliseconds, if the server gave one. */
  readonly retryAfterMs: number | undefined;

  constructor(
    exit: Exit,
    message: string,
    options: { code?: string; requestId?: string; retryAfterMs?: number; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'CliError';
    this.exit = exit;
    this.code = options.code ?? exit;
    this.requestId = options.requestId;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Exit status for each error of a server. */
export const EXIT_OF: Readonly<Record<ErrorCode, Exit>> = {
  BAD_REQUEST: 'USAGE',
  UNAUTHORIZED: 'NOT_PERMITTED',
  INSUFFICIENT_PERMISSIONS: 'NOT_PERMITTED',
  NOT_FOUND: 'NO',
  HOLD_UNKNOWN: 'NO',
  METHOD_NOT_ALLOWED: 'BUG',
  REQUEST_TIMEOUT: 'UNAVAILABLE',
  CONFLICT: 'NO',
  VERIFIERS_TOO_OLD: 'NO',
  PAYLOAD_TOO_LARGE: 'USAGE',
  URI_TOO_LONG: 'USAGE',
  UNSUPPORTED_MEDIA_TYPE: 'BUG',
  EXPECTATION_FAILED: 'BUG',
  RATE_LIMITED: 'UNAVAILABLE',
  HEADERS_TOO_LARGE: 'USAGE',
  INTERNAL_SERVER_ERROR: 'BUG',
  BAD_GATEWAY: 'UNAVAILABLE',
  GATEWAY_TIMEOUT: 'UNAVAILABLE',
  SERVICE_UNAVAILABLE: 'UNAVAILABLE',
};
