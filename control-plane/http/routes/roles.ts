import { ApiError } from '#shared/errors.ts';
import { storedFields } from '#shared/key-record.ts';
import { WORKSPACE } from '#shared/redis/redis-keys.ts';
import { shown } from '../../core/audit-event.ts';
import type { Propagator } from '../../core/propagation.ts';
import { slugsIn } from '../../core/slug-schemas.ts';
import type { Roles } from '../../redis/workspace/roles.ts';
import { neverShed } from '../load-shedding.ts';
import {
  createRole,
  deleteRole,
  getRole,
  getRolePropagation,
  listRoles,
  setRolePermissions,
} from '../operations/roles.ts';
import type { App } from '../server.ts';
import { note, recordChange } from './audit-hooks.ts';
import { callerOf, requireRoot } from './authorization.ts';

const roleNotFound = (roleId: string) => new ApiError('NOT_FOUND', `role ${roleId} not found`);

/** Operations on roles. */
export function roleRoutes(app: App, { roles, propagator }: { roles: Roles; propagator: Propagator }) {
  app.post('/v1/permissions.createRole', { schema: createRole }, async (request) => {
    requireRoot(callerOf(request), 'create_role');
    const { name, permissions: given = [], ...rest } = request.body;
    const permissions = slugsIn(given);
    const roleId = await roles.create({ name, ...rest, permissions });
    note(request, { roleId }, { after: shown(storedFields({ name, permissions })) });
    return { roleId };
  });

  app.get('/v1/permissions.getRole', { schema: getRole }, async (request) => {
    requireRoot(callerOf(request), 'read_role');
    const { roleId } = request.query;
    const role = await roles.get(roleId);
    if (!role) throw roleNotFound(roleId);
    return role;
  });

  app.get('/v1/permissions.listRoles', { schema: listRoles }, async (request) => {
    requireRoot(callerOf(request), 'read_role');
    return roles.list();
  });

  app.post(
    '/v1/permissions.setRolePermissions',
    { schema: setRolePermissions, config: neverShed },
    async (request) => {
      requireRoot(callerOf(request), 'update_role');
      const { roleId, permissions, waitMs } = request.body;
      const fields = storedFields({ permissions: slugsIn(permissions) });
      const write = { apiId: WORKSPACE, operation: 'update', keyId: roleId, fields } as const;
      const propagation = await propagator.apply(write, waitMs, recordChange(request, fields));
      if (!propagation) throw roleNotFound(roleId);
      return { propagation };
    },
  );

  app.post('/v1/permissions.deleteRole', { schema: deleteRole, config: neverShed }, async (request) => {
    requireRoot(callerOf(request), 'delete_role');
    const { roleId, waitMs } = request.body;
    const write = { apiId: WORKSPACE, operation: 'delete', keyId: roleId, fields: {} } as const;
    const propagation = await propagator.apply(write, waitMs, recordChange(request));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  });

  app.get('/v1/permissions.getRolePropagation', { schema: getRolePropagation }, async (request) => {
    requireRoot(callerOf(request), 'read_role');
    const { roleId, sequence } = request.query;
    const propagation = await propagator.status(WORKSPACE, roleId, Number(sequence));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  });
}
