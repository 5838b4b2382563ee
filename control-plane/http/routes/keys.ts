import type { Clock } from '#shared/clock.ts';
import { ApiError } from '#shared/errors.ts';
import { hashSecret } from '#shared/key-format.ts';
import { storedFields } from '#shared/key-record.ts';
import { shown } from '../../core/audit-event.ts';
import { creditsChange, newCredits } from '../../core/credit-schemas.ts';
import { checkLimits } from '../../core/limit-schemas.ts';
import type { Propagator } from '../../core/propagation.ts';
import { slugsIn } from '../../core/slug-schemas.ts';
import type { Apis } from '../../redis/apis.ts';
import type { Key, KeyFilter, KeyView } from '../../redis/key-view.ts';
import type { Keys } from '../../redis/keys.ts';
import type { UsageView } from '../../redis/usage.ts';
import type { Identities } from '../../redis/workspace/identities.ts';
import type { Roles } from '../../redis/workspace/roles.ts';
import { neverShed } from '../load-shedding.ts';
import { getApiVerifications, listKeys } from '../operations/apis.ts';
import {
  createKey,
  deleteKey,
  getKey,
  getPropagation,
  getVerifications,
  updateKey,
  whoami,
} from '../operations/keys.ts';
import { onlyReads } from '../reads.ts';
import type { App } from '../server.ts';
import { withoutAliases } from './aliases.ts';
import { note, recordChange } from './audit-hooks.ts';
import { callerOf, recordNotFound, requireApi, requireKey, requireSecret } from './authorization.ts';
import { makeCursor, openCursor } from './cursor.ts';
import { checkMeta } from './meta.ts';

