import { ApiError } from '#shared/rules/errors.ts';
import { foreignDigests } from '#shared/rules/foreign-digests.ts';
import { hashSecret, isWellFormed } from '#shared/rules/key-format.ts';
import type { BootstrapKeys } from '../callers/bootstrap-keys.ts';
import type { KeyIndex } from './ports.ts';

/** Fields that may contain anything, a secret, or the hash of a secret. */
const FREE = new Set(['meta', 'key', 'sha256', ...foreignDigests]);
/** Fields with ids that callers choose, in either generation of the interface, which may become part of new records. */
const CALLER_IDS = new Set([
  ...['apiId', 'externalId', 'ownerId', 'slug'],
  ...['identity', 'role', 'permission', 'namespace', 'identifier'],
]);
/** Minimum lengths of secrets: root keys of the configuration, and keys that were made elsewhere. */
const LENGTH_MIN = { bootstrap: 32, foreign: 16 };

/**
 * Refuses a request with a secret in the place of an id or a name, before any part of the call is recorded. It
 * recognises keys and root keys in our format by their checksum, and also root keys of the configuration and
 * imported keys.
 */
export async function refuseSecrets(
  request: unknown,
  bootstrapKeys: BootstrapKeys,
  keys: Pick<KeyIndex, 'lookUpSecret'>,
): Promise<void> {
  const callerIds = new Map<string, string>();
  for (const [field, text] of textsIn(Object(request) as object)) {
    if (isOurs(text, bootstrapKeys)) throw misplacement(field);
    if (CALLER_IDS.has(field) && text.length >= LENGTH_MIN.foreign) callerIds.set(text, field);
  }
  await Promise.all(
    [...callerIds].map(async ([text, field]) => {
      if ((await keys.lookUpSecret(text)) !== undefined) throw misplacement(field);
    }),
  );
}

/** Tells whether a text is a key or a root key in our format, or a root key of the configuration. */
export const isOurs = (text: string, bootstrapKeys: BootstrapKeys): boolean =>
  isWellFormed(text) ||
  (text.length >= LENGTH_MIN.bootstrap && bootstrapKeys.idOf(hashSecret(text)) !== undefined);

/**
 * Yields every string of a request, at any depth, with the name of the field that contains it or its list.
 */
function* textsIn(body: object): Generator<readonly [field: string, text: string]> {
  const open: [field: string, value: unknown][] = [['body', body]];
  for (let each = open.pop(); each !== undefined; each = open.pop()) {
    const [field, value] = each;
    if (typeof value === 'string') yield [field, value];
    else if (Array.isArray(value)) for (const part of value) open.push([field, part]);
    else if (typeof value === 'object' && value !== null)
      for (const [name, part] of Object.entries(value)) if (!FREE.has(name)) open.push([name, part]);
  }
}

function misplacement(field: string): ApiError {
  const fix = 'send the id; anyone who saw the request may know the key, so rotate it';
  return new ApiError('BAD_REQUEST', `${field}: must not be a key or root key; ${fix}`);
}
