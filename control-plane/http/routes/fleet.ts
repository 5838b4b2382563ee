import type { FleetView } from '../../redis/fleet.ts';
import { listVerifiers } from '../operations/administration.ts';
import type { App } from '../server.ts';
import { callerOf, requireRoot } from './authorization.ts';

/** The operation on verifiers: looking at them. */
export function fleetRoutes(app: App, { fleet }: { fleet: FleetView }) {
  app.get('/v1/fleet.listVerifiers', { schema: listVerifiers }, async (request) => {
    requireRoot(callerOf(request), 'read_fleet');
    const { limit, cursor } = request.query;
    const { verifiers, next } = await fleet.list(cursor ?? '', Number(limit));
    return { verifiers, ...(next === undefined ? {} : { cursor: next }) };
  });
}
