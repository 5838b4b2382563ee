import type { ErrorCode } from '../../../shared/rules/errors.ts';
import type { OperationKind } from './interface.ts';

/** A field of the input that was refused. */
export interface RefusedField {
  readonly field: string;
  readonly rule: string;
  readonly fix?: string;
}

/** A call without the answer that it asked for. */
export class AdminError extends Error {
  override readonly name = 'AdminError';
  /** The code of the answer; `UNREACHABLE` = none came; `NOT_KEYFENCE` = another service answered. */
  readonly code: ErrorCode | 'UNREACHABLE' | 'NOT_KEYFENCE';
  /** The status of the answer; undefined = none came. */
  readonly status: number | undefined;
  /** The name of the request in logs and in the audit log. */
  readonly requestId: string | undefined;
  /** The fields of a bad request. */
  readonly details: readonly RefusedField[];
  /** Time after which the call may be sent again, in milliseconds; undefined = no time is known. */
  readonly retryAfterMs: number | undefined;
  /** False = the call changed nothing; true = it is unknown whether it did. */
  readonly mayHaveChanged: boolean;

  constructor(
    code: AdminError['code'],
    message: string,
    about: Partial<
      Pick<AdminError, 'status' | 'requestId' | 'details' | 'retryAfterMs' | 'mayHaveChanged'>
    > & {
      cause?: unknown;
    } = {},
  ) {
    super(message, about.cause === undefined ? undefined : { cause: about.cause });
    this.code = code;
    this.status = about.status;
    this.requestId = about.requestId;
    this.details = about.details ?? [];
    this.retryAfterMs = about.retryAfterMs;
    this.mayHaveChanged = about.mayHaveChanged ?? false;
  }
}

/** The way of calls to one server. */
export interface Route {
  readonly base: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  readonly fetch: (url: URL, init: RequestInit) => Promise<Response>;
}

/**
 * Calls an operation once, and follows no redirect, so that the root key goes nowhere else. Resolves with the body of the
 * answer, trusted to have the documented form. Rejects with AdminError.
 */
export async function exchange(
  route: Route,
  name: string,
  kind: OperationKind,
  input: object,
): Promise<unknown> {
  const mayChange = kind === 'change';
  refuseUnsendable(input);
  const url = new URL(route.base);
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/v1/${name}`;
  const { signal } = route;
  let init: RequestInit = { headers: route.headers, redirect: 'error', signal };
  if (kind !== 'query') {
    const headers = { ...route.headers, 'content-type': 'application/json' };
    init = { ...init, headers, method: 'POST', body: JSON.stringify(input) };
  } else
    for (const [field, value] of Object.entries(input))
      if (value !== undefined) url.searchParams.set(field, String(value));
  try {
    return await answerOf(await route.fetch(url, init), mayChange);
  } catch (error) {
    throw error instanceof AdminError ? error : unreachable(url, error, mayChange);
  }
}

/**
 * Throws BAD_REQUEST for a value that JSON would write as another: `null`, which removes a field, in place of NaN, an infinite
 * number, an invalid date or what is no data.
 */
function refuseUnsendable(value: unknown, path = ''): void {
  const { toJSON } = Object(value) as { readonly toJSON?: unknown };
  const isList = Array.isArray(value);
  if (typeof value === 'object' && value !== null && typeof toJSON !== 'function') {
    for (const [name, part] of Object.entries(value))
      if (part !== undefined || isList) refuseUnsendable(part, path === '' ? name : `${path}.${name}`);
    return;
  }
  if (value === null || (typeof value !== 'bigint' && JSON.stringify([value]) !== '[null]')) return;
  const rule = `must be a finite number, a text, true, false or null, not ${String(value)}`;
  throw new AdminError('BAD_REQUEST', `${path}: ${rule}; nothing was sent`, {
    details: [{ field: path, rule }],
  });
}

interface ErrorBody {
  readonly code?: ErrorCode;
  readonly message?: string;
  readonly requestId?: string;
  readonly details?: readonly RefusedField[];
}

/** Returns the body of an answer, trusted to have the documented form. Throws AdminError. */
async function answerOf(response: Response, mayChange: boolean): Promise<unknown> {
  const text = await response.text();
  const { status } = response;
  const body = parse(text);
  if (status === 200 && body !== undefined) return body;
  const { code, message = '', requestId, details } = (body as { error?: ErrorBody } | undefined)?.error ?? {};
  if (typeof code !== 'string' || !/^[A-Z_]{1,64}$/.test(code))
    throw new AdminError('NOT_KEYFENCE', `the answer, ${status}, is not one of a control plane`, {
      ...{ status, mayHaveChanged: mayChange && status >= 500 },
    });
  const retryAfterS = Number(response.headers.get('retry-after') ?? Number.NaN);
  throw new AdminError(code, message, {
    ...{ status, requestId, details: Array.isArray(details) ? details : [] },
    retryAfterMs: retryAfterS >= 0 ? retryAfterS * 1000 : undefined,
    mayHaveChanged: mayChange && status >= 500 && !/nothing was changed/i.test(message),
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Failures before a request is sent: they change nothing. */
const UNSENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

/** Returns why a request had no answer, such as `ECONNREFUSED`. */
export function reasonOf(error: unknown): string {
  const { name, cause } = error as { name?: string; cause?: { code?: string; message?: string } };
  return name === 'TimeoutError' ? 'no answer' : (cause?.code ?? cause?.message ?? name ?? '');
}

function unreachable({ origin }: URL, error: unknown, mayChange: boolean): AdminError {
  const reason = reasonOf(error);
  const mayHaveChanged = mayChange && !UNSENT.includes(reason);
  const outcome = mayHaveChanged
    ? '; whether the call took effect is unknown, so check before trying again'
    : '';
  return new AdminError('UNREACHABLE', `${origin} is out of reach (${reason})${outcome}`, {
    ...{ mayHaveChanged, cause: error },
  });
}
