import type { FastifyRequest } from 'fastify';
import { ApiError, unavailable } from '#shared/errors.ts';
import { type StoredFields, storedFields } from '#shared/key-record.ts';
import { idAsSent, shown } from '../../core/audit-event.ts';
import type { BatchEvents } from '../../core/batches.ts';
import type { Write } from '../../core/change-log.ts';
import { checkLimits } from '../../core/limit-schemas.ts';
import type { Applied, Propagation, Propagator } from '../../core/propagation.ts';
import { slugsIn } from '../../core/slug-schemas.ts';
import type { Apis } from '../../redis/apis.ts';
import type { KeyView } from '../../redis/key-view.ts';
import type { Keys, PointedKey } from '../../redis/keys.ts';
import type { Roles } from '../../redis/workspace/roles.ts';
import { neverShed } from '../load-shedding.ts';
import { deleteAllKeys } from '../operations/apis.ts';
import { MANY_KEYS_MAX } from '../operations/key-requests.ts';
import { deleteKeys, updateKeys } from '../operations/keys.ts';
import type { App } from '../server.ts';
import { withoutAliases } from './aliases.ts';
import { effectOf, note } from './audit-hooks.ts';
import { callerOf, requireApi } from './authorization.ts';
import { makeCursor, openCursor } from './cursor.ts';
import { checkMeta } from './meta.ts';

/** 1,000 ids of the longest kind, and a meta. */
const BODY_BYTES_MAX = 131_072;

/** The keys that a call chooses: by their ids, or by their owner, page after page. */
interface Choice {
  readonly apiId: string;
  readonly keyIds?: readonly string[];
  readonly externalId?: string;
  readonly cursor?: string;
}

/** Keys of an API that were chosen, each once, and the creation number to go on from. */
interface Chosen {
  readonly apiId: string;
  readonly keyIds: readonly string[];
  readonly next?: number;
}

interface ManyKeysOptions {
  readonly keys: Keys;
  readonly view: KeyView;
  readonly apis: Apis;
  readonly roles: Roles;
  readonly propagator: Propagator;
  /** The longest time for which one call goes on deleting, milliseconds. */
  readonly holdMs: number;
  readonly monotonicMs: () => number;
}

/** The operations on many keys of an API at once. */
export function manyKeysRoutes(app: App, options: ManyKeysOptions) {
  const { keys, view, apis, roles, propagator, holdMs, monotonicMs } = options;
  const config = { ...neverShed };

  app.post(
    '/v1/keys.updateKeys',
    { schema: updateKeys, config, bodyLimit: BODY_BYTES_MAX },
    async (request) => {
      const { apiId, keyIds, externalId, ownerId, cursor, waitMs, ...changes } = request.body;
      const { permissions, roles: named, ...given } = changes;
      requireApi(callerOf(request), apiId, 'update_key');
      const patch = {
        ...given,
        ...(permissions === undefined ? {} : { permissions: permissions && slugsIn(permissions) }),
        ...(await roles.patchOf(named)),
      };
      checkMeta(patch.meta ?? {});
      checkLimits(patch.ratelimits);
      const fields = storedFields(patch);
      if (Object.keys(fields).length === 0)
        throw new ApiError('BAD_REQUEST', 'body: names no field to change');
      const chosen = await choose(request, view, apis, withoutAliases(request.body));
      const changed = await change(request, propagator, chosen, 'update', fields, waitMs);
      return { results: changed.applied.map((each) => told('updated', each)), ...rest(changed, chosen) };
    },
  );

  app.post(
    '/v1/keys.deleteKeys',
    { schema: deleteKeys, config, bodyLimit: BODY_BYTES_MAX },
    async (request) => {
      const { apiId, waitMs } = request.body;
      requireApi(callerOf(request), apiId, 'delete_key');
      const chosen = await choose(request, view, apis, withoutAliases(request.body));
      const changed = await remove(request, chosen, waitMs);
      return { results: changed.applied.map((each) => told('deleted', each)), ...rest(changed, chosen) };
    },
  );

  app.post('/v1/apis.deleteKeys', { schema: deleteAllKeys, config }, async (request) => {
    const { apiId, waitMs } = request.body;
    requireApi(callerOf(request), apiId, 'delete_key');
    const startedAtMs = monotonicMs();
    let deletedKeys = 0;
    const pages: Propagation[] = [];
    for (let from: number | undefined; ; ) {
      const page = await view.ids(apiId, undefined, MANY_KEYS_MAX, from);
      if (!page) throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
      const { applied, propagation } = await remove(request, { apiId, ...page }, waitMs);
      deletedKeys += applied.filter((each) => 'sequence' in each).length;
      if (propagation) pages.push(propagation);
      note(request, {}, { after: { deleted: deletedKeys } });
      if (page.next === undefined) return { deletedKeys, ...together(pages) };
      if (monotonicMs() - startedAtMs >= holdMs) {
        throw unavailable(`${deletedKeys} keys are deleted, and there are more: send the call again`);
      }
      await request.recordKeys();
      from = page.next;
    }
  });

  async function remove(request: FastifyRequest, chosen: Chosen, waitMs: number | undefined) {
    const { apiId, keyIds } = chosen;
    const hashes = await keys.secretHashesOf(apiId, keyIds);
    const changed = await change(request, propagator, chosen, 'delete', undefined, waitMs);
    const deleted = changed.applied.flatMap((each, i): PointedKey[] => {
      const secretHash = hashes[i];
      return 'sequence' in each && secretHash ? [{ keyId: each.keyId, secretHash }] : [];
    });
    await keys.forgetDeleted(apiId, deleted).catch((err: unknown) => {
      request.log.warn({ apiId, err }, 'pointers of deleted keys remain; they lead nowhere');
    });
    return changed;
  }
}

