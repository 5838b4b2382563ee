import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { ApiError } from '#shared/contract/errors.ts';
import { isWellFormed } from '#shared/contract/key-format.ts';

/** One place where a secret was found. */
export interface ReportedSecret {
  readonly secret: string;
  /** The reporter's name for secrets of this form. */
  readonly type: string;
  /** Place of the secret; contains no secret itself. */
  readonly url: string;
  readonly source: string;
}

const SECRETS_MAX = 1000;
const LENGTH_MAX = { token: 512, type: 256, url: 1024, source: 64 };

/**
 * Reads a report in the form of GitHub's secret scanning. Throws BAD_REQUEST or PAYLOAD_TOO_LARGE. Unknown
 * fields are ignored, because the form is another's and may grow.
 */
export function parseReport(body: Buffer): ReportedSecret[] {
  const items = jsonOf(body);
  if (!Array.isArray(items)) throw new ApiError('BAD_REQUEST', 'body: must be a JSON array');
  if (items.length > SECRETS_MAX)
    throw new ApiError(
      'PAYLOAD_TOO_LARGE',
      `body: must have at most ${SECRETS_MAX} items; send several reports`,
    );
  const reported = items.map((item: unknown, i) => ({
    secret: textOf(item, 'token', i),
    type: textOf(item, 'type', i),
    url: textOf(item, 'url', i, ''),
    source: textOf(item, 'source', i, ''),
  }));
  const secrets = new Set(reported.map(({ secret }) => secret));
  return reported.map((each) => ({ ...each, url: withoutSecrets(each, secrets) }));
}

function jsonOf(body: Buffer): unknown {
  if (!isUtf8(body)) throw new ApiError('BAD_REQUEST', 'body: must be UTF-8');
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw new ApiError('BAD_REQUEST', 'body: is not JSON');
  }
}

/** Returns a text of an item; an optional text that is missing, or too long to keep, is `otherwise`. */
function textOf(item: unknown, name: keyof typeof LENGTH_MAX, i: number, otherwise?: string): string {
  const value: unknown = Object(item)[name];
  if (typeof value === 'string' && value.length <= LENGTH_MAX[name]) return value.toWellFormed();
  if (otherwise !== undefined) return otherwise;
  throw new ApiError(
    'BAD_REQUEST',
    `[${i}].${name}: must be a string of at most ${LENGTH_MAX[name]} characters`,
  );
}

/** The URL goes into logs, so every secret in it is cut out. */
function withoutSecrets({ url, secret }: ReportedSecret, secrets: ReadonlySet<string>): string {
  return cutOut(url, [secret]).replace(/[0-9A-Za-z_]{16,}/g, (word) =>
    secrets.has(word) || isWellFormed(word) ? CUT : word,
  );
}

const CUT = '[a key]';

/** Returns a text without these secrets. */
export const cutOut = (text: string, secrets: readonly string[]): string =>
  secrets.reduce((rest, secret) => (secret === '' ? rest : rest.replaceAll(secret, () => CUT)), text);

/** Returns what GitHub takes as feedback: of each kind of secret only once, and no secret itself. */
export function feedbackOf(reported: readonly ReportedSecret[], isOurs: (secret: string) => boolean) {
  const unique = new Map(reported.map((each) => [JSON.stringify([each.secret, each.type]), each]));
  return [...unique.values()].map(({ secret, type }) => ({
    token_hash: hash('sha256', secret),
    token_type: type,
    label: isOurs(secret) ? 'true_positive' : 'false_positive',
  }));
}
