import { createHash, createPrivateKey, createPublicKey, hkdfSync, type KeyObject, sign } from 'node:crypto';
import type { Clock } from './clock.ts';
import { secret, text } from './load-config.ts';

/** The path at which both processes serve the public keys of tokens. */
export const JWKS_PATH = '/.well-known/jwks.json';

/** `Cache-Control` of the public keys. */
export const JWKS_CACHE = 'public, max-age=300';

const SECRET_LENGTH_MIN = 32;

export const tokenSettings = {
  TOKEN_KEY: secret('', 'at least 32 characters each', parseSecrets).help(
    'Secrets from which the keys that sign tokens are derived, one a line, the same at all verifiers and control planes; better in TOKEN_KEY_FILE. The first one signs, and the public keys of all are published',
  ),
  TOKEN_ISSUER: text('keyfence').help('`iss` of tokens'),
};

/** The values of `tokenSettings`. */
interface TokenSettings {
  readonly TOKEN_KEY: readonly string[];
  readonly TOKEN_ISSUER: string;
}

function parseSecrets(value: string): readonly string[] {
  const secrets = value
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter(Boolean);
  if (secrets.some((line) => line.length < SECRET_LENGTH_MIN))
    throw new Error(`every secret needs at least ${SECRET_LENGTH_MIN} characters`);
  return secrets;
}

/** A key that signs tokens for a day. */
interface SigningKey {
  readonly kid: string;
  readonly privateKey: KeyObject;
  /** The public key, as in a JWKS. */
  readonly jwk: object;
}

const DAY_MS = 86_400_000;
/**
 * Time for which a key is published before its day, and after it: longer than any token lives, and than clients keep a JWKS,
 * which ask again for a key that they do not know.
 */
const SPARE_MS = 900_000;
/** The beginning of a private key of Ed25519 in PKCS #8, before its 32 bytes (RFC 8410 §7). */
const PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex');

/**
 * The keys that sign tokens (EdDSA). Each day has another one, derived from a secret that all processes have, so that nothing
 * about them is in Redis, and all processes change them at the same time.
 */
export class TokenKeys {
  readonly #secrets: readonly string[];
  readonly #issuer: string;
  readonly #clock: Pick<Clock, 'wallMs'>;
  /** Keys by secret and day. */
  readonly #keys = new Map<string, SigningKey>();

  constructor({ TOKEN_KEY, TOKEN_ISSUER }: TokenSettings, clock: Pick<Clock, 'wallMs'>) {
    this.#secrets = TOKEN_KEY;
    this.#issuer = TOKEN_ISSUER;
    this.#clock = clock;
  }

  /** Returns a JWT with this payload, and `iss`. */
  sign(payload: object): string {
    const [first = ''] = this.#secrets;
    const { kid, privateKey } = this.#keyOf(first, this.#dayAt(0));
    const head = encode({ alg: 'EdDSA', typ: 'JWT', kid });
    const signed = `${head}.${encode({ iss: this.#issuer, ...payload })}`;
    return `${signed}.${sign(null, Buffer.from(signed), privateKey).toString('base64url')}`;
  }

  /** Returns the public keys of tokens that may be valid now or soon, as a JWKS. */
  jwks(): string {
    const days = [...new Set([0, -SPARE_MS, SPARE_MS].map((ms) => this.#dayAt(ms)))];
    const keys = this.#secrets.flatMap((each) => days.map((day) => this.#keyOf(each, day).jwk));
    return JSON.stringify({ keys });
  }

  #dayAt(aheadMs: number): number {
    return Math.floor((this.#clock.wallMs() + aheadMs) / DAY_MS);
  }

  #keyOf(from: string, day: number): SigningKey {
    const name = `${day} ${from}`;
    let key = this.#keys.get(name);
    if (key === undefined) {
      for (const each of this.#keys.keys()) if (Number.parseInt(each, 10) < day - 1) this.#keys.delete(each);
      key = derive(from, day);
      this.#keys.set(name, key);
    }
    return key;
  }
}

function derive(from: string, day: number): SigningKey {
  const seed = Buffer.from(hkdfSync('sha256', from, '', `keyfence token key ${day}`, 32));
  const pkcs8 = { key: Buffer.concat([PKCS8, seed]), format: 'der', type: 'pkcs8' } as const;
  const privateKey = createPrivateKey(pkcs8);
  const { kty, crv, x } = createPublicKey(privateKey).export({ format: 'jwk' });
  // The key's thumbprint (RFC 7638).
  const kid = createHash('sha256').update(JSON.stringify({ crv, kty, x })).digest('base64url');
  return { kid, privateKey, jwk: { kty, crv, x, kid, alg: 'EdDSA', use: 'sig' } };
}

const encode = (part: object): string => Buffer.from(JSON.stringify(part)).toString('base64url');
