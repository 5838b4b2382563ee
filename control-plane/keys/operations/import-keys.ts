import { type Static, Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { ApiError } from '#shared/rules/errors.ts';
import type { Roles } from '../../roles/roles.ts';
import type { Call } from '../../serve/call.ts';
import { faultTexts } from '../../serve/faults.ts';
import { operation } from '../../serve/operation.ts';
import { validatorAtFirstCall } from '../../serve/schema-compilers.ts';
import {
  ApiId,
  checkLimits,
  checkMeta,
  checkRanges,
  Fields,
  Id,
  List,
  NEW_CREDITS,
  newCredits,
  OPTIONAL_FIELDS,
  withoutAliases,
} from '../../serve/schemas.ts';
import { checkStrings } from '../../serve/strings.ts';
import type { Notice, Notices } from '../../webhooks/notices.ts';
import { lifetimeError, tooOldError } from '../../writer/write-error.ts';
import type { ImportOutcome, KeyImport, KeyToImport } from '../key-import.ts';

/** A key that was made elsewhere; only its hash is sent. */
const ImportedKey = Fields({
  sha256: Type.String({
    pattern: '^([0-9a-fA-F]{64}|[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])$',
    description:
      'SHA-256 of the key, in hex or base64url without padding. Verifiers find only keys of 1 to 512 printable ASCII characters without blanks.',
  }),
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
  summary: 'Import keys that were made elsewhere',
  description:
    'Keys are sent only as hashes. The call can be repeated: an existing secret keeps its key. A verifier that was asked for a key up to a second before its import answers NOT_FOUND for the rest of that second.',
  permissions: ['api.<apiId>.create_key'],
  request: Fields({
    apiId: ApiId,
    // An invalid item is refused in its own place among the results and does not affect the others.
    keys: Type.Array(Type.Union([ImportedKey, Type.Unknown()]), { minItems: 1, maxItems: 500 }),
  }),
  response: Type.Object({
    results: List(Result, { description: 'The outcome for each key, in the order of the request.' }),
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
    }: { keyImport: KeyImport; roles: Roles; notices: Notices; clock: Clock },
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
    return { results };
  },
});

/** Looks up role ids, once for all keys of a call with the same roles. */
function roleIdCache(roles: Roles) {
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
  if (!validate(value))
    throw new ApiError('BAD_REQUEST', faultTexts(validate.errors, { whole: 'key', part: 'field' })[0] ?? '');
  const fields = withoutAliases(value as Static<typeof ImportedKey>);
  const {
    sha256,
    start = '',
    foreign = true,
    meta = {},
    enabled = true,
    remaining,
    refill,
    ...rest
  } = fields;
  checkMeta(meta);
  checkLimits(rest);
  checkRanges(rest.allowedIps);
  const secretHash = sha256.length === 64 ? Buffer.from(sha256, 'hex').toString('base64url') : sha256;
  const credits = newCredits({ remaining, refill });
  return { secretHash, start, foreign, meta, enabled, ...rest, ...(credits ? { credits } : {}) };
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
  return { created: count('created'), exists: count('exists'), refused: count('refused') };
}

export const importOperations = [importKeys] as const;
