import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Clock } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';

const verifyInPool = promisify(verify);

/** Minimum time between two reads of the file, so that a flood of reports causes no flood of reads. */
const READ_PERIOD_MS = 10_000;
const KEYS_MAX = 100;
const IDENTIFIER = /^[0-9A-Za-z]{1,128}$/;
const SIGNATURE = /^[A-Za-z0-9+/]{1,200}={0,2}$/;

/** The result of checking a signature. */
export type SignatureCheck = 'valid' | 'invalid' | 'unknown key';

/**
 * The public keys with which reports are signed: ECDSA on P-256, in a file with GitHub's document of them. The
 * file is read again when it may have changed.
 */
export class ReportKeys {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #log: Pick<Logger, 'warn'>;
  #keys: ReadonlyMap<string, KeyObject>;
  #readAtMs: number;

  /** Throws if the file is unusable. */
  constructor(file: string, clock: Clock, log: Pick<Logger, 'warn'>) {
    this.#file = file;
    this.#clock = clock;
    this.#log = log;
    this.#keys = readKeys(file);
    this.#readAtMs = clock.monotonicMs();
  }

  /** Checks the signature over the bytes of a report. */
  async check(identifier: string, signature: string, body: Buffer): Promise<SignatureCheck> {
    this.#refresh();
    const key = this.#keys.get(identifier);
    if (key === undefined) return 'unknown key';
    if (!SIGNATURE.test(signature)) return 'invalid';
    // In the thread pool: a signature takes as long as many requests.
    const isValid = await verifyInPool('sha256', body, key, Buffer.from(signature, 'base64'));
    return isValid ? 'valid' : 'invalid';
  }

  /** Reads the file again; an unusable file leaves the keys as they are. */
  #refresh(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#readAtMs < READ_PERIOD_MS) return;
    this.#readAtMs = nowMs;
    try {
      this.#keys = readKeys(this.#file);
    } catch (err) {
      this.#log.warn({ err, file: this.#file }, 'the public keys of leak reports cannot be read again');
    }
  }
}

/** Returns the keys by identifier. Throws if any part of the file is not as GitHub documents it. */
export function readKeys(file: string): ReadonlyMap<string, KeyObject> {
  const { public_keys: listed } = Object(JSON.parse(readFileSync(file, 'utf8'))) as { public_keys?: unknown };
  if (!Array.isArray(listed) || listed.length === 0) throw new Error('has no list public_keys');
  if (listed.length > KEYS_MAX) throw new Error(`has more than ${KEYS_MAX} keys`);
  return new Map(
    listed.map((each: unknown, i) => {
      const { key_identifier: identifier, key: pem } = Object(each) as Record<string, unknown>;
      if (typeof identifier !== 'string' || !IDENTIFIER.test(identifier) || typeof pem !== 'string')
        throw new Error(`public_keys[${i}] lacks key_identifier or key`);
      const key = createPublicKey(pem);
      if (key.asymmetricKeyDetails?.namedCurve !== 'prime256v1')
        throw new Error(`public_keys[${i}] is not an ECDSA key on P-256`);
      return [identifier, key];
    }),
  );
}
