import { type ConfigOf, flag, integer } from '#shared/process/config.ts';

export const httpSettings = {
  BODY_BYTES_MAX: integer(1024, 1_048_576, 'bytes', 65_536, 'Largest request body'),
  HEADER_BYTES_MAX: integer(
    4096,
    65_536,
    'bytes',
    16_384,
    'Largest request head, and largest head of a response that is passed on',
  ),
  FAST_LANE: flag(true, "Whether common requests are answered without Node's HTTP server, twice as fast"),
  FAST_LANE_WAIT_BYTES_MAX: integer(
    0,
    1_073_741_824,
    'bytes',
    16_777_216,
    "Memory for requests of which only a part has come, of all connections of a listener together, each at most BODY_BYTES_MAX and a head of 4 KiB; a connection that finds no room is given to Node's HTTP server",
  ),
  HEADERS_TIMEOUT_MS: integer(
    1000,
    300_000,
    'ms',
    10_000,
    'The longest that receiving a request head may take',
  ),
  REQUEST_TIMEOUT_MS: integer(1000, 300_000, 'ms', 15_000, 'The longest that receiving a request may take'),
  KEEP_ALIVE_TIMEOUT_MS: integer(
    1000,
    600_000,
    'ms',
    90_000,
    "How long an idle connection stays open; above the gateway's own",
  ),
  STALL_TIMEOUT_MS: integer(
    1000,
    600_000,
    'ms',
    120_000,
    'How long a connection on which nothing moves stays open while a request is being answered; above any wait for the control plane',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 10_000, 'Connections at once; more are closed at once'),
  REQUESTS_IN_FLIGHT_MAX: integer(
    1,
    1_000_000,
    'requests',
    10_000,
    'Requests being received or looked up at once; more are refused with 503',
  ),
};

/** The values of `httpSettings`. */
export type HttpLimits = ConfigOf<typeof httpSettings>;
