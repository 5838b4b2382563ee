import { type ConfigOf, integer, list } from '#shared/process/load-config.ts';

export const httpSettings = {
  TRUSTED_PROXIES: list(/^[0-9A-Fa-f.:]+(\/[0-9]{1,3})?$/, 'comma-separated addresses and networks').help(
    "Proxies whose X-Forwarded-For is trusted as the caller's address, for limits and for the audit log. CONNECTIONS_PER_ADDRESS_MAX does not apply to their connections",
  ),
  KEEP_ALIVE_TIMEOUT_MS: integer(1000, 600_000, 'ms', 90_000).help(
    'Time for which an idle connection stays open. Set it longer than the idle time of your load balancer',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 1000).help(
    'Maximum of open connections; at most half may be without a valid root key. To admit another, the control plane closes the oldest of these, or else an idle connection',
  ),
  CONNECTIONS_PER_ADDRESS_MAX: integer(1, 100_000, 'connections', 250).help(
    'Maximum of open connections from one address, or one IPv6 network /64. To admit another, the control plane closes one of the same address, chosen as for CONNECTIONS_MAX',
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const httpLimits = {
  /** Largest request body. */
  BODY_BYTES_MAX: 65_536,
  /** Largest request head. */
  HEADER_BYTES_MAX: 16_384,
  /** Maximum time to receive a whole request. */
  REQUEST_TIMEOUT_MS: 15_000,
};

/** The values of `httpSettings`, and the limits. */
export type HttpLimits = ConfigOf<typeof httpSettings> & typeof httpLimits;
