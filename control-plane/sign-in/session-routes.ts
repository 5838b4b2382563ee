import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import type { Caller } from '../callers/root-keys.ts';
import { SESSION_MS_MAX, type Sessions } from '../callers/sessions.ts';
import { type Admission, admitted } from '../serve/admission.ts';
import type { App } from '../serve/server.ts';
import type { OidcProvider } from './oidc.ts';
import { cookieIn, cookieLine, SESSION_COOKIE } from './session-cookies.ts';

const PATH = '/dashboard/session';
const CSRF_HEADER = 'x-keyfence-csrf';
/** Maximum length of a root key that a configuration can have. */
const ROOT_KEY_LENGTH_MAX = 512;

/**
 * Serves the sessions of the dashboard: `POST` begins one with a root key, `GET` returns the one of the
 * cookie, `DELETE` ends it. The cookie cannot be read by scripts and is not sent by other sites.
 * @param parts.provider the identity provider; undefined = only root keys sign in
 * @param parts.hasTls true = browsers come over TLS, so that no other cookie counts than one that only this host can set
 */
export function serveSessions(
  app: App,
  parts: Admission & {
    readonly sessions: Sessions;
    readonly provider: OidcProvider | undefined;
    readonly hasTls: boolean;
  },
): void {
  const { sessions, provider, hasTls, ...admission } = parts;
  app.decorate('hasTls', hasTls);
  const offer = provider === undefined ? {} : { provider: provider.host };
  const body = Type.Object(
    { rootKey: Type.String({ minLength: 1, maxLength: ROOT_KEY_LENGTH_MAX }) },
    { additionalProperties: false },
  );
  app.post(PATH, { schema: { hide: true, body } }, async (request, reply) => {
    requireSameOrigin(request);
    const opening = sessions.begin(request.body.rootKey, request.ip ?? 'unknown', (callerId) =>
      admission.rates.countCall(request, callerId),
    );
    const { token, session } = await admitted(admission, request, opening);
    setCookie(request, reply, token);
    return { ...offer, ...session };
  });
  app.get(PATH, { schema: { hide: true } }, async (request, reply) => {
    requireSameOrigin(request);
    const token = tokenOf(request);
    if (token === undefined) return offer;
    const open = await sessions.find(token);
    if (open !== undefined) {
      await admission.rates.countCall(request, open.caller.id);
      return { ...offer, ...open.session };
    }
    clearCookie(reply);
    await admission.rates.countFailure(request);
    return offer;
  });
  app.delete(PATH, { schema: { hide: true } }, async (request, reply) => {
    const caller = await admitted(admission, request, callerOfSession(request, sessions));
    const idToken = await sessions.end(tokenOf(request) ?? '');
    clearCookie(reply);
    // The session is over, whether or not the provider answers.
    const signOutUrl = caller.person && (await provider?.signOutUrl(idToken).catch(() => undefined));
    return signOutUrl === undefined ? {} : { signOutUrl };
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

declare module 'fastify' {
  interface FastifyInstance {
    hasTls: boolean;
  }
}

const hasTls = ({ server, protocol, headers }: FastifyRequest): boolean =>
  server.hasTls || protocol === 'https' || headers.origin?.startsWith('https:') === true;

const tokenOf = (request: FastifyRequest) => cookieIn(request, SESSION_COOKIE, hasTls(request));

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

function setCookie(request: FastifyRequest, reply: FastifyReply, token: string): void {
  const isSecure = hasTls(request);
  const cookie = { name: SESSION_COOKIE, value: token, ageMs: SESSION_MS_MAX, isSecure };
  reply.header('set-cookie', cookieLine(cookie));
}

/** Clears the cookie under both names: a GET does not say whether the page came over TLS. */
function clearCookie(reply: FastifyReply): void {
  for (const isSecure of [true, false])
    reply.header('set-cookie', cookieLine({ name: SESSION_COOKIE, value: '', ageMs: 0, isSecure }));
}
