import {
  createECDH,
  createHash,
  createPrivateKey,
  createPublicKey,
  hkdfSync,
  type KeyObject,
  randomUUID,
  sign,
} from 'node:crypto';
import type { Clock } from '../process/clock.ts';
import { secret, text } from '../process/load-config.ts';

/** The path of the public keys of tokens. */
export const JWKS_PATH = '/.well-known/jwks.json';
const DISCOVERY_PATH = '/.well-known/openid-configuration';

/** `Cache-Control` of these documents. A longer time would prolong a leak of the secret. */
export const JWKS_CACHE = 'public, max-age=300';

/** Algorithms that may sign tokens. The public keys of all are published. */
export const TOKEN_ALGS = ['EdDSA', 'ES256'] as const;
type TokenAlg = (typeof TOKEN_ALGS)[number];

const SECRET_LENGTH_MIN = 32;

export const tokenSettings = {
  TOKEN_KEY: secret('', 'at least 32 characters each', parseSecrets).help(
    'Secrets from which the keys that sign tokens are derived, one a line, the same at all verifiers and control planes; better in TOKEN_KEY_FILE. The first one signs, and the public keys of all are published',
  ),
  TOKEN_ISSUER: text('keyfence').help(
    '`iss` of tokens. If it is a URL at which clients reach a verifier or control plane, libraries find the public keys by it, at `/.well-known/openid-configuration`',
  ),
};

/** The values of `tokenSettings`. */
interface TokenSettings {
  readonly TOKEN_KEY: readonly string[];
  readonly TOKEN_ISSUER: string;
  /** Only verifiers sign. */
  readonly TOKEN_ALG?: TokenAlg;
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

/** A key that signs tokens of a day. */
interface SigningKey {
  readonly kid: string;
  readonly privateKey: KeyObject;
  /** The public key, as in a JWKS. */
  readonly jwk: object;
}

const DAY_MS = 86_400_000;
/**
 * Days whose keys are published, counted from today: who reads them rarely, such as every two hours, knows the key of a day
 * before the day begins.
 */
const PUBLISHED_DAYS = [-1, 0, 1, 2];
/** By how much the clock that reads a token may be late; many libraries refuse an `iat` in the future. */
const ISSUED_EARLIER_MS = 2000;
/** The beginning of a private key of Ed25519 in PKCS #8, before its 32 bytes (RFC 8410 §7). */
const PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex');
/** The order of the group of P-256. */
const P256_ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/**
 * The keys that sign tokens. Each day has another one, derived from a secret that all processes have, so that nothing about
 * them is in Redis, and all processes change them at the same time.
 */
export class TokenKeys {
  readonly #secrets: readonly string[];
  readonly #issuer: string;
  readonly #alg: TokenAlg;
  readonly #clock: Pick<Clock, 'wallMs'>;
  /** Keys by day, algorithm and secret. */
  readonly #keys = new Map<string, SigningKey>();

  constructor({ TOKEN_KEY, TOKEN_ISSUER, TOKEN_ALG = 'EdDSA' }: TokenSettings, clock: Pick<Clock, 'wallMs'>) {
    this.#secrets = TOKEN_KEY;
    this.#issuer = TOKEN_ISSUER;
    this.#alg = TOKEN_ALG;
    this.#clock = clock;
  }

  /** Returns a JWT with this payload, and `iss`, `iat` and `jti`. */
  sign(payload: object): string {
    const [first = ''] = this.#secrets;
    const { kid, privateKey } = this.#keyOf(first, this.#alg, this.#today());
    const head = encode({ alg: this.#alg, typ: 'JWT', kid });
    const iat = Math.floor((this.#clock.wallMs() - ISSUED_EARLIER_MS) / 1000);
    const signed = `${head}.${encode({ iss: this.#issuer, ...payload, iat, jti: randomUUID() })}`;
    const hash = this.#alg === 'EdDSA' ? null : 'sha256';
    const signature = sign(hash, Buffer.from(signed), { key: privateKey, dsaEncoding: 'ieee-p1363' });
    return `${signed}.${signature.toString('base64url')}`;
  }

  /** Returns the documents that both processes serve, by path. */
  documents(): Readonly<Record<string, () => string>> {
    return {
      [JWKS_PATH]: () => this.jwks(),
      ...(/^https?:/.test(this.#issuer) ? { [DISCOVERY_PATH]: () => this.#discovery() } : {}),
    };
  }

  /** Returns the public keys of tokens that may be valid now or soon, as a JWKS. */
  jwks(): string {
    const today = this.#today();
    const keys = this.#secrets.flatMap((each) =>
      PUBLISHED_DAYS.flatMap((ahead) => TOKEN_ALGS.map((alg) => this.#keyOf(each, alg, today + ahead).jwk)),
    );
    return JSON.stringify({ keys });
  }

  /** Returns what libraries read of an issuer (OpenID Connect Discovery 1.0 § 3); nobody signs in here. */
  #discovery(): string {
    return JSON.stringify({
      issuer: this.#issuer,
      jwks_uri: this.#issuer.replace(/\/$/, '') + JWKS_PATH,
      response_types_supported: ['none'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: TOKEN_ALGS,
    });
  }

  #today(): number {
    return Math.floor(this.#clock.wallMs() / DAY_MS);
  }

  #keyOf(from: string, alg: TokenAlg, day: number): SigningKey {
    const name = `${day} ${alg} ${from}`;
    let key = this.#keys.get(name);
    if (key === undefined) {
      const past = [...this.#keys.keys()].filter((each) => Number.parseInt(each, 10) < this.#today() - 1);
      for (const each of past) this.#keys.delete(each);
      key = derive(from, alg, day);
      this.#keys.set(name, key);
    }
    return key;
  }
}

function derive(from: string, alg: TokenAlg, day: number): SigningKey {
  const privateKey = alg === 'EdDSA' ? ed25519(from, day) : p256(from, day);
  const { kty, crv, x, y } = createPublicKey(privateKey).export({ format: 'jwk' });
  const point = { crv, kty, x, ...(y === undefined ? {} : { y }) };
  // The key's thumbprint (RFC 7638).
  const kid = createHash('sha256').update(JSON.stringify(point)).digest('base64url');
  return { kid, privateKey, jwk: { ...point, kid, alg, use: 'sig' } };
}

function ed25519(from: string, day: number): KeyObject {
  const seed = Buffer.from(hkdfSync('sha256', from, '', `keyfence token key ${day}`, 32));
  return createPrivateKey({ key: Buffer.concat([PKCS8, seed]), format: 'der', type: 'pkcs8' });
}

/** The private number is of 64 bits more than needed, reduced, so that each is as probable (FIPS 186-5 § A.2.1). */
function p256(from: string, day: number): KeyObject {
  const bits = Buffer.from(hkdfSync('sha256', from, '', `keyfence token key ES256 ${day}`, 40));
  const number = (BigInt(`0x${bits.toString('hex')}`) % (P256_ORDER - 1n)) + 1n;
  const d = Buffer.from(number.toString(16).padStart(64, '0'), 'hex');
  const ecdh = createECDH('prime256v1');
  ecdh.setPrivateKey(d);
  const point = ecdh.getPublicKey();
  const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((each) => each.toString('base64url'));
  const key = { kty: 'EC', crv: 'P-256', d: d.toString('base64url'), x: x ?? '', y: y ?? '' };
  return createPrivateKey({ key, format: 'jwk' });
}

const encode = (part: object): string => Buffer.from(JSON.stringify(part)).toString('base64url');
