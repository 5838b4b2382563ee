import { randomBytes } from 'node:crypto';
import type {
  Configuration,
  CustomFetch,
  TokenEndpointResponse,
  TokenEndpointResponseHelpers,
} from 'openid-client';
import type { Dispatcher, RequestInit, fetch as undiciFetch } from 'undici';
import { type ConfigOf, httpUrl, type Setting, secret, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { lookupBy, type Resolve } from '#shared/process/name-resolver.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import {
  attributesOf,
  type PersonRule,
  type ProviderTokens,
  parsePersonRules,
  personOf,
  type SignIn,
} from '../../core/callers/person.ts';
import { SESSION_MS_MAX, type Sessions } from '../../core/callers/sessions.ts';
import type { Person } from '../../core/schema/person.ts';
import { type Admission, admitted } from '../../core/serve/admission.ts';
import { answerPage } from '../../core/serve/errors.ts';
import type { App } from '../../core/serve/server.ts';
import { cookieIn, cookieLine, SESSION_COOKIE } from '../../core/serve/session-cookies.ts';
import { type PendingSignIns, SIGN_IN_MS_MAX, type SignInCheck } from './pending-sign-ins.ts';

const rules: Setting<readonly PersonRule[]> = {
  parse: parsePersonRules,
  default: '',
  rule: 'one rule a line: `<claim>=<value>`, then permissions or presets',
  help: 'Permissions of people who have a claim with a value, one rule a line, such as `groups=support read-only` or `groups="API admins" api.shop.read_key`. Presets: `read-only`, `support`, `ci`, `everything`. All rules that match apply; without one, nobody signs in',
};

export const oidcSettings = {
  PUBLIC_URL: httpUrl().help(
    'URL at which browsers reach the control plane, such as `https://keyfence.example.com`. Required for OIDC_ISSUER',
  ),
  OIDC_ISSUER: httpUrl().help(
    'Issuer of the OpenID Connect provider at which people sign in to the dashboard. Unset: root keys only',
  ),
  OIDC_CLIENT_ID: text('').help('Id of this client at the provider'),
  OIDC_CLIENT_SECRET: secret('', 'text').help(
    'Secret of this client at the provider; better in OIDC_CLIENT_SECRET_FILE',
  ),
  OIDC_PERMISSIONS: rules,
  OIDC_SCOPE: text('openid profile email').help(
    'Scopes that the sign-in requests; some providers need one more for groups or refresh tokens',
  ),
};

/** The settings by which persons sign in, complete. */
export interface OidcOptions {
  readonly issuer: URL;
  readonly publicUrl: URL;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scope: string;
  readonly rules: readonly PersonRule[];
}

type OidcConfig = ConfigOf<typeof oidcSettings>;

