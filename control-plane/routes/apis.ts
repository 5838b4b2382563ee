import { ApiError } from '#shared/errors.ts';
import type { Api, Apis } from '../apis.ts';
import type { Propagator } from '../propagation.ts';
import { neverShed } from '../protection.ts';
import type { App } from '../server.ts';
import { callerOf, requireApi } from './access.ts';
import { createApi, deleteApi, getApi, listApis } from './operations.ts';
import { note } from './trail.ts';

const apiNotFound = (apiId: string) => new ApiError('NOT_FOUND', `api ${apiId} not found`);

/** The operations on APIs. */
export function apiRoutes(app: App, { apis, propagator }: { apis: Apis; propagator: Propagator }) {
  app.post('/v1/apis.createApi', { schema: createApi }, async (request) => {
    const { name, apiId } = request.body;
    const { permissions } = callerOf(request);
    if (!permissions.allows(apiId ?? '*', 'create_api')) {
      throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key needs api.${apiId ?? '*'}.create_api`);
    }
    const created = await apis.create(name, apiId);
    note(request, { apiId: created.apiId }, { after: { name } });
    return created;
  });

  app.get('/v1/apis.getApi', { schema: getApi }, async (request) => {
    const { apiId } = request.query;
    requireApi(callerOf(request), apiId, 'read_api');
    const api = await apis.get(apiId);
    if (!api) throw apiNotFound(apiId);
    return api;
  });

  app.get('/v1/apis.listApis', { schema: listApis }, async (request) => {
    const limit = Number(request.query.limit);
    const { permissions } = callerOf(request);
    const ids = await apis.ids(request.query.cursor ?? '', limit + 1);
    const page = ids.slice(0, limit);
    const mine = page.filter((apiId) => permissions.allows(apiId, 'read_api'));
    const found: Api[] = (await Promise.all(mine.map((apiId) => apis.get(apiId)))).filter(
      (api) => api !== undefined,
    );
    const cursor = ids.length > limit ? page.at(-1) : undefined;
    return { apis: found, ...(cursor === undefined ? {} : { cursor }) };
  });

  app.post('/v1/apis.deleteApi', { schema: deleteApi, config: neverShed }, async (request) => {
    const { apiId, waitMs } = request.body;
    requireApi(callerOf(request), apiId, 'delete_api');
    const write = { apiId, operation: 'api-deleted', keyId: '', fields: {} } as const;
    const propagation = await propagator.apply(write, waitMs, ({ sequence }) =>
      note(request, {}, { sequence }),
    );
    if (!propagation) throw apiNotFound(apiId);
    return { propagation };
  });
}
