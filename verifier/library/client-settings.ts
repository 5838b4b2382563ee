import { httpUrl, integer, text } from '#shared/process/load-config.ts';

export const tlsFiles = {
  TLS_CA_FILE: text('').help(
    "PEM file of the authority of the sidecar's certificate, if `url` begins with `https://`",
  ),
  TLS_CERT_FILE: text('').help(
    "PEM file of this application's certificate, for a sidecar with `TLS_CLIENT_CA_FILE`",
  ),
  TLS_KEY_FILE: text('').help('PEM file of the private key of `tlsCertFile`'),
};

/** The options of `createClient`, under the names of settings. */
export const clientSettings = {
  URL: httpUrl().help('Address of the sidecar: this, or `unixSocket`'),
  UNIX_SOCKET: text('').help("The sidecar's `LISTEN_UNIX`"),
  ROOT_KEY: text('').help('Root key, for a sidecar with `VERIFY_ROOT_KEYS=required`'),
  ...tlsFiles,
  TIMEOUT_MS: integer(1, 60_000, 'ms', 1500).help('Longest wait for an answer, in milliseconds'),
  CONNECTIONS_MAX: integer(1, 10_000, 'connections', 100).help(
    'Maximum number of connections to the sidecar. Further questions wait for a free one',
  ),
  REQUESTS_IN_FLIGHT_MAX: integer(1, 1_000_000, 'requests', 10_000).help(
    'Maximum number of questions in progress. Further ones are rejected',
  ),
  STOP_WAIT_MS: integer(0, 300_000, 'ms', 10_000).help(
    'Longest wait of `close` for the guarded requests that are open, in milliseconds; then they cost what `charge` said last',
  ),
};
