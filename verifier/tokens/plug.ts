import { Counter, type Registry } from 'prom-client';
import type { Clock } from '#shared/process/clock.ts';
import { metricMakers } from '#shared/process/process-metrics.ts';
import { JWKS_CACHE, TokenKeys } from '#shared/tokens/token-keys.ts';
import { answer } from '../doors/http/respond.ts';
import type { Routes } from '../doors/http/server.ts';
import type { Extra } from '../extra.ts';
import { issueTokenRoute } from './issue-token.ts';
import { newTokenCounts, TokenIssuer, TokenStamp } from './tokens.ts';

/** Returns the calls and the stamp of tokens. Without a secret, there are none. */
export function tokens(
  config: ConstructorParameters<typeof TokenKeys>[0] & { readonly AUTHZ_TOKEN: boolean },
  clock: Clock,
): Extra {
  if (config.TOKEN_KEY.length === 0) return { watch: watchTokens };
  const keys = new TokenKeys(config, clock);
  const issuer = new TokenIssuer(keys, clock);
  return {
    ...(config.AUTHZ_TOKEN ? { stamp: new TokenStamp(issuer) } : {}),
    calls: (parts, bodyBytesMax) => ({
      '/v1/keys.issueToken': { POST: issueTokenRoute(parts.verifier, bodyBytesMax, issuer, parts) },
    }),
    documents: documentRoutes(keys),
    watch: (registry) => watchTokens(registry, issuer.counts),
  };
}

/** Returns the routes of the public keys of tokens. */
function documentRoutes(keys: TokenKeys): Routes['exact'] {
  const routes = Object.entries(keys.documents()).map(([path, document]) => {
    const GET: Routes['exact'][string][string] = (_request, response) => {
      response.setHeader('Cache-Control', JWKS_CACHE);
      answer(response, 200, 'application/json', document());
    };
    return [path, { GET }];
  });
  return Object.fromEntries(routes);
}

/** Registers the metrics of tokens, which are read at each scrape. */
function watchTokens(registry: Registry, counts = newTokenCounts()): void {
  metricMakers(registry)
    .count('keyfence_tokens_issued_total', () => counts.issued)
    .help('Tokens that were signed. At gateways and in proxy mode, one serves many requests of a key.');
  new Counter({
    name: 'keyfence_tokens_refused_total',
    help: "Good keys that got no token, by reason; at gateways and in proxy mode, the header was empty. off: keys.issueToken was called for a key whose API has no tokens. clock: this machine's clock differs from that of Redis by more than a second, or Redis answered late. lease: Redis has not answered for seconds, or the key has just changed. older: a control plane of an older release makes changes and does not wait for tokens, so for 10 s there are none; upgrade it. large: the token was longer than 2 KiB; give the key fewer permissions, or call keys.issueToken.",
    labelNames: ['reason'],
    registers: [registry],
    collect() {
      this.reset();
      const { issued: _issued, ...refused } = counts;
      for (const [reason, count] of Object.entries(refused)) this.inc({ reason }, count);
    },
  });
}
