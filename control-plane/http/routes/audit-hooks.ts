import type { FastifyRequest } from 'fastify';
import { API_ID } from '#shared/api-id.ts';
import type { Clock } from '#shared/clock.ts';
import type { StoredFields } from '#shared/key-record.ts';
import {
  type AuditEvent,
  type AuditedEffect,
  type AuditKind,
  idAsSent,
  type Subject,
  shown,
} from '../../core/audit-event.ts';
import type { CreditsChange, Written } from '../../core/change-log.ts';
import type { Apis } from '../../redis/apis.ts';
import type { Audit } from '../../redis/audit.ts';
import { isChange } from '../reads.ts';
import { type App, namesOf } from '../server.ts';
import { Hidden } from './hidden.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Notes on the call, for the audit log. */
    auditNotes: AuditNotes;
    /** Records a call that has written its change, while it waits until that is complete. */
    recordWritten: () => void;
    /** Records keys that a call changed, or may have, after those of before; resolves when all of them are recorded. */
    recordKeys: (keys?: readonly AuditedKey[]) => Promise<void>;
  }
}

interface AuditNotes {
  readonly arrivedAt: number;
  /** Address of the caller, taken on arrival: after a hang-up the connection has none. */
  readonly address: string;
  /** True once the handler runs: from then on an outage leaves the outcome unknown. */
  letThrough: boolean;
  /** Settles when it is recorded as done, where it has written what it was asked for. */
  asWritten: Promise<void> | undefined;
  on: Subject;
  effect: AuditedEffect;
}

/** One of many keys that a call changes. */
export interface AuditedKey {
  readonly keyId: string;
  /** `SERVICE_UNAVAILABLE`: it may have been changed. */
  readonly outcome: 'OK' | 'SERVICE_UNAVAILABLE';
  readonly effect: AuditedEffect;
}

/**
 * Records every management call that changes something, or tries to, and every call that was refused for want of
 * permission, or to a caller who was not told whether that was why. The answer waits for it, so that who has an answer finds it listed. Not recorded: what somebody with
 * the permission merely read, calls over a rate limit, and those that met an outage before they did anything. Recorded again:
 * those that had written, and could not end well.
 */
export function recordCalls(app: App, audit: Audit, apis: Pick<Apis, 'isKnown'>, clock: Clock): void {
  app.decorateRequest('auditNotes');
  app.decorateRequest('recordWritten');
  app.decorateRequest('recordKeys');
  const eventOf = (
    request: FastifyRequest,
    outcome: AuditEvent['outcome'],
    on: Subject,
    effect: AuditedEffect,
  ) => ({
    time: request.auditNotes.arrivedAt,
    ...namesOf(request),
    operation: operationOf(request),
    outcome,
    by: {
      ...(request.caller ? { rootKeyId: request.caller.rootKeyId } : {}),
      address: request.auditNotes.address,
    },
    on,
    ...effect,
  });
  app.addHook('onRequest', (request, _reply, done) => {
    const address = request.ip ?? 'unknown';
    const fresh = { letThrough: false, asWritten: undefined, on: {}, effect: {} };
    request.auditNotes = { arrivedAt: clock.wallMs(), address, ...fresh };
    request.recordWritten = () => {
      const { on, effect } = request.auditNotes;
      request.auditNotes.asWritten = audit.record(
        'done',
        eventOf(request, 'OK', { ...asked(request, written), ...on }, effect),
      );
    };
    let recorded = Promise.resolve();
    request.recordKeys = (keys = []) => {
      if (keys.length === 0) return recorded;
      const { apiId } = { ...asked(request, written), ...request.auditNotes.on };
      const events = keys.map(({ keyId, outcome, effect }) =>
        eventOf(request, outcome, { ...(apiId === undefined ? {} : { apiId }), keyId }, effect),
      );
      recorded = recorded.then(() => audit.recordAll('done', events));
      return recorded;
    };
    done();
  });
  app.addHook('preHandler', (request, _reply, done) => {
    request.auditNotes.letThrough = true;
    done();
  });
  app.addHook('onSend', async (request, _reply, payload) => {
    const kind = kindOf(request);
    if (kind !== undefined) {
      const { asWritten, on, effect } = request.auditNotes;
      const outcome = outcomeOf(request);
      await request.recordKeys();
      await asWritten;
      if (asWritten === undefined || outcome !== 'OK') {
        const isApi = kind === 'done' ? written : await apiCheck(request, apis);
        await audit.record(kind, eventOf(request, outcome, { ...asked(request, isApi), ...on }, effect));
      }
    }
    return payload;
  });
}

