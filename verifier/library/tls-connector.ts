import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { buildConnector } from 'undici';
import { type ConfigOf, text } from '#shared/process/load-config.ts';

export const tlsFiles = {
  TLS_CA_FILE: text('').help("PEM file of the authority of the sidecar's certificate"),
  TLS_CERT_FILE: text('').help("PEM file of the application's own certificate"),
  TLS_KEY_FILE: text('').help('PEM file of the private key of tlsCertFile'),
};

type TlsFiles = ConfigOf<typeof tlsFiles>;

/** Returns true if the connection to the sidecar needs files. */
export const hasTlsFiles = ({ TLS_CA_FILE, TLS_CERT_FILE }: TlsFiles): boolean =>
  TLS_CA_FILE !== '' || TLS_CERT_FILE !== '';

/** Returns the faults of the files, so that a client with faulty files is not created. */
export function tlsFaults(config: TlsFiles & { readonly URL: URL | undefined }): string[] {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = config;
  if (!TLS_CERT_FILE !== !TLS_KEY_FILE) return ['tlsCertFile, tlsKeyFile: set both or none'];
  if (!hasTlsFiles(config)) return [];
  if (config.URL?.protocol !== 'https:')
    return ['tlsCaFile, tlsCertFile: only with a url that begins with https://'];
  try {
    createSecureContext(contentOf(config));
    return [];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return [`tlsCaFile, tlsCertFile, tlsKeyFile: not certificates and their key (${code ?? message})`];
  }
}

/** Returns a connector that reads the files again for each connection. */
export function tlsConnector(config: TlsFiles, timeout: number): buildConnector.connector {
  return (options, callback) => {
    let connect: buildConnector.connector;
    try {
      connect = buildConnector({ ...contentOf(config), timeout, allowH2: false });
    } catch (error) {
      callback(error as Error, null);
      return;
    }
    connect(options, callback);
  };
}

function contentOf({ TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE }: TlsFiles) {
  return {
    ...(TLS_CA_FILE && { ca: readFileSync(TLS_CA_FILE, 'utf8') }),
    ...(TLS_CERT_FILE && {
      cert: readFileSync(TLS_CERT_FILE, 'utf8'),
      key: readFileSync(TLS_KEY_FILE, 'utf8'),
    }),
  };
}
