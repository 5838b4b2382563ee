import { API_ID_PATTERN } from '#shared/api-id.ts';
import { ApiError } from '#shared/errors.ts';
import type { Propagator } from '../../core/propagation.ts';
import type { Api, Apis } from '../../redis/apis.ts';
import { neverShed } from '../load-shedding.ts';
import { createApi, deleteApi, getApi, listApis, updateApi } from '../operations/apis.ts';
import type { App } from '../server.ts';
import { note } from './audit-hooks.ts';
import { callerOf, requireApi } from './authorization.ts';
import { makeCursor, openCursor } from './cursor.ts';

/** The id to go on after, which is of an API that the caller may read. */
const PLACE = new RegExp(`^after:(${API_ID_PATTERN})$`);

const apiNotFound = (apiId: string) => new ApiError('NOT_FOUND', `api ${apiId} not found`);

/** An API as a caller may see it: the number of its keys is for who may read them. */
function seenBy({ permissions }: ReturnType<typeof callerOf>, { keys, ...api }: Api) {
  return permissions.allows(api.id, 'read_key') ? { ...api, keys } : api;
}

/** The operations on APIs. */
export function apiRoutes(app: App, { apis, propagator }: { apis: Apis; propagator: Propagator }) {
  app.post('/v1/apis.createApi', { schema: createApi }, async (request) => {
    const { apiId, ...about } = request.body;
    const { permissions } = callerOf(request);
    if (!permissions.allows(apiId ?? '*', 'create_api')) {
      throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key needs api.${apiId ?? '*'}.create_api`);
    }
    const created = await apis.create(request.body);
    note(request, { apiId: created.apiId }, { after: about });
    return created;
  });

  app.post('/v1/apis.updateApi', { schema: updateApi }, async (request) => {
    const { apiId, ...patch } = request.body;
    requireApi(callerOf(request), apiId, 'update_api');
    const before = await apis.update(apiId, patch);
    if (before === undefined) throw apiNotFound(apiId);
    note(request, {}, { before, after: patch });
    return { apiId };
  });

  app.get('/v1/apis.getApi', { schema: getApi }, async (request) => {
    const { apiId } = request.query;
    requireApi(callerOf(request), apiId, 'read_api');
    const api = await apis.get(apiId);
    if (!api) throw apiNotFound(apiId);
    return seenBy(callerOf(request), api);
  });

  app.get('/v1/apis.listApis', { schema: listApis }, async (request) => {
    const { cursor } = request.query;
    const limit = Number(request.query.limit);
    const [after = ''] = cursor === undefined ? [] : openCursor(cursor, PLACE, 'listApis');
    // A caller who may read only some APIs causes no look at others: neither a cursor nor how long it takes nor
    // a page that is short then tells that they are there.
    const mine = callerOf(request).permissions.apisWith('read_api');
    const page = mine ? await apis.among(mine, after, limit) : await apis.list(after, limit);
    return {
      apis: page.apis.map((api) => seenBy(callerOf(request), api)),
      ...(page.next === undefined ? {} : { cursor: makeCursor(`after:${page.next}`) }),
    };
  });

  app.post('/v1/apis.deleteApi', { schema: deleteApi, config: neverShed }, async (request) => {
    const { apiId, waitMs } = request.body;
    requireApi(callerOf(request), apiId, 'delete_api');
    const write = { apiId, operation: 'api-deleted', keyId: '', fields: {} } as const;
    const propagation = await propagator.apply(write, waitMs, ({ sequence }) => {
      request.giveTurnBack?.();
      note(request, {}, { sequence });
    });
    if (!propagation) throw apiNotFound(apiId);
    return { propagation };
  });
}
