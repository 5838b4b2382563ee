import { randomBytes } from 'node:crypto';
import { ApiError } from '#shared/contract/errors.ts';
import { type Admission, admitted } from '../serve/admission.ts';
import { answerPage } from '../serve/errors.ts';
import type { App } from '../serve/server.ts';
import { CALLBACK_PATH, type OidcProvider } from './oidc-provider.ts';
import { type PendingSignIns, SIGN_IN_MS_MAX } from './pending-sign-ins.ts';
import { cookieIn, cookieLine, SESSION_COOKIE } from './session-cookies.ts';
import { SESSION_MS_MAX, type Sessions } from './sessions.ts';

const COOKIE = 'keyfence_sign_in';
const BROWSER_BYTES = 32;

/**
 * Serves the sign-in of persons: one path sends the browser to the provider, the other takes it back and begins
 * a session. A cookie binds the two to one browser; without it, somebody could sign in others as themselves. All tabs of
 * the browser share it, so that none ends the sign-in of another.
 */
export function serveOidc(
  app: App,
  parts: Admission & {
    readonly provider: OidcProvider;
    readonly pendingSignIns: PendingSignIns;
    readonly sessions: Sessions;
  },
): void {
  const { provider, pendingSignIns, sessions, rates } = parts;
  const options = { schema: { hide: true }, errorHandler: answerPage };
  const { isSecure } = provider;
  // The provider's redirect comes from another site, so the browser would not send a Strict cookie.
  const bindingCookie = (browser: string) =>
    cookieLine({ name: COOKIE, value: browser, ageMs: SIGN_IN_MS_MAX, isSecure, sameSite: 'Lax' });

  app.get('/dashboard/session/oidc/begin', options, async (request, reply) => {
    const site = request.headers['sec-fetch-site'] ?? 'none';
    if (site !== 'none' && site !== 'same-origin')
      throw new ApiError('UNAUTHORIZED', 'another site opened this page; sign in from the dashboard');
    // Each of these calls costs memory of Redis, and anybody can make them.
    await rates.countFailure(request);
    const { url, check } = await provider.begin();
    const browser = cookieIn(request, COOKIE, isSecure) ?? randomBytes(BROWSER_BYTES).toString('base64url');
    await pendingSignIns.add(browser, check);
    reply.header('set-cookie', bindingCookie(browser));
    return reply.redirect(url.href);
  });

  app.get(CALLBACK_PATH, options, async (request, reply) => {
    const [, query = ''] = request.url.split('?');
    const state = new URLSearchParams(query).get('state') ?? '';
    const browser = cookieIn(request, COOKIE, isSecure) ?? '';
    const finish = async () => {
      const check = await pendingSignIns.take(browser, state);
      if (check === 'finished') return check;
      if (check) return provider.finish(query, check);
      const reason = 'it began in another browser, failed already, or took more than 10 minutes';
      throw new ApiError('UNAUTHORIZED', `this sign-in is over: ${reason}`);
    };
    const signIn = await admitted(parts, request, finish());
    // The page was loaded again. Its session has a cookie of its own, if it lives.
    if (signIn === 'finished') return reply.redirect(`${provider.dashboardUrl}#/`);
    await rates.countCall(request, signIn.person.personId);
    const token = await sessions.beginFor(signIn, request.ip ?? 'unknown');
    const session = { name: SESSION_COOKIE, value: token, ageMs: SESSION_MS_MAX, isSecure };
    reply.header('set-cookie', cookieLine(session));
    await pendingSignIns.finish(browser, state);
    // The calls of that page carry the session's cookie, because the page itself makes them.
    return reply.redirect(`${provider.dashboardUrl}#/`);
  });
}
