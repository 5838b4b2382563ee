import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { ApiError } from '#shared/errors.ts';
import { newCredits } from '../../core/credit-schemas.ts';
import { checkLimits } from '../../core/limit-schemas.ts';
import { tooOld } from '../../core/not-written.ts';
import type { Imported, KeyImport, KeyToImport } from '../../redis/key-import.ts';
import type { Roles } from '../../redis/workspace/roles.ts';
import { checkStrings } from '../json-body.ts';
import { ImportedKey } from '../operations/key-requests.ts';
import { importKeys } from '../operations/keys.ts';
import { type App, faultText } from '../server.ts';
import { withoutAliases } from './aliases.ts';
import { note } from './audit-hooks.ts';
import { callerOf, requireApi } from './authorization.ts';
import { checkMeta } from './meta.ts';

/** 500 keys with 2 KiB each; callers with longer metas send fewer at once. */
const IMPORT_BODY_BYTES_MAX = 1_048_576;

/** Outcome for one key of an import, in the place of that key. */
type Result =
  | { result: 'created' | 'exists'; keyId: string }
  | { result: 'refused'; code: string; message: string };

/** Taking in keys that were made elsewhere. Only hashes travel. */
export function importRoutes(app: App, { keyImport, roles }: { keyImport: KeyImport; roles: Roles }) {
  const route = {
    schema: importKeys,
    bodyLimit: IMPORT_BODY_BYTES_MAX,
    config: { checksStrings: true as const },
  };
  app.post('/v1/keys.importKeys', route, async (request) => {
    const { apiId, keys } = request.body;
    requireApi(callerOf(request), apiId, 'create_key');
    const results: Result[] = [];
    const idsOf = remembering(roles);
    const good: { place: number; key: KeyToImport }[] = [];
    for (const [place, given] of keys.entries()) {
      try {
        const { roles: named, ...key } = checked(request, given);
        good.push({ place, key: { ...key, ...(await idsOf(named)) } });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        results[place] = refused(error);
      }
    }
    const imported =
      good.length > 0
        ? await keyImport.run(
            apiId,
            good.map(({ key }) => key),
          )
        : [];
    for (const [n, { place }] of good.entries()) results[place] = told(apiId, imported[n]);
    note(request, {}, { after: tally(results) });
    return { results };
  });
}

/** Looks up the ids of keys' roles, once for all keys of a call that have the same. */
function remembering(roles: Roles) {
  const known = new Map<string, Promise<string[]>>();
  return async (names: readonly string[] | undefined) => {
    if (names === undefined) return {};
    const found = known.get(names.join()) ?? roles.idsOf(names);
    known.set(names.join(), found);
    return { roles: await found };
  };
}

/** One key of the body; throws BAD_REQUEST naming the field and the rule. */
function checked(request: FastifyRequest, given: unknown): KeyToImport {
  checkStrings(given);
  const validate = request.compileValidationSchema(ImportedKey);
  if (!validate(given)) throw new ApiError('BAD_REQUEST', faultText(validate.errors, 'key', 'field'));
  const {
    sha256,
    start = '',
    foreign = true,
    meta = {},
    enabled = true,
    remaining,
    refill,
    ...rest
  } = withoutAliases(given as Static<typeof ImportedKey>);
  checkMeta(meta);
  checkLimits(rest.ratelimits);
  const secretHash = sha256.length === 64 ? Buffer.from(sha256, 'hex').toString('base64url') : sha256;
  const credits = newCredits({ remaining, refill });
  return { secretHash, start, foreign, meta, enabled, ...rest, ...(credits ? { credits } : {}) };
}

function told(apiId: string, imported: Imported | undefined): Result {
  if (imported?.result === 'TOO_OLD') return refused(tooOld(apiId, imported.refusal));
  if (imported && imported.result !== 'TAKEN') return imported;
  return { result: 'refused', code: 'CONFLICT', message: 'the secret exists already' };
}

const refused = ({ code, message }: ApiError): Result => ({ result: 'refused', code, message });

/** Number of each outcome, for the audit log. */
function tally(results: readonly Result[]) {
  const count = (wanted: Result['result']) => results.filter(({ result }) => result === wanted).length;
  return { created: count('created'), exists: count('exists'), refused: count('refused') };
}