/** The operations on keys. */
export function keyRoutes(
  app: App,
  {
    keys,
    view,
    apis,
    roles,
    identities,
    propagator,
    usage,
    clock,
  }: {
    keys: Keys;
    view: KeyView;
    apis: Apis;
    roles: Roles;
    identities: Identities;
    propagator: Propagator;
    usage: UsageView;
    clock: Clock;
  },
) {
  app.post('/v1/keys.createKey', { schema: createKey }, async (request) => {
    requireApi(callerOf(request), request.body.apiId, 'create_key');
    const { meta = {}, remaining, refill, roles: named, ...given } = withoutAliases(request.body);
    checkMeta(meta);
    checkLimits(given.ratelimits);
    if (given.expires !== undefined && given.expires <= clock.wallMs()) {
      throw new ApiError('BAD_REQUEST', 'expires: must be in the future');
    }
    const key = {
      ...given,
      ...(named ? { roles: await roles.idsOf(named) } : {}),
    };
    const credits = newCredits({ remaining, refill });
    const created = await keys.create({ ...key, meta, ...(credits ? { credits } : {}) });
    request.giveTurnBack?.();
    const after = { ...shown(storedFields({ ...key, meta })), ...(credits ? { credits } : {}) };
    note(request, { keyId: created.keyId }, { after });
    return created;
  });

  app.post('/v1/keys.updateKey', { schema: updateKey, config: neverShed }, async (request) => {
    const { keyId, waitMs, remaining, refill, permissions, roles: givenRoles, ...given } = request.body;
    const apiId = await requireKey(keys, request, keyId, 'update_key');
    const patch = {
      ...withoutAliases(given),
      ...(permissions === undefined ? {} : { permissions: permissions && slugsIn(permissions) }),
      ...(await roles.patchOf(givenRoles)),
    };
    checkMeta(patch.meta ?? {});
    checkLimits(patch.ratelimits);
    const fields = storedFields(patch);
    const credits = creditsChange({ remaining, refill });
    const propagation =
      Object.keys(fields).length === 0 && !credits
        ? await propagator.status(apiId, keyId, await keys.lastSequence(apiId, keyId), true)
        : await propagator.apply(
            { apiId, operation: 'update', keyId, fields, ...(credits ? { credits } : {}) },
            waitMs,
            recordChange(request, fields, credits),
          );
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    return { propagation };
  });

  app.get('/v1/keys.getKey', { schema: getKey }, async (request) => {
    const { keyId } = request.query;
    const apiId = await requireKey(keys, request, keyId, 'read_key');
    const [key, lastUsedAt] = await Promise.all([view.get(apiId, keyId), usage.lastUsedAt(apiId, keyId)]);
    if (!key) throw await recordNotFound(keys, apiId, keyId);
    const [shown] = await joined([{ ...key, ...lastUsed(lastUsedAt) }]);
    return shown;
  });

  app.post('/v1/keys.whoami', { schema: whoami, config: onlyReads }, async (request) => {
    const { apiId, keyId } = await requireSecret(keys, request, hashSecret(request.body.key), 'read_key');
    const key = await view.get(apiId, keyId);
    if (!key) throw await recordNotFound(keys, apiId, keyId);
    const [shown] = await joined([key]);
    return shown;
  });

  app.get('/v1/keys.getVerifications', { schema: getVerifications }, async (request) => {
    const { keyId, granularity, start, end } = request.query;
    const apiId = await requireKey(keys, request, keyId, 'read_key');
    if ((await keys.lastSequence(apiId, keyId)) === undefined) throw await recordNotFound(keys, apiId, keyId);
    const asked = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    const series = await usage.series(apiId, keyId, asked);
    return { verifications: series };
  });

  app.get('/v1/apis.getVerifications', { schema: getApiVerifications }, async (request) => {
    const { apiId, granularity, start, end, tag, groupBy, limit } = request.query;
    requireApi(callerOf(request), apiId, 'read_key');
    requireApi(callerOf(request), apiId, 'read_api');
    const byTag = groupBy === 'tag';
    if ((byTag || tag !== undefined) && granularity === 'hour')
      throw new ApiError('BAD_REQUEST', 'granularity: tags are counted by the day');
    if (byTag && tag !== undefined) throw new ApiError('BAD_REQUEST', 'tag: not together with groupBy');
    if (!(await apis.get(apiId))) throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
    const asked = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    const found = byTag
      ? await usage.byTag(apiId, Number(limit), asked)
      : tag === undefined
        ? await usage.series(apiId, undefined, asked)
        : await usage.seriesOfTag(apiId, tag, asked);
    return { verifications: found };
  });

  app.post('/v1/keys.deleteKey', { schema: deleteKey, config: neverShed }, async (request) => {
    const { keyId, waitMs } = request.body;
    const apiId = await requireKey(keys, request, keyId, 'delete_key');
    const secretHash = await keys.secretHashOf(apiId, keyId);
    const write = { apiId, operation: 'delete', keyId, fields: {} } as const;
    const propagation = await propagator.apply(write, waitMs, recordChange(request));
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    if (secretHash) {
      await keys.forgetDeleted(apiId, [{ keyId, secretHash }]).catch((error: unknown) => {
        request.log.warn({ keyId, err: error }, 'pointers of a deleted key remain; they lead nowhere');
      });
    }
    return { propagation };
  });

  app.get('/v1/keys.getPropagation', { schema: getPropagation }, async (request) => {
    const { keyId, sequence } = request.query;
    const apiId = await requireKey(keys, request, keyId, 'read_key');
    const propagation = await propagator.status(apiId, keyId, Number(sequence));
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    return { propagation };
  });

  app.get('/v1/apis.listKeys', { schema: listKeys }, async (request) => {
    const { apiId } = request.query;
    requireApi(callerOf(request), apiId, 'read_key');
    requireApi(callerOf(request), apiId, 'read_api');
    const { limit, cursor, sort, enabled, externalId, name } = withoutAliases(request.query);
    const order = sort === 'createdAt' ? 'asc' : 'desc';
    const from = cursor === undefined ? undefined : placeOf(cursor, order);
    const filter: KeyFilter = {
      ...(enabled === undefined ? {} : { enabled: enabled === 'true' }),
      ...(externalId === undefined ? {} : { externalId }),
      ...(name === undefined ? {} : { namePrefix: name }),
    };
    const page = await view.list(apiId, filter, Number(limit), order, from);
    if (!page) throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
    const used = await usage.lastUsedAtOf(
      apiId,
      page.keys.map(({ keyId }) => keyId),
    );
    return {
      keys: await joined(page.keys.map((key, i) => ({ ...key, ...lastUsed(used[i]) }))),
      total: page.total,
      ...(page.next === undefined ? {} : { cursor: makeCursor(`${order}:${page.next}`) }),
    };
  });

  /** Keys with what is not in their records: names of their roles, identities of their owners. */
  async function joined<Shown extends Key>(found: readonly Shown[]) {
    return identities.shownOn(await roles.shownOn(found));
  }
}

const timeOf = (ms: string | undefined) => (ms === undefined ? undefined : Number(ms));

const lastUsed = (lastUsedAt: number | undefined) => (lastUsedAt === undefined ? {} : { lastUsedAt });

/** The order, and the creation number to go on from. Of the API it tells no more than `total` does. */
const PLACE = /^(asc|desc):(\d{1,15})$/;

function placeOf(cursor: string, order: 'asc' | 'desc'): number {
  const [given, from] = openCursor(cursor, PLACE, 'listKeys');
  if (given !== order) throw new ApiError('BAD_REQUEST', 'cursor: belongs to another sort');
  return Number(from);
}
