import type { FastifyRequest } from 'fastify';
import type { Clock } from '#shared/lang/clock.ts';
import type { AuditKind } from '../core/audit-event.ts';
import type { Apis } from '../redis/apis.ts';
import type { Audit } from '../redis/audit.ts';
import { namesOf } from './error-answers.ts';
import { Call } from './operations/call.ts';
import { MaskedNotFound } from './operations/masked-not-found.ts';
import { isChange } from './operations/operation.ts';
import type { App } from './server.ts';

/**
 * Makes a `Call` of every request to an operation, and records calls in the audit log before they are
 * answered, so that a caller with an answer finds the call listed. Recorded are changes, attempted changes,
 * calls refused for lack of a permission, and calls whose NOT_FOUND may hide such a refusal. Not recorded are
 * permitted reads, calls over a rate limit, and calls that an outage ended before they did anything. A call
 * that wrote something and then failed is recorded twice.
 */
export function recordCalls(app: App, audit: Audit, apis: Pick<Apis, 'isKnown'>, clock: Clock): void {
  app.decorateRequest('call', undefined);
  app.addHook('onRequest', (request, _reply, done) => {
    // Use the route: in the URL as it was sent, any letter may be escaped.
    const { operation } = request.routeOptions.config;
    if (operation && !request.is404) {
      const address = request.ip ?? 'unknown';
      const arrival = { time: clock.wallMs(), ...namesOf(request), operation: operation.name, address };
      request.call = new Call(arrival, request.query, { audit, apis, log: request.log }, operation);
    }
    done();
  });
  app.addHook('preValidation', (request, _reply, done) => {
    takeBody(request);
    done();
  });
  app.addHook('preHandler', ({ call }, _reply, done) => {
    if (call) call.isLetThrough = true;
    done();
  });
  app.addHook('onSend', async (request, _reply, payload) => {
    const kind = kindOf(request);
    if (!request.call?.isLetThrough) takeBody(request); // the request may have been refused before validation
    if (kind !== undefined) await request.call?.recordEnd(kind, outcomeOf(request));
    return payload;
  });
}

function takeBody({ call, body }: FastifyRequest): void {
  if (call) call.request = body ?? call.request;
}

function outcomeOf({ failure }: FastifyRequest) {
  if (failure instanceof MaskedNotFound) return failure.outcome;
  return failure?.code ?? 'OK';
}

/** Returns the kind of event for a request; undefined = do not record it. */
function kindOf(request: FastifyRequest): AuditKind | undefined {
  const { operation } = request.routeOptions.config;
  if (!operation || !request.call) return undefined;
  if (request.failure instanceof MaskedNotFound) return 'refused';
  const changes = isChange(operation);
  switch (outcomeOf(request)) {
    case 'OK':
      return changes ? 'done' : undefined;
    case 'RATE_LIMITED':
      return undefined;
    case 'SERVICE_UNAVAILABLE':
    case 'INTERNAL_SERVER_ERROR':
      return changes && request.call.isLetThrough ? 'done' : undefined;
    case 'UNAUTHORIZED':
    case 'INSUFFICIENT_PERMISSIONS':
      return 'refused';
    default:
      return changes ? 'refused' : undefined;
  }
}
