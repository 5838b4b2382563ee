import type { Audit } from '../../redis/audit.ts';
import { listEvents } from '../operations/administration.ts';
import type { App } from '../server.ts';
import { callerOf, requireRoot } from './authorization.ts';

/** The operation on the audit log: reading it. It is written by `audit-hooks.ts`. */
export function auditRoutes(app: App, { audit }: { audit: Audit }) {
  app.get('/v1/audit.listEvents', { schema: listEvents }, async (request) => {
    requireRoot(callerOf(request), 'read_audit');
    const { limit, cursor, refused, since, until, ...filter } = request.query;
    const kind = refused === 'true' ? 'refused' : 'done';
    const sinceMs = since === undefined ? undefined : Number(since);
    const untilMs = until === undefined ? undefined : Number(until);
    const { events, next } = await audit.list(kind, filter, Number(limit), cursor, sinceMs, untilMs);
    return { events, ...(next === undefined ? {} : { cursor: next }) };
  });
}
