import { JWKS_CACHE, type TokenKeys } from '#shared/tokens/token-keys.ts';
import type { App } from '../../core/serve/server.ts';

/** Serves the public keys of the tokens that verifiers issue. */
export function serveJwks(app: App, keys: TokenKeys): void {
  for (const [path, document] of Object.entries(keys.documents()))
    app.get(path, { schema: { hide: true } }, async (_request, reply) => {
      reply.type('application/json').header('cache-control', JWKS_CACHE);
      return document();
    });
}
