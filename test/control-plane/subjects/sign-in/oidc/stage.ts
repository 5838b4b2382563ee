import { Fleet } from '../../../../harness/fleet.ts';
import { freePort } from '../../../../harness/ports.ts';
import { CookieJar, type Page } from './cookie-jar.ts';
import { CLIENT, RealProvider } from './real-provider.ts';

const PERMISSIONS = `
groups=keyfence-admins everything
groups="key support" support
email=ada@example.com api.shop.read_api
`;

type Env = Readonly<Record<string, string>>;

/** Settings of a control plane at a free port whose persons sign in at this issuer. */
export const settingsFor = (issuer: string, port: number): Env => ({
  ...{ PORT: String(port), PUBLIC_URL: `http://127.0.0.1:${port}`, FAILURES_PER_MINUTE: '0' },
  ...{ OIDC_ISSUER: issuer, OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret },
  OIDC_PERMISSIONS: PERMISSIONS,
});

/** A control plane and a real provider. */
export class OidcStage {
  readonly fleet: Fleet;
  readonly provider: RealProvider;
  readonly env: Env;
  readonly base: string;

  private constructor(fleet: Fleet, provider: RealProvider, env: Env, base: string) {
    this.fleet = fleet;
    this.provider = provider;
    this.env = env;
    this.base = base;
  }

  static async start(
    options: { refreshes?: boolean; thin?: boolean; env?: Env; redisUrl?: string } = {},
  ): Promise<OidcStage> {
    const port = await freePort();
    const base = `http://127.0.0.1:${port}`;
    const provider = await RealProvider.start(base, options);
    const env = { ...settingsFor(provider.issuer, port), ...options.env };
    const { redisUrl } = options;
    const fleet = await Fleet.start({ verifiers: 0, env, ...(redisUrl ? { redisUrl } : {}) });
    provider.accounts.set('ada-1', {
      ...{ name: 'Ada', email: 'ada@example.com', email_verified: true, groups: ['keyfence-admins', 'x'] },
    });
    provider.accounts.set('sue-2', { name: 'Sue', groups: ['key support'] });
    provider.accounts.set('bob-3', { name: 'Bob', groups: ['other'] });
    return new OidcStage(fleet, provider, env, base);
  }

  /** Signs in at the provider; returns the answer that sends the browser back, with the address in `url`. */
  async authorize(jar: CookieJar, login: string): Promise<Page> {
    const form = await jar.follow(`${this.base}/dashboard/session/oidc/begin`);
    const [, action = ''] = /<form [^>]*action="([^"]+)"/.exec(form.text) ?? [];
    const body = new URLSearchParams({ prompt: 'login', login, password: 'any' });
    return jar.follow(new URL(action, form.url).href, { method: 'POST', body }, (url) =>
      url.startsWith(this.base),
    );
  }

  /** Signs in; returns the jar of the browser and the answer to the provider's redirect. */
  async signIn(login: string, jar = new CookieJar()): Promise<{ jar: CookieJar; page: Page }> {
    const { url } = await this.authorize(jar, login);
    return { jar, page: await jar.open(url) };
  }

  /** The session of the browser, as its page reads it. */
  async session(jar: CookieJar) {
    return JSON.parse((await jar.open(`${this.base}/dashboard/session`)).text);
  }

  /** Calls an operation as the dashboard does. */
  async call(jar: CookieJar, operation: string, input?: object) {
    const { csrfToken = 'none' } = await this.session(jar);
    const headers = { 'x-keyfence-csrf': csrfToken };
    const { status, text } = await jar.open(`${this.base}/v1/${operation}`, {
      ...(input
        ? {
            method: 'POST',
            body: JSON.stringify(input),
            headers: { ...headers, 'content-type': 'application/json' },
          }
        : { headers }),
    });
    return { status, body: JSON.parse(text) };
  }

  async stop(): Promise<void> {
    await this.fleet.stop();
    await this.provider.stop();
  }
}
