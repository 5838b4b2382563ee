import { constants, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server, type ServerOptions } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createSecureContext, type Server as TlsServer } from 'node:tls';
import type { Clock } from '#shared/process/clock.ts';
import { type ConfigOf, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { firstEndOf } from '#shared/redis/certificate-ends.ts';
import { Response } from '../node-internals/http-server.ts';

export const tlsSettings = {
  TLS_CERT_FILE: text('').help(
    'PEM file of a certificate and its chain. If it is set, the ports for callers use HTTPS. To renew it, replace this file and TLS_KEY_FILE, without a restart',
  ),
  TLS_KEY_FILE: text('').help('PEM file of the private key of TLS_CERT_FILE'),
  TLS_CLIENT_CA_FILE: text('').help(
    'PEM file of an authority. If it is set, callers at PORT and EXT_AUTHZ_GRPC_PORT must have a certificate that this authority signed (mutual TLS). Clients at PROXY_PORT need none. To replace the authority, replace the file',
  ),
};

type TlsConfig = ConfigOf<typeof tlsSettings>;
type Pair = { readonly cert: string; readonly key: string; readonly ca?: string };

/** Returns the faults of the two files, so that a process with faulty files does not start. */
export function tlsFaults(config: TlsConfig): string[] {
  const { TLS_CERT_FILE, TLS_KEY_FILE, TLS_CLIENT_CA_FILE } = config;
  if (!TLS_CERT_FILE !== !TLS_KEY_FILE) return ['TLS_CERT_FILE, TLS_KEY_FILE: set both or none'];
  if (!TLS_CERT_FILE) return TLS_CLIENT_CA_FILE ? ['TLS_CLIENT_CA_FILE: only with TLS_CERT_FILE'] : [];
  try {
    readPair(config);
    return [];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const authority = TLS_CLIENT_CA_FILE ? ', TLS_CLIENT_CA_FILE' : '';
    return [`TLS_CERT_FILE, TLS_KEY_FILE${authority}: not a certificate and its key (${code ?? message})`];
  }
}

/** A certificate that is read again when its files change. */
export interface Certificate {
  /** True if clients need a certificate, too. */
  readonly asksClients: boolean;
  /** When the first certificate in the files in use ends, Unix milliseconds. */
  readonly endsMs: number;
  /**
   * Calls `use` with the pair and the authority of clients, now and whenever the pair changes. New connections get the new pair; open
   * connections keep theirs.
   */
  follow(use: (pair: Pair) => void): void;
  close(): void;
}

const POLL_MS = 1000;

/**
 * Follows the certificate of the configuration; returns undefined without one. If the files do not match, as
 * between the replacement of the first and of the second, the previous pair stays in use. Throws if they do
 * not match at the start.
 */
export function followCertificate(
  config: TlsConfig,
  clock: Clock,
  log: Pick<Logger, 'info' | 'warn'>,
): Certificate | undefined {
  if (!config.TLS_CERT_FILE) return undefined;
  const files = [config.TLS_CERT_FILE, config.TLS_KEY_FILE, config.TLS_CLIENT_CA_FILE].filter(Boolean);
  const followers: ((pair: Pair) => void)[] = [];
  let pair = readPair(config);
  let fault: string | undefined;
  const reload = () => {
    try {
      const next = readPair(config);
      fault = undefined;
      if (next.cert === pair.cert && next.key === pair.key && next.ca === pair.ca) return;
      pair = next;
      for (const use of followers) use(next);
      log.info({ files }, 'the certificate was replaced');
    } catch (err) {
      const { message } = err as Error;
      if (message !== fault)
        log.warn({ files, err }, 'the new certificate cannot be used; the previous one stays in use');
      fault = message;
    }
  };
  // Reads the files periodically instead of watching them. File notifications miss how Kubernetes replaces a
  // secret (through a symbolic link), and any change made before the watch begins.
  let timer: { cancel(): void };
  const lookLater = () => {
    timer = clock.after(POLL_MS, () => {
      reload();
      lookLater();
    });
  };
  lookLater();
  return {
    asksClients: config.TLS_CLIENT_CA_FILE !== '',
    get endsMs() {
      return firstEndOf(pair.cert, pair.ca ?? '');
    },
    follow(use) {
      followers.push(use);
      use(pair);
    },
    close: () => timer.cancel(),
  };
}

/** Creates an HTTP server, or with a certificate an HTTPS server. */
export function createHttpServer(
  serverOptions: ServerOptions & { headersTimeout: number },
  certificate: Certificate | undefined,
  serve: RequestListener,
): Server {
  // An option that the types lack: requests without a body arrive with their end already read.
  const options = { ...serverOptions, optimizeEmptyRequests: true, ServerResponse: Response };
  if (certificate === undefined) return createServer(options, serve);
  const handshakeTimeout = options.headersTimeout;
  const server = createHttpsServer(
    { ...options, handshakeTimeout, requestCert: certificate.asksClients },
    serve,
  );
  useCertificate(server, certificate);
  return server;
}

/**
 * Gives a server the certificate, now and whenever it changes. Clients that need a certificate resume no session: Node
 * would not look at their certificate again, not even when it has expired.
 */
export function useCertificate(server: TlsServer, certificate: Certificate): void {
  const options = certificate.asksClients ? { secureOptions: constants.SSL_OP_NO_TICKET } : {};
  certificate.follow((pair) => server.setSecureContext({ ...pair, ...options }));
}

/** Throws if a file cannot be read, or if key and certificate do not match. */
function readPair({ TLS_CERT_FILE, TLS_KEY_FILE, TLS_CLIENT_CA_FILE }: TlsConfig): Pair {
  const pair = {
    cert: certificatesIn(TLS_CERT_FILE),
    key: readFileSync(TLS_KEY_FILE, 'utf8'),
    ...(TLS_CLIENT_CA_FILE && { ca: certificatesIn(TLS_CLIENT_CA_FILE) }),
  };
  createSecureContext(pair);
  return pair;
}

/**
 * Returns the text of a file. Throws unless each certificate in it is whole, because OpenSSL leaves out what it cannot
 * read: half of an authority's file would refuse every client.
 */
function certificatesIn(file: string): string {
  const pem = readFileSync(file, 'utf8');
  const blocks = pem
    .split(/^(?=-----BEGIN CERTIFICATE-----)/m)
    .filter((part) => part.startsWith('-----BEGIN'));
  if (blocks.length === 0) throw new Error(`no certificate in ${file}`);
  for (const block of blocks) new X509Certificate(block);
  return pem;
}
