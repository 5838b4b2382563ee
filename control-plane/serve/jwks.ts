import { JWKS_CACHE, JWKS_PATH, type TokenKeys } from '#shared/process/token-keys.ts';
import type { App } from './server.ts';

/** Serves the public keys of the tokens that verifiers issue. */
export function serveJwks(app: App, keys: TokenKeys): void {
  app.get(JWKS_PATH, { schema: { hide: true } }, async (_request, reply) => {
    reply.type('application/json').header('cache-control', JWKS_CACHE);
    return keys.jwks();
  });
}