/** The last of several changes, complete only where all are. */
function together(changes: readonly Propagation[]): { readonly propagation?: Propagation } {
  const last = changes.at(-1);
  if (!last) return {};
  const pending = changes.find(({ state }) => state === 'pending');
  return { propagation: pending ? { ...pending, sequence: last.sequence } : last };
}

/** Throws BAD_REQUEST where keys are chosen in no way or in two, NOT_FOUND where there is no such API. */
async function choose(
  request: FastifyRequest,
  view: KeyView,
  apis: Apis,
  { apiId, keyIds, externalId, cursor }: Choice,
): Promise<Chosen> {
  if ((keyIds === undefined) === (externalId === undefined)) {
    throw new ApiError(
      'BAD_REQUEST',
      'keyIds: give either these or externalId, the owner whose keys are meant',
    );
  }
  if (keyIds !== undefined) {
    if (cursor !== undefined) throw new ApiError('BAD_REQUEST', 'cursor: goes with externalId only');
    if (!(await apis.get(apiId))) throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
    return { apiId, keyIds: [...new Set(keyIds)] };
  }
  const [from] = cursor === undefined ? [] : openCursor(cursor, PLACE, 'the call before');
  const page = await view.ids(
    apiId,
    externalId,
    MANY_KEYS_MAX,
    from === undefined ? undefined : Number(from),
  );
  if (!page) throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
  if (externalId !== undefined)
    note(request, { externalId: page.keyIds.length > 0 ? externalId : idAsSent(externalId) });
  return { apiId, ...page };
}

/** The creation number to go on from. */
const PLACE = /^owner:(\d{1,15})$/;

/** Writes the change of each key, waits for all together, and notes them for the audit log. */
async function change(
  request: FastifyRequest,
  propagator: Propagator,
  { apiId, keyIds }: Chosen,
  operation: 'update' | 'delete',
  fields: StoredFields | undefined,
  waitMs: number | undefined,
): Promise<{ readonly applied: readonly Applied[]; readonly propagation?: Propagation }> {
  const [first, ...others] = keyIds.map(
    (keyId): Write => ({ apiId, operation, keyId, fields: fields ?? {} }),
  );
  const counts = { [`${operation}d`]: 0, refused: 0, unknown: 0 };
  const noteCounts = () => note(request, {}, { after: { ...(fields ? shown(fields) : {}), ...counts } });
  noteCounts();
  if (!first) return { applied: [] };
  const events: BatchEvents = {
    written(changes) {
      counts[`${operation}d`] = (counts[`${operation}d`] ?? 0) + changes.length;
      void request.recordKeys(
        changes.map(({ write: { keyId }, written }) => ({
          keyId,
          outcome: 'OK',
          effect: effectOf(written, fields),
        })),
      );
      noteCounts();
    },
    unknown(writes) {
      counts.unknown += writes.length;
      void request.recordKeys(
        writes.map(({ keyId }) => ({
          keyId,
          outcome: 'SERVICE_UNAVAILABLE',
          effect: fields ? { after: shown(fields) } : {},
        })),
      );
      noteCounts();
    },
    allWritten: () => request.giveTurnBack?.(),
  };
  const changed = await propagator.applyAll([first, ...others], waitMs, events);
  counts.refused = changed.applied.filter((each) => 'failure' in each).length;
  const sequence = changed.propagation?.sequence;
  noteCounts();
  if (sequence !== undefined) note(request, {}, { sequence });
  return changed;
}

function told<Result extends string>(result: Result, applied: Applied) {
  const { keyId } = applied;
  if ('sequence' in applied) return { result, keyId, sequence: applied.sequence };
  const { code, message } = applied.failure;
  return { result: 'refused' as const, keyId, code, message };
}

const rest = ({ propagation }: { readonly propagation?: Propagation }, { next }: Chosen) => ({
  ...(propagation ? { propagation } : {}),
  ...(next === undefined ? {} : { cursor: makeCursor(`owner:${next}`) }),
});
