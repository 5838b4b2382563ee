import { type ConfigOf, integer, list } from '#shared/process/load-config.ts';

export const httpSettings = {
  TRUSTED_PROXIES: list(/^[0-9A-Fa-f.:]+(\/[0-9]{1,3})?$/, 'comma-separated addresses and networks').help(
    'Proxies that are believed when their X-Forwarded-For says whom they speak for, in limits and the audit log, and whose connections CONNECTIONS_PER_ADDRESS_MAX does not bound',
  ),
  BODY_BYTES_MAX: integer(1024, 1_048_576, 'bytes', 65_536).deprecated('Largest request body'),
  HEADER_BYTES_MAX: integer(4096, 65_536, 'bytes', 16_384).deprecated('Largest request head'),
  REQUEST_TIMEOUT_MS: integer(1000, 300_000, 'ms', 15_000).deprecated(
    'Longest time for receiving a whole request',
  ),
  KEEP_ALIVE_TIMEOUT_MS: integer(1000, 600_000, 'ms', 90_000).help(
    "Time for which an idle connection stays open; set it above the balancer's own",
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 1000).help(
    'Connections at once. Those on which no valid root key has come have at most half of them. For one more, the oldest of these is closed, or else one that is idle',
  ),
  CONNECTIONS_PER_ADDRESS_MAX: integer(1, 100_000, 'connections', 250).help(
    'Connections at once of one address, of which for IPv6 the first 64 bits count. For one more, one of them is closed, as CONNECTIONS_MAX has it',
  ),
};

/** The values of `httpSettings`. */
export type HttpLimits = ConfigOf<typeof httpSettings>;
