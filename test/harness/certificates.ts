import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A certificate that is its own authority, and its key. */
export interface MadeCertificate {
  readonly certFile: string;
  readonly keyFile: string;
  readonly cert: string;
}

/** Makes a certificate for `names` in `directory/name`, with openssl, and a new key of the kind. */
export function makeCertificate(
  directory: string,
  name: string,
  names = 'IP:127.0.0.1,DNS:localhost',
  kind = 'ec',
): MadeCertificate {
  const folder = join(directory, name);
  mkdirSync(folder);
  const [certFile, keyFile] = [join(folder, 'tls.crt'), join(folder, 'tls.key')];
  const subject = ['-subj', `/CN=${name}`, '-addext', `subjectAltName=${names}`];
  const ofCurve = kind === 'ec' ? ['-pkeyopt', 'ec_paramgen_curve:P-256'] : [];
  const curve = ['-newkey', kind, ...ofCurve, '-nodes'];
  const out = ['-days', '2', '-keyout', keyFile, '-out', certFile];
  execFileSync('openssl', ['req', '-x509', ...curve, ...subject, ...out], { stdio: 'pipe' });
  return { certFile, keyFile, cert: readFileSync(certFile, 'utf8') };
}