/** Returns the settings by which persons sign in; undefined = they do not. */
export function oidcOptions(config: OidcConfig): OidcOptions | undefined {
  const { OIDC_ISSUER: issuer, PUBLIC_URL: publicUrl } = config;
  if (!issuer || !publicUrl) return undefined;
  return {
    ...{ issuer, publicUrl, clientId: config.OIDC_CLIENT_ID, clientSecret: config.OIDC_CLIENT_SECRET },
    ...{ scope: config.OIDC_SCOPE, rules: config.OIDC_PERMISSIONS },
  };
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
/** The issuers of Microsoft Entra ID that accept persons of every organisation. */
const ANY_TENANT = /^\/(common|organizations|consumers)\//;

/** Returns the faults of settings that do not fit together. */
export function oidcFaults(config: OidcConfig): string[] {
  const parts = {
    OIDC_ISSUER: config.OIDC_ISSUER !== undefined,
    OIDC_CLIENT_ID: config.OIDC_CLIENT_ID !== '',
    OIDC_CLIENT_SECRET: config.OIDC_CLIENT_SECRET !== '',
    OIDC_PERMISSIONS: config.OIDC_PERMISSIONS.length > 0,
  };
  if (!Object.values(parts).includes(true)) return [];
  const absent = Object.entries({ ...parts, PUBLIC_URL: config.PUBLIC_URL !== undefined })
    .filter(([, isSet]) => !isSet)
    .map(([name]) => `${name}: required, because ${Object.keys(parts).join(', ')} belong together`);
  const plain = (['OIDC_ISSUER', 'PUBLIC_URL'] as const)
    .filter((name) => config[name]?.protocol === 'http:' && !LOOPBACK.includes(config[name].hostname))
    .map((name) => `${name}: must begin with https://, except on this machine`);
  const open =
    config.OIDC_ISSUER?.hostname === 'login.microsoftonline.com' &&
    ANY_TENANT.test(config.OIDC_ISSUER.pathname)
      ? ['OIDC_ISSUER: must name your tenant, because this issuer accepts persons of every organisation']
      : [];
  const scope = config.OIDC_SCOPE.split(' ').includes('openid') ? [] : ['OIDC_SCOPE: must contain openid'];
  return [...absent, ...plain, ...open, ...scope];
}

/** Path below PUBLIC_URL to which the provider sends the browser back. */
const CALLBACK_PATH = '/dashboard/session/oidc/callback';

/** Longest time for one call to the provider, seconds. A sign-in or a refresh makes at most four. */
const CALL_S_MAX = 5;
/** Bytes of a response that are read. */
const RESPONSE_BYTES_MAX = 1_048_576;

type Library = typeof import('openid-client');
type Tokens = TokenEndpointResponse & TokenEndpointResponseHelpers;
/** The library, and what the provider says about itself. */
interface Client {
  readonly library: Library;
  readonly configuration: Configuration;
}

/**
 * The OpenID Connect provider. Every method rejects with UNAUTHORIZED if the provider refuses, or if its
 * answer cannot be trusted, and with SERVICE_UNAVAILABLE if it does not answer as it should.
 */
export class OidcProvider {
  readonly #options: OidcOptions;
  readonly #log: Pick<Logger, 'warn'>;
  readonly #resolve: Resolve;
  #client: Promise<Client> | undefined;

  constructor(options: OidcOptions, resolve: Resolve, log: Pick<Logger, 'warn'>) {
    this.#options = options;
    this.#resolve = resolve;
    this.#log = log;
  }

  /** The name of the provider for people. */
  get host(): string {
    return this.#options.issuer.host;
  }

  /** True if browsers reach the control plane over TLS. */
  get isSecure(): boolean {
    return this.#options.publicUrl.protocol === 'https:';
  }

  /** The address of the dashboard. */
  get dashboardUrl(): string {
    return this.#publicUrl('/dashboard/').href;
  }

  /** Begins a sign-in; resolves with the address to which the browser goes. */
  begin(): Promise<{ url: URL; check: SignInCheck }> {
    return this.#ask(async ({ library, configuration }) => {
      const codeVerifier = library.randomPKCECodeVerifier();
      const check = { state: library.randomState(), nonce: library.randomNonce(), codeVerifier };
      const url = library.buildAuthorizationUrl(configuration, {
        redirect_uri: this.#publicUrl(CALLBACK_PATH).href,
        scope: this.#options.scope,
        ...{ state: check.state, nonce: check.nonce, code_challenge_method: 'S256' },
        code_challenge: await library.calculatePKCECodeChallenge(codeVerifier),
      });
      return { url, check };
    });
  }

  /** Exchanges the code of the provider's answer. @param query the query with which the browser came back */
  finish(query: string, { state, nonce, codeVerifier }: SignInCheck): Promise<SignIn> {
    return this.#ask(async (client) => {
      const url = this.#publicUrl(CALLBACK_PATH);
      url.search = query;
      const tokens = await client.library.authorizationCodeGrant(client.configuration, url, {
        ...{ expectedState: state, expectedNonce: nonce, pkceCodeVerifier: codeVerifier },
        idTokenExpected: true,
      });
      return this.#signInOf(client, tokens, tokens.claims()?.sub ?? '');
    });
  }

  /** Asks about a person again. */
  refresh({ refreshToken = '', ...others }: ProviderTokens, { subject }: Person): Promise<SignIn> {
    return this.#ask(async (client) => {
      const tokens = await client.library.refreshTokenGrant(client.configuration, refreshToken);
      const signIn = await this.#signInOf(client, tokens, subject);
      return { ...signIn, tokens: { refreshToken, ...others, ...signIn.tokens } };
    });
  }

  /** Returns the address that signs the person out at the provider; undefined = it has none. */
  signOutUrl(idToken: string | undefined): Promise<string | undefined> {
    return this.#ask(async ({ library, configuration }) => {
      if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
      return library.buildEndSessionUrl(configuration, {
        ...(idToken === undefined ? {} : { id_token_hint: idToken }),
        post_logout_redirect_uri: this.dashboardUrl,
      }).href;
    });
  }

  /** Reads the claims of the ID token, and asks for those that it lacks. */
  async #signInOf({ library, configuration }: Client, tokens: Tokens, subject: string): Promise<SignIn> {
    const { issuer, rules } = this.#options;
    const fromToken = tokens.claims();
    if (fromToken && fromToken.sub !== subject) throw refusal('it answered about somebody else');
    const isComplete = fromToken && rules.every(({ claim }) => claim in fromToken);
    const hasMore = !isComplete && configuration.serverMetadata().userinfo_endpoint !== undefined;
    const more = hasMore
      ? await library.fetchUserInfo(configuration, tokens.access_token, subject)
      : undefined;
    // Whether an address is verified says only the document that has the address.
    const { email, email_verified } = (fromToken && 'email' in fromToken ? fromToken : more) ?? {};
    const source = { ...more, ...fromToken, email, email_verified };
    const { id_token: idToken, refresh_token: refreshToken } = tokens;
    return {
      person: personOf(issuer.href, subject, source),
      attributes: attributesOf(rules, source),
      tokens: { ...(idToken ? { idToken } : {}), ...(refreshToken ? { refreshToken } : {}) },
    };
  }

  #publicUrl(path: string): URL {
    return new URL(`${this.#options.publicUrl.href.replace(/\/$/, '')}${path}`);
  }

  async #ask<T>(work: (client: Client) => Promise<T>): Promise<T> {
    try {
      this.#client ??= this.#discover();
      return await work(await this.#client);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const { code, message, error: answer, cause } = error as ProviderError;
      // The error itself may contain tokens and claims.
      const reason = cause instanceof Error && code === undefined ? cause.message : undefined;
      this.#log.warn({ code, answer, message, reason }, 'the identity provider failed or refused');
      throw isOutage(error as ProviderError)
        ? unavailable('the identity provider does not answer as it should; try again soon')
        : refusal(answer && /^\w{1,40}$/.test(answer) ? answer : 'its answer cannot be trusted');
    }
  }

  /** Reads what the provider says about itself; a failure is not kept. */
  async #discover(): Promise<Client> {
    const { issuer, clientId, clientSecret } = this.#options;
    try {
      const [library, { EnvHttpProxyAgent, fetch }] = await Promise.all([
        import('openid-client'),
        import('undici'),
      ]);
      // An issuer whose name server is silent must not keep the process from resolving other names.
      const connect = { lookup: lookupBy(this.#resolve), timeout: CALL_S_MAX * 1000 };
      // Obeys HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
      const fetchBy = boundedFetch(fetch, new EnvHttpProxyAgent({ connect }));
      const configuration = await library.discovery(
        issuer,
        clientId,
        undefined,
        library.ClientSecretBasic(clientSecret),
        {
          timeout: CALL_S_MAX,
          [library.customFetch]: fetchBy,
          execute: [
            library.enableNonRepudiationChecks,
            ...(issuer.protocol === 'http:' ? [library.allowInsecureRequests] : []),
          ],
        },
      );
      return { library, configuration };
    } catch (error) {
      this.#client = undefined;
      const { code, message, cause } = error as ProviderError;
      const reason = cause instanceof Error ? cause.message : undefined;
      this.#log.warn(
        { code, message, reason },
        'the identity provider cannot be reached, or is not OIDC_ISSUER',
      );
      throw unavailable('the identity provider does not answer as it should; try again soon');
    }
  }
}