/** Adds to what is known of a call. */
export function note(request: FastifyRequest, on: Subject, effect: AuditedEffect = {}): void {
  request.auditNotes.on = { ...request.auditNotes.on, ...on };
  request.auditNotes.effect = { ...request.auditNotes.effect, ...effect };
}

/** For a change of a key that was written: gives the turn back, and records what was before, and what is now; nothing where it was deleted. */
export function recordChange(request: FastifyRequest, fields?: StoredFields, credits?: CreditsChange) {
  return (written: Pick<Written, 'sequence' | 'before'>) => {
    request.giveTurnBack?.();
    const effect = effectOf(written, fields);
    note(request, {}, credits ? { ...effect, after: { ...effect.after, credits } } : effect);
    request.recordWritten();
  };
}

/** The fields of a key before a change and after it; none after it where it was deleted. */
export function effectOf(
  { sequence, before }: Pick<Written, 'sequence' | 'before'>,
  fields?: StoredFields,
): AuditedEffect {
  const changed = Object.entries(before ?? {}).filter(([field]) => fields === undefined || field in fields);
  const after = fields === undefined ? {} : { after: shown(fields) };
  return { sequence, before: shown(Object.fromEntries(changed)), ...after };
}

/** Of a call that did something, or may have: it did it to that API. */
const written = () => true;

/** Of a call that was refused. Where Redis does not say whether there is such an API, there is none. */
async function apiCheck({ body, query }: FastifyRequest, apis: Pick<Apis, 'isKnown'>) {
  const { apiId } = Object(body ?? query) as { apiId?: unknown };
  const isOne =
    typeof apiId === 'string' && API_ID.test(apiId) && (await apis.isKnown(apiId).catch(() => false));
  return () => isOne;
}

const PREFIX = '/v1/';
const operationOf = (request: FastifyRequest) => (request.routeOptions.url ?? '').slice(PREFIX.length);

function outcomeOf({ failure }: FastifyRequest) {
  if (failure instanceof Hidden) return failure.outcome;
  return failure?.code ?? 'OK';
}

/** undefined = not to be recorded. */
function kindOf(request: FastifyRequest): AuditKind | undefined {
  if (request.is404 || !request.routeOptions.url?.startsWith(PREFIX)) return undefined;
  const outcome = outcomeOf(request);
  const changes = isChange(request);
  if (request.failure instanceof Hidden) return 'refused';
  switch (outcome) {
    case 'OK':
      return changes ? 'done' : undefined;
    case 'RATE_LIMITED':
      return undefined;
    case 'SERVICE_UNAVAILABLE':
    case 'INTERNAL_SERVER_ERROR':
      return changes && request.auditNotes.letThrough ? 'done' : undefined;
    case 'UNAUTHORIZED':
    case 'INSUFFICIENT_PERMISSIONS':
      return 'refused';
    default:
      return changes ? 'refused' : undefined;
  }
}

/**
 * The ids that the caller sent, which may not have been judged yet.
 * @param isApi tells whether there is an API of this id
 */
function asked({ body, query }: FastifyRequest, isApi: (apiId: string) => boolean): Subject {
  const sent = Object(body ?? query) as Record<string, unknown>;
  const ids = (['apiId', 'keyId', 'rootKeyId', 'roleId', 'identityId'] as const).flatMap((name) => {
    const id = sent[name];
    if (typeof id !== 'string') return [];
    return [[name, name === 'apiId' && isApi(id) ? id : idAsSent(id)]];
  });
  return Object.fromEntries(ids) as Subject;
}
