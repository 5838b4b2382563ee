import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import type { Caller } from '../redis/callers/root-keys.ts';
import { SESSION_MS_MAX, type Sessions } from '../redis/callers/sessions.ts';
import { type Admission, admitted } from './guards/admission.ts';
import type { App } from './server.ts';

const PATH = '/dashboard/session';
const COOKIE = 'keyfence_session';
/** Browsers accept this name only over TLS and from this host itself, not from a neighbour in its domain (RFC 6265bis). */
const SECURE_COOKIE = `__Host-${COOKIE}`;
const CSRF_HEADER = 'x-keyfence-csrf';
/** Maximum length of a root key that a configuration can have. */
const ROOT_KEY_LENGTH_MAX = 512;

/**
 * Serves the sessions of the dashboard: `POST` begins one with a root key, `GET` returns the one of the
 * cookie, `DELETE` ends it. The cookie cannot be read by scripts and is not sent by other sites.
 */
export function serveSessions(
  app: App,
  { sessions, ...admission }: Admission & { readonly sessions: Sessions },
): void {
  const body = Type.Object(
    { rootKey: Type.String({ minLength: 1, maxLength: ROOT_KEY_LENGTH_MAX }) },
    { additionalProperties: false },
  );
  app.post(PATH, { schema: { hide: true, body } }, async (request, reply) => {
    requireSameOrigin(request);
    const opening = sessions.begin(request.body.rootKey, request.ip ?? 'unknown');
    const { token, session } = await admitted(admission, request, reply, opening);
    setCookie(request, reply, token);
    return session;
  });
  app.get(PATH, { schema: { hide: true } }, async (request, reply) => {
    requireSameOrigin(request);
    const token = tokenOf(request);
    if (token === undefined) return {};
    const open = await sessions.find(token);
    if (open !== undefined) return open.session;
    clearCookie(reply);
    await admission.rates.countFailure(request, reply);
    return {};
  });
  app.delete(PATH, { schema: { hide: true } }, async (request, reply) => {
    await admitted(admission, request, reply, callerOfSession(request, sessions));
    await sessions.end(tokenOf(request) ?? '');
    clearCookie(reply);
    return {};
  });
}

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

/** Returns the token in the cookie. The one that no other site can have set comes first. */
function tokenOf({ headers: { cookie = '' } }: FastifyRequest): string | undefined {
  const [secure, plain] = COOKIE_VALUES;
  return (secure.exec(cookie) ?? plain.exec(cookie))?.[1];
}

const valueIn = (name: string) => new RegExp(`(?:^|;\\s*)${name}=([\\w-]+)`);
const COOKIE_VALUES = [valueIn(SECURE_COOKIE), valueIn(COOKIE)] as const;

/**
 * Throws UNAUTHORIZED if the browser says that another site made the request. Browsers without these headers
 * are left to the header against CSRF.
 */
function requireSameOrigin({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  const { origin, host } = headers;
  const isOther = site !== undefined && site !== 'same-origin';
  const isForeign = origin !== undefined && URL.parse(origin)?.host !== host;
  if (isOther || (site === undefined && isForeign))
    throw new ApiError('UNAUTHORIZED', 'sessions are for pages of this server only; send a root key instead');
}

function setCookie({ headers, protocol }: FastifyRequest, reply: FastifyReply, token: string): void {
  const isSecure = protocol === 'https' || headers.origin?.startsWith('https:') === true;
  reply.header('set-cookie', cookieLine(isSecure, token, SESSION_MS_MAX));
}

/** Clears the cookie under both names: a GET does not say whether the page came over TLS. */
function clearCookie(reply: FastifyReply): void {
  for (const isSecure of [true, false]) reply.header('set-cookie', cookieLine(isSecure, '', 0));
}

const cookieLine = (isSecure: boolean, token: string, ageMs: number) =>
  `${isSecure ? SECURE_COOKIE : COOKIE}=${token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${ageMs / 1000}${isSecure ? '; Secure' : ''}`;
