import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { SESSION_MS_MAX, type Sessions } from '../../core/callers/sessions.ts';
import { type Admission, admitted } from '../../core/serve/admission.ts';
import { callerOfSession, hasTls, requireSameOrigin, tokenOf } from '../../core/serve/browser-session.ts';
import type { App } from '../../core/serve/server.ts';
import { cookieLine, SESSION_COOKIE } from '../../core/serve/session-cookies.ts';
import type { OidcProvider } from './oidc.ts';

const PATH = '/dashboard/session';
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
