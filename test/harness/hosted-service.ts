import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

/** A key of the simulated service: as its lists show it, and the secret, which they show only of a recoverable one. */
export interface HostedKey {
  readonly secret: string;
  readonly isRecoverable: boolean;
  readonly data: {
    readonly keyId: string;
    readonly enabled: boolean;
    readonly expires?: number;
    readonly credits?: { remaining: number; readonly refill?: object };
    readonly [field: string]: unknown;
  };
}

interface Content {
  readonly keys: readonly HostedKey[];
  readonly identities: readonly object[];
  readonly roles: readonly object[];
  readonly permissions: readonly object[];
}

const ROOT_KEY = 'hosted_root_key';

/**
 * A stand-in for the service that keys come from: the part of its interface that a move needs, in pages. Verifying a key
 * spends its credits.
 */
export class HostedService {
  readonly rootKey = ROOT_KEY;
  readonly #content: Content;
  readonly #server: Server;

  private constructor(content: Content) {
    this.#content = content;
    this.#server = createServer(async (request, response) => {
      const [status, answer] = this.#answer(request, JSON.parse((await text(request)) || '{}'));
      response
        .writeHead(status, { 'content-type': 'application/json' })
        .end(JSON.stringify({ meta: { requestId: 'req_1' }, ...answer }));
    });
  }

  static async start(content: Content): Promise<HostedService> {
    const service = new HostedService(content);
    await once(service.#server.listen(0, '127.0.0.1'), 'listening');
    return service;
  }

  get address(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #answer({ headers, url = '' }: IncomingMessage, body: Query): [number, object] {
    if (headers.authorization !== `Bearer ${ROOT_KEY}`) return fault(401, 'Unauthorized');
    const { keys, identities, roles, permissions } = this.#content;
    const shown = keys.map(({ data, secret, isRecoverable }) => ({
      ...data,
      ...(body.decrypt && isRecoverable ? { plaintext: secret } : {}),
    }));
    switch (url.replace('/v2/', '')) {
      case 'permissions.listPermissions':
        return pageOf(permissions, body);
      case 'permissions.listRoles':
        return pageOf(roles, body);
      case 'identities.listIdentities':
        return pageOf(identities, body);
      case 'apis.listKeys':
        return pageOf(shown, body);
      case 'keys.getKey': {
        const data = shown.find(({ keyId }) => keyId === body.keyId);
        return data ? [200, { data }] : fault(404, 'Not Found');
      }
      case 'keys.verifyKey':
        return [200, { data: verdictOf(keys.find(({ secret }) => secret === body.key)) }];
      default:
        return fault(404, 'Not Found');
    }
  }
}

interface Query {
  readonly limit?: number;
  readonly cursor?: string;
  readonly decrypt?: boolean;
  readonly keyId?: string;
  readonly key?: string;
}

const fault = (status: number, title: string): [number, object] => [
  status,
  { error: { title, detail: title, status, type: 'about:blank' } },
];

function pageOf(all: readonly object[], { limit = 100, cursor = '0' }: Query): [number, object] {
  const next = Number(cursor) + limit;
  const hasMore = next < all.length;
  const pagination = { hasMore, ...(hasMore ? { cursor: String(next) } : {}) };
  return [200, { data: all.slice(Number(cursor), next), pagination }];
}

/** The service's verdict, which names every key that it has, and spends a credit of one that is good. */
function verdictOf(key: HostedKey | undefined): object {
  if (!key) return { valid: false, code: 'NOT_FOUND' };
  const { keyId, enabled, expires = Number.POSITIVE_INFINITY, credits } = key.data;
  const code = !enabled
    ? 'DISABLED'
    : expires < Date.now()
      ? 'EXPIRED'
      : credits?.remaining === 0
        ? 'USAGE_EXCEEDED'
        : 'VALID';
  if (code === 'VALID' && credits) credits.remaining--;
  return { valid: code === 'VALID', code, keyId };
}
