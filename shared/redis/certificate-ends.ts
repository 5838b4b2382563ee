import { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { PeerCertificate, TLSSocket } from 'node:tls';

/** When the certificates of servers end, Unix milliseconds, by the name of the server; as their connections showed them last. */
export type CertificateEnds = Map<string, number>;

/** Notes when the certificate of the server at the other end of a connection ends, or one of those that signed it. */
export function noteCertificate(ends: CertificateEnds, server: string, socket: Socket): void {
  if (!('encrypted' in socket)) return;
  const dates: number[] = [];
  const seen = new Set<PeerCertificate>();
  // The issuer of an authority is the authority.
  for (
    let each = (socket as TLSSocket).getPeerCertificate(true);
    each?.valid_to && !seen.has(each);
    each = each.issuerCertificate
  ) {
    seen.add(each);
    dates.push(Date.parse(each.valid_to));
  }
  if (dates.length > 0) ends.set(server, Math.min(...dates));
}

/** Returns when the first of the certificates in PEM texts ends, Unix milliseconds. */
export const firstEndOf = (...texts: readonly string[]): number =>
  Math.min(
    ...texts
      .flatMap((pem) => pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [])
      .map((block) => Date.parse(new X509Certificate(block).validTo)),
  );
