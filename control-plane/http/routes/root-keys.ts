import type { Clock } from '#shared/clock.ts';
import { ApiError } from '#shared/errors.ts';
import type { Permissions } from '../../core/permissions.ts';
import type { RootKeys } from '../../redis/root-keys.ts';
import { neverShed } from '../load-shedding.ts';
import { createRootKey, listRootKeys, updateRootKey } from '../operations/administration.ts';
import type { App } from '../server.ts';
import { note } from './audit-hooks.ts';
import { callerOf, requireRoot } from './authorization.ts';

/** The operations on root keys. Nobody can hand out, or decide over, more than they may do themselves. */
export function rootKeyRoutes(app: App, { rootKeys, clock }: { rootKeys: RootKeys; clock: Clock }) {
  app.post('/v1/rootKeys.createRootKey', { schema: createRootKey }, async (request) => {
    const caller = callerOf(request);
    requireRoot(caller, 'create_root_key');
    requireCovered(caller.permissions, request.body.permissions);
    const { name, permissions } = request.body;
    const created = await rootKeys.create(caller, name, permissions, clock.wallMs());
    note(request, { rootKeyId: created.rootKeyId }, { after: { name, permissions: shortened(permissions) } });
    return created;
  });

  app.post('/v1/rootKeys.updateRootKey', { schema: updateRootKey, config: neverShed }, async (request) => {
    const { rootKeyId, enabled } = request.body;
    const caller = callerOf(request);
    requireRoot(caller, 'update_root_key');
    const rootKey = await rootKeys.get(rootKeyId);
    if (!rootKey) throw new ApiError('NOT_FOUND', `root key ${rootKeyId} not found`);
    requireCovered(caller.permissions, rootKey.permissions);
    await rootKeys.setEnabled(rootKeyId, enabled);
    note(request, {}, { before: { enabled: rootKey.enabled }, after: { enabled } });
    return { rootKeyId, enabled };
  });

  app.get('/v1/rootKeys.listRootKeys', { schema: listRootKeys }, async (request) => {
    requireRoot(callerOf(request), 'read_root_key');
    return { rootKeys: await rootKeys.list() };
  });
}

const PERMISSIONS_SHOWN_MAX = 20;

const shortened = (permissions: readonly string[]) =>
  permissions.length <= PERMISSIONS_SHOWN_MAX
    ? permissions
    : [
        ...permissions.slice(0, PERMISSIONS_SHOWN_MAX),
        `and ${permissions.length - PERMISSIONS_SHOWN_MAX} more`,
      ];

function requireCovered(permissions: Permissions, wanted: readonly string[]): void {
  if (!permissions.covers(wanted)) {
    throw new ApiError('INSUFFICIENT_PERMISSIONS', 'the root key lacks some of these permissions itself');
  }
}
