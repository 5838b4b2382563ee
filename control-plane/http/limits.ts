import { type ConfigOf, integer, list } from '#shared/process/load-config.ts';

export const httpSettings = {
  TRUSTED_PROXIES: list(/^[0-9A-Fa-f.:]+(\/[0-9]{1,3})?$/, 'comma-separated addresses and networks').help(
    "Proxies whose X-Forwarded-For is trusted as the caller's address, for limits and for the audit log. CONNECTIONS_PER_ADDRESS_MAX does not apply to their connections",
  ),
  BODY_BYTES_MAX: integer(1024, 1_048_576, 'bytes', 65_536).deprecated('Largest request body'),
  HEADER_BYTES_MAX: integer(4096, 65_536, 'bytes', 16_384).deprecated('Largest request head'),
  REQUEST_TIMEOUT_MS: integer(1000, 300_000, 'ms', 15_000).deprecated(
    'Maximum time to receive a whole request',
  ),
  KEEP_ALIVE_TIMEOUT_MS: integer(1000, 600_000, 'ms', 90_000).help(
    'Time for which an idle connection stays open. Set it longer than the idle time of your load balancer',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 1000).help(
    'Maximum of open connections. At most half may be connections without a valid root key. To admit another connection, the control plane closes the oldest connection without a valid root key, or if there is none, an idle connection',
  ),
  CONNECTIONS_PER_ADDRESS_MAX: integer(1, 100_000, 'connections', 250).help(
    'Maximum of open connections from one address (for IPv6, from one /64 network). To admit another connection, the control plane closes one from the same address, chosen as for CONNECTIONS_MAX',
  ),
};

/** The values of `httpSettings`. */
export type HttpLimits = ConfigOf<typeof httpSettings>;