/** The parts of the library's errors that contain no token. */
interface ProviderError extends Error {
  readonly code?: string;
  /** The provider's own code, such as `invalid_grant`. */
  readonly error?: string;
  readonly status?: number;
}

const OUTAGES = [
  ...['OAUTH_TIMEOUT', 'OAUTH_ABORT', 'OAUTH_PARSE_ERROR'],
  ...['OAUTH_RESPONSE_IS_NOT_CONFORM', 'OAUTH_RESPONSE_IS_NOT_JSON'],
];

/** Tells whether the provider could not answer, so that asking again may help. */
function isOutage({ code, status = 0 }: ProviderError): boolean {
  return code === undefined || OUTAGES.includes(code) || status >= 500 || status === 429;
}

const refusal = (reason: string) =>
  new ApiError('UNAUTHORIZED', `the identity provider did not confirm who you are: ${reason}`);

/** Fetches at most RESPONSE_BYTES_MAX. The library sets the time-out, and follows no redirect. */
const boundedFetch =
  (fetch: typeof undiciFetch, dispatcher: Dispatcher): CustomFetch =>
  async (url, options) => {
    const response = await fetch(url, { ...(options as RequestInit), dispatcher });
    let bytes = 0;
    const limit = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        bytes += chunk.length;
        if (bytes > RESPONSE_BYTES_MAX)
          throw new Error(`a response has more than ${RESPONSE_BYTES_MAX} bytes`);
        controller.enqueue(chunk);
      },
    });
    const { status, statusText } = response;
    const headers = [...response.headers];
    return new Response(response.body?.pipeThrough(limit) ?? null, { status, statusText, headers });
  };

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
