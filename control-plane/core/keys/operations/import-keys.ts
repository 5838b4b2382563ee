import { type Static, Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { lifetimeError, tooOldError } from '#shared/protocol/log/write-error.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { FOREIGN_DIGESTS, nameOfDigest } from '#shared/rules/foreign-digests.ts';
import type { Notice, NoticeSink, RoleNames } from '../../ports.ts';
import { NEW_CREDITS, newCredits } from '../../schema/credits.ts';
import { checkMeta, OPTIONAL_FIELDS, withoutAliases } from '../../schema/key-fields.ts';
import { checkLimits } from '../../schema/limits.ts';
import { NEW_MANAGED } from '../../schema/managed.ts';
import { checkPlaces } from '../../schema/places.ts';
import { ApiId, Fields, Id, List } from '../../schema/primitives.ts';
import type { Call } from '../../serve/call.ts';
import { faultTexts } from '../../serve/faults.ts';
import { operation } from '../../serve/operation.ts';
import { validatorAtFirstCall } from '../../serve/schema-compilers.ts';
import { checkStrings } from '../../serve/strings.ts';
import { Refused, refusedIn } from '../key-answer.ts';
import type { ImportOutcome, KeyImport, KeyToImport } from '../key-import.ts';

/** Schema of a digest of so many bytes, in hex or in base64url without padding. The last digit has no more bits than it needs. */
function Digest(bytes: number, description: string) {
  const last = { 1: '[AQgw]', 2: '[AEIMQUYcgkosw048]' }[bytes % 3] ?? '';
  const length = Math.ceil((bytes * 8) / 6) - (last ? 1 : 0);
  const pattern = `^([0-9a-fA-F]{${2 * bytes}}|[A-Za-z0-9_-]{${length}}${last})$`;
  return Type.String({ pattern, description });
}
const FOUND_BY = 'which only verifiers with it in FOREIGN_DIGESTS find. In hex or base64url without padding';
const DIGESTS = {
  sha256: Digest(
    32,
    'SHA-256 of the key, in hex or base64url without padding. Verifiers find only keys of 1 to 512 printable ASCII characters without blanks.',
  ),
  sha512: Digest(FOREIGN_DIGESTS.sha512, `Instead: SHA-512 of the key, ${FOUND_BY}.`),
  sha1: Digest(FOREIGN_DIGESTS.sha1, `Instead: SHA-1 of the key, ${FOUND_BY}.`),
  hmacSha256: Digest(
    FOREIGN_DIGESTS.hmacSha256,
    `Instead: HMAC-SHA-256 of the key under the verifiers' FOREIGN_PEPPER, ${FOUND_BY}.`,
  ),
};
const BYTES = { sha256: 32, ...FOREIGN_DIGESTS };
const digestKinds = Object.keys(DIGESTS) as (keyof typeof DIGESTS)[];

/** A key that was made elsewhere; only a digest of it is sent. */
const ImportedKey = Fields({
  ...Type.Partial(Type.Object(DIGESTS)).properties,
  start: Type.Optional(
    Type.String({ pattern: '^[!-~]{1,21}$', description: 'First characters of the key, shown to people.' }),
  ),
  foreign: Type.Optional(
    Type.Boolean({
      description:
        'true (default): the key is not in the format of Keyfence. Only verifiers with FOREIGN_KEYS on find such keys.',
    }),
  ),
  ...OPTIONAL_FIELDS,
  ...NEW_CREDITS,
  ...NEW_MANAGED,
  enabled: Type.Optional(Type.Boolean({ description: 'false: the key is refused. Default: true.' })),
});
const validate = validatorAtFirstCall({ schema: ImportedKey, method: '', url: '' });

const Result = Type.Union([
  Type.Object({
    result: Type.Union([Type.Literal('created'), Type.Literal('exists')]),
    keyId: Id('the key'),
  }),
  Type.Object({ result: Type.Literal('refused'), code: Type.String(), message: Type.String() }),
]);
type Result = Static<typeof Result>;

export const importKeys = operation({
  name: 'keys.importKeys',
  kind: 'change',
  adds: true,
  summary: 'Import keys that were made elsewhere',
  description:
    'Keys are sent only as digests, each by exactly one. Salted hashes, such as bcrypt, are refused: no verifier can find a key by one. The call can be repeated: an existing secret keeps its key. A verifier that was asked for a key up to a second before its import answers NOT_FOUND for the rest of that second.',
  permissions: ['api.<apiId>.create_key'],
  request: Fields({
    apiId: ApiId,
    // An invalid item is refused in its own place among the results and does not affect the others.
    keys: Type.Array(Type.Union([ImportedKey, Type.Unknown()]), { minItems: 1, maxItems: 500 }),
  }),
  response: Type.Object({
    results: List(Result, { description: 'The outcome for each key, in the order of the request.' }),
    refused: Refused,
  }),
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: {
    apiId: 'shop',
    keys: [{ sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08', name: 'Ada' }],
  },
  // 500 keys with 2 KiB each; callers with longer metas send fewer keys per call.
  bodyBytesMax: 1_048_576,
  checksStrings: true,
  async handle(
    call,
    {
      keyImport,
      roles,
      notices,
      clock,
    }: { keyImport: KeyImport; roles: RoleNames; notices: NoticeSink; clock: Clock },
  ) {
    const { apiId, keys } = call.request;
    const results: Result[] = [];
    const idsOf = roleIdCache(roles);
    const good: { place: number; key: KeyToImport }[] = [];
    for (const [place, value] of keys.entries()) {
      try {
        const { roles: roleNames, ...key } = parseKey(value);
        good.push({ place, key: { ...key, ...(await idsOf(roleNames)) } });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        results[place] = refusal(error);
      }
    }
    const keysToImport = good.map(({ key }) => key);
    const outcomes = keysToImport.length > 0 ? await keyImport.run(apiId, keysToImport) : [];
    for (const [n, { place }] of good.entries()) results[place] = resultOf(apiId, outcomes[n]);
    call.note({}, { after: tally(results) });
    await notices.add(noticesOfImport(call, results, clock.wallMs()));
    return { results, refused: refusedIn(results) };
  },
});

/** Looks up role ids, once for all keys of a call with the same roles. */
function roleIdCache(roles: RoleNames) {
  const cache = new Map<string, Promise<string[]>>();
  return async (names: readonly string[] | undefined) => {
    if (names === undefined) return {};
    const ids = cache.get(names.join()) ?? roles.idsOf(names);
    cache.set(names.join(), ids);
    return { roles: await ids };
  };
}

/** Parses one key of the body. Throws BAD_REQUEST that names the field and the rule. */
function parseKey(value: unknown): KeyToImport {
  checkStrings(value);
  refuseSalted(Object(value));
  if (!validate(value))
    throw new ApiError('BAD_REQUEST', faultTexts(validate.errors, { whole: 'key', part: 'field' })[0] ?? '');
  const fields = withoutAliases(value as Static<typeof ImportedKey>);
  const {
    sha256: _sha256,
    sha512: _sha512,
    sha1: _sha1,
    hmacSha256: _hmacSha256,
    start = '',
    foreign = true,
    meta = {},
    enabled = true,
    remaining,
    refill,
    thresholds,
    ...rest
  } = fields;
  checkMeta(meta);
  checkLimits(rest);
  checkPlaces(rest);
  const hashes = hashesOf(fields, foreign);
  const credits = newCredits({ remaining, refill, thresholds });
  return { ...hashes, start, foreign, meta, enabled, ...rest, ...(credits ? { credits } : {}) };
}

/** Returns how the secret of a key is known: by the one digest that it was sent with. */
function hashesOf(
  key: Readonly<Partial<Record<keyof typeof DIGESTS, string>>>,
  foreign: boolean,
): Pick<KeyToImport, 'secretHash' | 'digest'> {
  const [kind, another] = digestKinds.filter((each) => key[each] !== undefined);
  if (kind === undefined)
    throw new ApiError('BAD_REQUEST', `sha256: required, or one of ${digestKinds.slice(1).join(', ')}`);
  if (another !== undefined)
    throw new ApiError('BAD_REQUEST', `${another}: must not be given beside ${kind}; send one of them`);
  const text = key[kind] ?? '';
  const digest = Buffer.from(text, text.length === 2 * BYTES[kind] ? 'hex' : 'base64url');
  if (kind === 'sha256') return { secretHash: digest.toString('base64url') };
  if (!foreign)
    throw new ApiError(
      'BAD_REQUEST',
      `${kind}: only for keys of a foreign format; send sha256, or leave out foreign`,
    );
  return { secretHash: nameOfDigest(kind, digest).toString('base64url'), digest: kind };
}

/** The beginnings of salted hashes, as they are usually written. */
const SALTED = /^(?:\$[\w-]+\$|(?:pbkdf2|scrypt|argon2|bcrypt)[\w-]*[$:])/i;

/** Throws BAD_REQUEST for a salted hash, with the reason. */
function refuseSalted(key: Readonly<Record<string, unknown>>): void {
  for (const kind of digestKinds) {
    if (SALTED.test(String(key[kind] ?? '')))
      throw new ApiError(
        'BAD_REQUEST',
        `${kind}: is a salted hash, by which no verifier can find a key, because each has a salt of its own; import the key by a plain digest when its user next presents it, or replace it`,
      );
  }
}

function resultOf(apiId: string, outcome: ImportOutcome | undefined): Result {
  if (outcome?.result === 'TOO_OLD') return refusal(tooOldError(apiId, outcome.refusal));
  if (outcome?.result === 'TOO_LONG') return refusal(lifetimeError(apiId, outcome.longestMs));
  if (outcome && outcome.result !== 'TAKEN') return outcome;
  return { result: 'refused', code: 'CONFLICT', message: 'the secret exists already' };
}

const refusal = ({ code, message }: ApiError): Result => ({ result: 'refused', code, message });

/** Returns one notice for all keys that were created, which the audit log does not name one by one. */
function noticesOfImport(
  { apiId, requestId, callerId }: Call,
  results: readonly Result[],
  time: number,
): Notice[] {
  const keyIds = results.flatMap((each) => (each.result === 'created' ? [each.keyId] : []));
  if (keyIds.length === 0) return [];
  const data = { apiId, operation: 'keys.importKeys', requestId, ...callerId, outcome: 'OK' };
  return [{ type: 'key.created', time, data, keyIds }];
}

/** Counts each outcome, for the audit log. */
function tally(results: readonly Result[]) {
  const count = (kind: Result['result']) => results.filter(({ result }) => result === kind).length;
  return { created: count('created'), exists: count('exists'), refused: refusedIn(results) };
}

export const importOperations = [importKeys] as const;
