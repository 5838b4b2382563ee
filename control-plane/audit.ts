import { createHash } from 'node:crypto';
import type { ErrorCode } from '#shared/errors.ts';
import { auditStream } from '#shared/layout.ts';
import type { Logger } from '#shared/log.ts';
import type { RedisNodes } from '#shared/redis.ts';
import type { RecordField } from './change-log.ts';

/** Whether a call did something, or may have; or was refused. */
export type AuditKind = 'done' | 'refused';

/** What an event is about; each where it is known. */
export interface Subject {
  readonly apiId?: string;
  readonly keyId?: string;
  readonly rootKeyId?: string;
}

/** What a call changed, as `shown` shows it. */
export interface Effect {
  readonly before?: object;
  readonly after?: object;
  /** Of the change in its API's log. */
  readonly sequence?: number;
}

/** One management call. Holds no key, no hash and no meta. */
export interface AuditEvent extends Effect {
  /** When the call arrived, Unix milliseconds. */
  readonly time: number;
  readonly requestId: string;
  readonly operation: string;
  readonly outcome: 'OK' | ErrorCode;
  readonly by: { readonly rootKeyId?: string; readonly address: string };
  readonly on: Subject;
}

/** An event as it is listed; ids sort by when events were recorded. */
export type ListedEvent = AuditEvent & { readonly id: string };

/** Which events a listing is to show; all conditions must hold. */
export interface AuditFilter {
  readonly operation?: string;
  readonly apiId?: string;
  readonly keyId?: string;
  /** Who called. */
  readonly rootKeyId?: string;
}

/** Most events that one page examines. */
const EXAMINED_MAX = 1000;
const BATCH = 200;

/** The audit log: two streams in Redis that keep the latest events each, and the process's log. */
export class Audit {
  readonly #nodes: RedisNodes;
  readonly #limits: Readonly<Record<AuditKind, number>>;
  readonly #counted: (kind: AuditKind, result: 'written' | 'lost') => void;
  readonly #log: Logger;

  /** @param options.limits events that each stream keeps at least */
  constructor(options: {
    nodes: RedisNodes;
    limits: Readonly<Record<AuditKind, number>>;
    counted: (kind: AuditKind, result: 'written' | 'lost') => void;
    log: Logger;
  }) {
    this.#nodes = options.nodes;
    this.#limits = options.limits;
    this.#counted = options.counted;
    this.#log = options.log;
  }

  /**
   * Records an event, and never rejects: what has been done is done, whether or not it can be written down.
   * An event that Redis does not take is counted as lost, and stands in the process's log like every other.
   */
  async record(kind: AuditKind, event: AuditEvent): Promise<void> {
    const stream = auditStream(kind);
    this.#log.info({ audit: event }, `audit: ${kind}`);
    try {
      const redis = await this.#nodes.connection(stream);
      const limit = ['MAXLEN', '~', this.#limits[kind]] as const;
      await this.#nodes.within(redis, redis.xadd(stream, ...limit, '*', 'e', JSON.stringify(event)));
      this.#counted(kind, 'written');
    } catch (error) {
      this.#counted(kind, 'lost');
      this.#log.error({ requestId: event.requestId, err: error }, 'an audit event is in this log only');
    }
  }

  /**
   * One page of events, the latest first. Examines at most EXAMINED_MAX, so that a page may be short and still
   * have a `next`.
   * @param before the id of the event to go on before
   * @param sinceMs Unix milliseconds; older events are left out
   */
  async list(
    kind: AuditKind,
    filter: AuditFilter,
    limit: number,
    before?: string,
    sinceMs?: number,
  ): Promise<{ events: ListedEvent[]; next?: string }> {
    const stream = auditStream(kind);
    const redis = await this.#nodes.connection(stream);
    const oldest = sinceMs === undefined ? '-' : sinceMs;
    const events: ListedEvent[] = [];
    let next = before ?? '';
    for (let examined = 0; examined < EXAMINED_MAX; examined += BATCH) {
      const newest = next === '' ? '+' : `(${next}`;
      const range = redis.xrevrange(stream, newest, oldest, 'COUNT', BATCH + 1);
      const batch = await this.#nodes.within(redis, range);
      for (const [i, [id, fields]] of batch.slice(0, BATCH).entries()) {
        next = id;
        const event = { id, ...(JSON.parse(fields[1] ?? '') as AuditEvent) };
        if (matches(event, filter)) events.push(event);
        if (events.length === limit) return { events, ...(i + 1 < batch.length ? { next } : {}) };
      }
      if (batch.length <= BATCH) return { events };
    }
    return { events, next };
  }
}

/** Fields of a key's record as the audit log shows them: of meta only its length and a hash to compare it by. */
export function shown(fields: Partial<Record<RecordField, string>>): object {
  const { e, x, n, o, m } = fields;
  return {
    ...(e === undefined ? {} : { enabled: e === '1' }),
    ...(x === undefined ? {} : { expires: x === '' ? null : Number(x) }),
    ...(n === undefined ? {} : { name: n || null }),
    ...(o === undefined ? {} : { externalId: o || null }),
    ...(m === undefined ? {} : { meta: summaryOf(m || '{}') }),
  };
}

function summaryOf(text: string): object {
  const sha256 = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return { bytes: Buffer.byteLength(text), sha256 };
}

function matches({ operation, by, on }: AuditEvent, filter: AuditFilter): boolean {
  return (
    (filter.operation === undefined || filter.operation === operation) &&
    (filter.apiId === undefined || filter.apiId === on.apiId) &&
    (filter.keyId === undefined || filter.keyId === on.keyId) &&
    (filter.rootKeyId === undefined || filter.rootKeyId === by.rootKeyId)
  );
}
