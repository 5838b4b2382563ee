import type { FastifyRequest } from 'fastify';
import { ApiError } from '#shared/rules/errors.ts';
import type { Caller } from '../callers/root-keys.ts';
import type { Sessions } from '../callers/sessions.ts';
import { cookieIn, SESSION_COOKIE } from './session-cookies.ts';

const CSRF_HEADER = 'x-keyfence-csrf';

/**
 * Returns true for a call of the dashboard, which comes with a session instead of a root key. Browsers send the
 * cookie also with calls of other pages of this server, such as the reference.
 */
export const hasSession = (request: FastifyRequest): boolean =>
  request.headers.authorization === undefined && request.headers[CSRF_HEADER] !== undefined;

/**
 * Returns the caller of a request with a session. Rejects with UNAUTHORIZED if the session is over, or if
 * another site may have made the request.
 */
export async function callerOfSession(request: FastifyRequest, sessions: Sessions): Promise<Caller> {
  requireSameOrigin(request);
  const open = await sessions.find(tokenOf(request) ?? '');
  if (open === undefined) throw new ApiError('UNAUTHORIZED', 'the session is over; sign in again');
  if (request.headers[CSRF_HEADER] !== open.session.csrfToken)
    throw new ApiError('UNAUTHORIZED', `${CSRF_HEADER}: is not that of the session; reload the page`);
  return open.caller;
}

declare module 'fastify' {
  interface FastifyInstance {
    hasTls: boolean;
  }
}

/** Tells whether the browser came over TLS. */
export const hasTls = ({ server, protocol, headers }: FastifyRequest): boolean =>
  server.hasTls || protocol === 'https' || headers.origin?.startsWith('https:') === true;

export const tokenOf = (request: FastifyRequest) => cookieIn(request, SESSION_COOKIE, hasTls(request));

/**
 * Throws UNAUTHORIZED if the browser says that another site made the request. Browsers without these headers
 * are left to the header against CSRF.
 */
export function requireSameOrigin({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  const { origin, host } = headers;
  const isOther = site !== undefined && site !== 'same-origin';
  const isForeign = origin !== undefined && URL.parse(origin)?.host !== host;
  if (isOther || (site === undefined && isForeign))
    throw new ApiError('UNAUTHORIZED', 'sessions are for pages of this server only; send a root key instead');
}
