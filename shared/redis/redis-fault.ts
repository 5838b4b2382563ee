import type { Clock } from '../process/clock.ts';
import type { Logger } from '../process/log.ts';

/** Oldest major version of Redis that supports all features of the scripts. */
const REDIS_MAJOR_MIN = 7;

/** Time before the same trouble is logged again, in milliseconds. */
const REPEAT_MS = 30_000;

/** Returns the value of a line of INFO; undefined = no such line. */
export function infoLine(info: string, name: string): string | undefined {
  return new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1];
}

/** Returns the reason why a server cannot be used, according to its INFO; undefined = it can be used. */
export function unusable(info: string): string | undefined {
  const version = infoLine(info, 'redis_version');
  if (version !== undefined && Number.parseInt(version, 10) < REDIS_MAJOR_MIN)
    return `Redis ${version} is too old: use Redis ${REDIS_MAJOR_MIN} or newer, and set REDIS_URL to its address`;
  if (infoLine(info, 'loading') === '1') return 'Redis is still loading its data';
  return undefined;
}

const PASSWORD =
  'set REDIS_USERNAME and REDIS_PASSWORD_FILE to a user of this Redis and its password, or put both into REDIS_URL';
const AUTHORITY =
  'set REDIS_TLS_CA_FILE to the authority that signed its certificate, and use the host name of the certificate in REDIS_URL';

const WEAK =
  'give Redis a certificate of RSA with 2,048 bits or of a curve, which it and its authority sign with SHA-256';

/**
 * Advice on a failed connection, by the error code of the system or of TLS, or by the first word of Redis'
 * reply.
 */
const ADVICE: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there: start Redis, or set REDIS_URL to its address',
  ENOENT: 'there is no such socket: start Redis, or set REDIS_URL to its address',
  EACCES: 'this user may not use the socket that REDIS_URL names',
  ENOTFOUND: 'no host has this name: correct REDIS_URL',
  EAI_AGAIN: 'the name cannot be resolved at present: check DNS, or correct REDIS_URL',
  ETIMEDOUT:
    'it does not answer: check host, port and redis:// or rediss:// in REDIS_URL, and the network and firewalls in between',
  EHOSTUNREACH: 'there is no route to it: check REDIS_URL, and the network in between',
  NOAUTH: PASSWORD,
  WRONGPASS: PASSWORD,
  NOPERM: 'its user lacks rights: `keyfence doctor` names them',
  EPROTO:
    'it does not speak TLS at this port: use redis:// instead of rediss:// in REDIS_URL, or another port',
  DEPTH_ZERO_SELF_SIGNED_CERT: AUTHORITY,
  SELF_SIGNED_CERT_IN_CHAIN: AUTHORITY,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: AUTHORITY,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: AUTHORITY,
  ERR_TLS_CERT_ALTNAME_INVALID: AUTHORITY,
  CERT_HAS_EXPIRED: 'its certificate has expired: give Redis a new one',
  // Node has no code for these: OpenSSL's sentences begin so, `EE certificate key too weak`.
  EE: WEAK,
  CA: WEAK,
};

/** Explains why Redis cannot be reached and what to do, without any secret. */
export function troubleOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code = '', message } = error as NodeJS.ErrnoException;
  const advice = ADVICE[code] ?? ADVICE[/^[A-Z]+\b/.exec(message)?.[0] ?? ''];
  return advice === undefined ? message : `${message}; ${advice}`;
}

/**
 * A log of whether Redis is in reach. It logs immediately when Redis goes out of reach, with the reason, and
 * when Redis is back, but repeats the same reason at most every REPEAT_MS.
 */
export class ReachLog {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #name: string;
  #logged: { trouble: string; atMs: number } | undefined;

  /** @param name name of the server in the log */
  constructor(clock: Clock, log: Logger, name = 'Redis') {
    this.#clock = clock;
    this.#log = log;
    this.#name = name;
  }

  /** The reason why Redis was out of reach at the last attempt; undefined = it was in reach. */
  get trouble(): string | undefined {
    return this.#logged?.trouble;
  }

  failed(cause: unknown): void {
    const trouble = troubleOf(cause);
    const atMs = this.#clock.monotonicMs();
    if (this.#logged?.trouble === trouble && atMs - this.#logged.atMs < REPEAT_MS) return;
    this.#logged = { trouble, atMs };
    this.#log.warn(`${this.#name} is out of reach: ${trouble}`);
  }

  reached(): void {
    if (this.#logged === undefined) return;
    this.#logged = undefined;
    this.#log.info(`${this.#name} is in reach again`);
  }
}
