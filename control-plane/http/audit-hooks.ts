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
 * Makes a `Call` of every request to an operation, and records those that change something, or try to, and those that were refused for want of
 * permission, or to a caller who was not told whether that was why. The answer waits for it, so that who has an answer finds it listed. Not recorded: what somebody with
 * the permission merely read, calls over a rate limit, and those that met an outage before they did anything. Recorded again:
 * those that had written, and could not end well.
 */
export function recordCalls(app: App, audit: Audit, apis: Pick<Apis, 'isKnown'>, clock: Clock): void {
  app.decorateRequest('call', undefined);
  app.addHook('onRequest', (request, _reply, done) => {
    // By the route: in the URL that was sent any letter may be escaped.
    const { operation } = request.routeOptions.config;
    if (operation && !request.is404) {
      const address = request.ip ?? 'unknown';
      const arrival = { time: clock.wallMs(), ...namesOf(request), operation: operation.name, address };
      request.call = new Call(arrival, request.query, { audit, apis, log: request.log });
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
    if (!request.call?.isLetThrough) takeBody(request); // it may have been refused before validation
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

/** undefined = not to be recorded. */
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
