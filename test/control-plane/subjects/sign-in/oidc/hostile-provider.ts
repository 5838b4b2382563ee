import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CLIENT } from './real-provider.ts';

type Fields = Readonly<Record<string, unknown>>;
type Respond = (response: ServerResponse, path: string) => unknown;

const newKey = () => generateKeyPairSync('rsa', { modulusLength: 2048 });

/** A provider of ours that answers as a test says. Without a word from the test it is honest. */
export class HostileProvider {
  readonly issuer: string;
  /** Claims in place of the honest ones; undefined leaves one out. */
  /** What it says of the person besides the ID token; undefined = nothing. */
  userinfo: Fields | undefined;
  idClaims: Fields = {};
  /** Fields in place of those of the honest answer to a code or a refresh token. */
  fields: Fields = {};
  /** In place of the answer at a path. */
  instead: Readonly<Record<string, Respond>> = {};
  /** The nonce of the sign-in, which the authorization request has. */
  nonce = '';
  signsWith: KeyObject | 'none';
  /** Requests by their path. */
  readonly requests: string[] = [];
  readonly keys = newKey();
  readonly otherKeys = newKey();
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.signsWith = this.keys.privateKey;
    this.issuer = `http://localhost:${(server.address() as AddressInfo).port}`;
  }

  static async start(): Promise<HostileProvider> {
    const server = createServer();
    await once(server.listen(0, 'localhost'), 'listening');
    const hostile = new HostileProvider(server);
    server.on('request', (request, response) => {
      const { pathname } = new URL(request.url ?? '', hostile.issuer);
      hostile.requests.push(pathname);
      request.resume();
      const respond = hostile.instead[pathname];
      if (respond) respond(response, pathname);
      else hostile.json(response, hostile.#honest(pathname));
    });
    return hostile;
  }

  json(response: ServerResponse, body: unknown, status = 200): void {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  }

  /** Is honest again. */
  reset(): void {
    Object.assign(this, {
      idClaims: {},
      userinfo: undefined,
      fields: {},
      instead: {},
      signsWith: this.keys.privateKey,
    });
  }

  get metadata(): Fields {
    const { issuer } = this;
    return {
      ...{ issuer, authorization_endpoint: `${issuer}/authorize`, token_endpoint: `${issuer}/token` },
      ...{ jwks_uri: `${issuer}/jwks`, id_token_signing_alg_values_supported: ['RS256'] },
      ...{ response_types_supported: ['code'], subject_types_supported: ['public'] },
      ...(this.userinfo ? { userinfo_endpoint: `${issuer}/userinfo` } : {}),
    };
  }

  get idToken(): string {
    const now = Math.floor(Date.now() / 1000);
    const honest = {
      ...{ iss: this.issuer, aud: CLIENT.id, sub: 'eve-1', nonce: this.nonce, iat: now, exp: now + 300 },
      groups: ['key support'],
    };
    const head = this.signsWith === 'none' ? { alg: 'none' } : { alg: 'RS256', kid: 'k' };
    const signed = [head, { ...honest, ...this.idClaims }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.');
    const signature =
      this.signsWith === 'none'
        ? ''
        : sign('sha256', Buffer.from(signed), this.signsWith).toString('base64url');
    return `${signed}.${signature}`;
  }

  #honest(path: string): unknown {
    if (path === '/.well-known/openid-configuration') return this.metadata;
    if (path === '/jwks')
      return {
        keys: [{ ...this.keys.publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }],
      };
    if (path === '/userinfo') return this.userinfo;
    if (path === '/token')
      return {
        access_token: 'an-access-token-of-eve',
        token_type: 'Bearer',
        id_token: this.idToken,
        ...this.fields,
      };
    return { error: 'not_found' };
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }
}
