import { readFileSync } from 'node:fs';
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { Socket } from 'node:net';
import { createSecureContext } from 'node:tls';
import type { Clock } from '#shared/lang/clock.ts';
import { type ConfigOf, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';

export const tlsSettings = {
  TLS_CERT_FILE: text('').help(
    'PEM file of a certificate and its chain. If it is set, the TCP listeners for callers speak HTTPS. To renew it, replace both files; no restart is needed',
  ),
  TLS_KEY_FILE: text('').help('PEM file of the private key of TLS_CERT_FILE'),
};

type TlsConfig = ConfigOf<typeof tlsSettings>;
type Pair = { readonly cert: string; readonly key: string };

/** Returns what is wrong with the two files, so that a process does not start with them. */
export function tlsFaults(config: TlsConfig): string[] {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = config;
  if (!TLS_CERT_FILE !== !TLS_KEY_FILE) return ['TLS_CERT_FILE, TLS_KEY_FILE: set both or none'];
  if (!TLS_CERT_FILE) return [];
  try {
    readPair(config);
    return [];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return [`TLS_CERT_FILE, TLS_KEY_FILE: not a certificate and its key (${code ?? message})`];
  }
}

/** A certificate that is read again when its files change. */
export interface Certificate {
  /** As it is now. */
  readonly pair: Pair;
  /** Hands over the pair, now and whenever it changes. New connections are to get it; those that are open keep theirs. */
  follow(use: (pair: Pair) => void): void;
  close(): void;
}

const POLL_MS = 1000;

/**
 * The certificate of the configuration; undefined = there is none. Files that are no pair, as in the moment between
 * the replacement of one and of the other, leave the present one in use. Throws where they are none at the start.
 */
export function followCertificate(
  config: TlsConfig,
  clock: Clock,
  log: Pick<Logger, 'info' | 'warn'>,
): Certificate | undefined {
  if (!config.TLS_CERT_FILE) return undefined;
  const files = [config.TLS_CERT_FILE, config.TLS_KEY_FILE];
  const followers: ((pair: Pair) => void)[] = [];
  let pair = readPair(config);
  let fault: string | undefined;
  const reload = () => {
    try {
      const next = readPair(config);
      fault = undefined;
      if (next.cert === pair.cert && next.key === pair.key) return;
      pair = next;
      for (const use of followers) use(next);
      log.info({ files }, 'the certificate was replaced');
    } catch (err) {
      const { message } = err as Error;
      if (message !== fault)
        log.warn({ files, err }, 'the new certificate cannot be used; the present one stays');
      fault = message;
    }
  };
  // Read, not watched: notifications do not see how Kubernetes replaces a secret, by a symbolic link, and watching
  // misses what changes before it has begun.
  let timer: { cancel(): void };
  const lookLater = () => {
    timer = clock.after(POLL_MS, () => {
      reload();
      lookLater();
    });
  };
  lookLater();
  return {
    get pair() {
      return pair;
    },
    follow(use) {
      followers.push(use);
      use(pair);
    },
    close: () => timer.cancel(),
  };
}

/**
 * A response that ends its connection in its turn where it is destroyed before; with Node's own the connection would
 * wait for ever. Writing after its end is ignored: with Node's own, nobody hears that error, and it would end the
 * process.
 */
export class Response<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  constructor(...args: ConstructorParameters<typeof ServerResponse<Request>>) {
    super(...args);
    this.on('error', ignore);
  }

  override assignSocket(socket: Socket): void {
    super.assignSocket(socket);
    if (this.destroyed) socket.destroySoon();
  }
}

const ignore = () => undefined;

/** An HTTP server, or with a certificate an HTTPS server, otherwise the same. */
export function createHttpServer(
  serverOptions: ServerOptions & { headersTimeout: number },
  certificate: Certificate | undefined,
  serve: RequestListener,
): Server {
  // Missing from the types: requests without a body come with its end read.
  const options = { ...serverOptions, optimizeEmptyRequests: true, ServerResponse: Response };
  if (certificate === undefined) return createServer(options, serve);
  const handshakeTimeout = options.headersTimeout;
  const server = createHttpsServer({ ...options, handshakeTimeout }, serve);
  certificate.follow((pair) => server.setSecureContext(pair));
  return server;
}

/** Throws where a file cannot be read or the two do not belong together. */
function readPair({ TLS_CERT_FILE, TLS_KEY_FILE }: TlsConfig): Pair {
  const pair = { cert: readFileSync(TLS_CERT_FILE, 'utf8'), key: readFileSync(TLS_KEY_FILE, 'utf8') };
  createSecureContext(pair);
  return pair;
}
