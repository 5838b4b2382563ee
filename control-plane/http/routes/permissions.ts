import { ApiError, unavailable } from '#shared/errors.ts';
import { WORKSPACE } from '#shared/redis/redis-keys.ts';
import { SLUG } from '#shared/slugs.ts';
import type { Propagator } from '../../core/propagation.ts';
import type { Catalogue, CataloguedPermission } from '../../redis/workspace/permissions.ts';
import type { Roles } from '../../redis/workspace/roles.ts';
import { neverShed } from '../load-shedding.ts';
import {
  createPermission,
  deletePermission,
  getPermission,
  listPermissions,
} from '../operations/permissions.ts';
import type { App } from '../server.ts';
import { note, recordChange } from './audit-hooks.ts';
import { callerOf, requireRoot } from './authorization.ts';

/** Times that a permission is taken from roles which change meanwhile, before the caller is told. */
const TRIES = 20;

const notFound = (slug: string) => new ApiError('NOT_FOUND', `permission ${slug} not found`);
const shown = (permission: CataloguedPermission) => ({ id: permission.slug, ...permission });

/** Operations on the catalogue of permissions. */
export function permissionRoutes(
  app: App,
  { catalogue, roles, propagator }: { catalogue: Catalogue; roles: Roles; propagator: Propagator },
) {
  app.post('/v1/permissions.createPermission', { schema: createPermission }, async (request) => {
    requireRoot(callerOf(request), 'create_permission');
    const { name, slug = name, ...rest } = request.body;
    if (!SLUG.test(slug)) throw new ApiError('BAD_REQUEST', `name: without a slug must match ${SLUG.source}`);
    note(request, { permissionId: slug }, { after: { name, ...rest } });
    await catalogue.create({ slug, name, ...rest });
    return { permissionId: slug };
  });

  app.get('/v1/permissions.getPermission', { schema: getPermission }, async (request) => {
    requireRoot(callerOf(request), 'read_permission');
    const { permissionId: slug } = request.query;
    const permission = await catalogue.get(slug);
    if (!permission) throw notFound(slug);
    return shown(permission);
  });

  app.get('/v1/permissions.listPermissions', { schema: listPermissions }, async (request) => {
    requireRoot(callerOf(request), 'read_permission');
    return (await catalogue.list()).map(shown);
  });

  app.post(
    '/v1/permissions.deletePermission',
    { schema: deletePermission, config: neverShed },
    async (request) => {
      requireRoot(callerOf(request), 'delete_permission');
      const { permissionId: slug, waitMs } = request.body;
      const keyId = await catalogue.idOf(slug);
      if (!keyId) throw notFound(slug);
      note(request, { permissionId: slug });
      const leftMs = propagator.timeLeft(waitMs);
      const taken = await takeFromRoles(slug, leftMs);
      note(request, {}, { after: { roles: taken } });
      const write = { apiId: WORKSPACE, operation: 'delete', keyId, fields: {} } as const;
      const propagation = await propagator.apply(write, leftMs(), recordChange(request));
      if (!propagation) throw notFound(slug);
      return { propagation };
    },
  );

  /** @returns the ids of the roles that it was taken from */
  async function takeFromRoles(slug: string, leftMs: () => number | undefined): Promise<string[]> {
    const taken = new Set<string>();
    for (let tries = 0; tries < TRIES; tries++) {
      const [first, ...others] = await roles.without(slug);
      if (!first) return [...taken];
      const { applied, propagation } = await propagator.applyAll([first, ...others], leftMs());
      if (propagation?.state === 'pending')
        throw unavailable('verifiers may not know yet that roles lack it: send the call again');
      for (const each of applied) if ('sequence' in each) taken.add(each.keyId);
    }
    throw unavailable('roles change faster than the permission can be taken from them');
  }
}
