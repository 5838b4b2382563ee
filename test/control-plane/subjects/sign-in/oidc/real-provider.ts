import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import Provider from 'oidc-provider';

export const CLIENT = { id: 'keyfence', secret: 'a-secret-of-the-client-0123456789' } as const;

/** What the provider knows of a person, besides the subject. */
type Account = Readonly<Record<string, unknown>>;

/** `oidc-provider` in this process, with accounts that a test may change. */
export class RealProvider {
  readonly accounts = new Map<string, Account>();
  /** Secrets of the client that are good; two during a rotation. */
  readonly secrets = new Set<string>([CLIENT.secret]);
  /** Paths of requests since the start. */
  readonly paths: string[] = [];
  readonly #server: Server;
  readonly issuer: string;

  private constructor(server: Server) {
    this.#server = server;
    this.issuer = `http://localhost:${(server.address() as AddressInfo).port}`;
  }

  /**
   * @param publicUrl where the control plane will be
   * @param options.refreshes whether it gives refresh tokens
   * @param options.thin whether its ID tokens lack claims, which its userinfo has
   */
  static async start(publicUrl: string, options: { refreshes?: boolean; thin?: boolean } = {}) {
    const server = createServer();
    await once(server.listen(0, 'localhost'), 'listening');
    const real = new RealProvider(server);
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const provider = new Provider(real.issuer, {
      clients: [
        {
          client_id: CLIENT.id,
          client_secret: CLIENT.secret,
          redirect_uris: [`${publicUrl}/dashboard/session/oidc/callback`],
          post_logout_redirect_uris: [`${publicUrl}/dashboard/`],
          grant_types: ['authorization_code', 'refresh_token'],
        },
      ],
      jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig' }] },
      cookies: { keys: ['of-a-test'] },
      claims: { openid: ['sub', 'groups'], email: ['email', 'email_verified'], profile: ['name'] },
      conformIdTokenClaims: options.thin ?? false,
      issueRefreshToken: async () => options.refreshes ?? false,
      rotateRefreshToken: true,
      ttl: {
        AccessToken: 600,
        Grant: 3600,
        IdToken: 600,
        Interaction: 600,
        RefreshToken: 3600,
        Session: 3600,
      },
      findAccount: (_context, subject) => {
        const account = real.accounts.get(subject);
        return account && { accountId: subject, claims: async () => ({ sub: subject, ...account }) };
      },
      // Nobody is asked for consent.
      async loadExistingGrant({ oidc }) {
        const grant = new oidc.provider.Grant({
          ...(oidc.client ? { clientId: oidc.client.clientId } : {}),
          ...(oidc.session?.accountId ? { accountId: oidc.session.accountId } : {}),
        });
        grant.addOIDCScope('openid email profile');
        await grant.save();
        return grant;
      },
    });
    Object.assign(provider.Client.prototype, {
      compareClientSecret: async (secret: string) => real.secrets.has(secret),
    });
    server.on('request', (request) => real.paths.push(request.url?.split('?')[0] ?? ''));
    server.on('request', provider.callback());
    return real;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    if (this.#server.listening) await once(this.#server, 'close');
  }
}
