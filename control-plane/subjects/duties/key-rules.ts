import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { LIMITS } from '#shared/protocol/log/change-log.ts';
import { disableUnused } from '#shared/protocol/log/disable-unused.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { command, row, unlessEmpty } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, metaKey, recordKey, SHARED_LOG, unusedKeys } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import type { NoticeSink } from '../../core/ports.ts';
import type { AuditEvent } from '../../core/schema/audit-event.ts';
import { DISABLE_UNUSED } from '../../core/schema/event-types.ts';
import type { Audit } from '../audit/audit.ts';
import type { WatchedFleet } from './fleet-watch.ts';

const surveyKeys = command(
  new URL('./survey-keys.lua', import.meta.url),
  ['head', 'index', 'unused'],
  ['base', 'from', 'count', 'limit', 'now', 'lead', 'forgotten'],
  unlessEmpty(row('rule', 'next', 'count#', 'noted[]', '...rows[]')),
);
const DAY_MS = 86_400_000;
/** Keys that one run of the script examines. */
const SURVEYED_AT_ONCE = 200;
/** A key is told of so long before it is disabled, or a quarter of the rule's time if that is shorter. */
const LEAD_MS = 7 * DAY_MS;
/** Usage that no round has seen for so long may be forgotten; add-usage.lua keeps it for 32 days. */
const FORGOTTEN_MS = 20 * DAY_MS;
const ROUND_MS_MAX = 3_600_000;

/** A round through the keys of an API. */
interface Round {
  /** The creation number at which the next page begins; '' = with the first key. */
  readonly from: string;
  /** Number of keys so far that live longer than the API allows. */
  readonly count: number;
  /** Monotonic milliseconds. */
  readonly dueMs: number;
}

interface KeyRulesOptions {
  readonly nodes: RedisNodes;
  readonly writer: DurableWriter;
  readonly audit: Pick<Audit, 'list' | 'recordAll' | 'waiting'>;
  readonly notices: NoticeSink;
  readonly fleet: Pick<WatchedFleet, 'usageExtent'>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Is told of keys that were disabled. */
  readonly onDisabled: (keys: number) => void;
}

/**
 * Keeps to the rules of APIs for their keys: disables keys that nobody uses, tells of them before, and counts keys that live
 * longer than is allowed. Goes through the keys of an API again and again, 200 in a visit.
 */
export class KeyRules {
  readonly #options: KeyRulesOptions;
  readonly #rounds = new Map<string, Round>();

  constructor(options: KeyRulesOptions) {
    this.#options = options;
  }

  /** Examines the next keys of an API that has rules. */
  async visit(apiId: string): Promise<void> {
    const { nodes, clock } = this.#options;
    const { from, count, dueMs } = this.#rounds.get(apiId) ?? { from: '', count: 0, dueMs: 0 };
    if (clock.monotonicMs() < dueMs) return;
    const { head, index, base } = apiKeys(apiId);
    const run = surveyKeys({
      ...{ head, index, base, unused: unusedKeys(apiId), from, count, limit: SURVEYED_AT_ONCE },
      ...{ now: clock.wallMs(), lead: LEAD_MS, forgotten: FORGOTTEN_MS },
    });
    const page = await nodes.run(head, (redis) => send(redis, run));
    if (page === undefined) {
      this.#rounds.delete(apiId);
      return;
    }
    const ruleMs = Number(page.rule);
    if (await this.#record(apiId, page.noted)) await this.#act(apiId, ruleMs, page.rows);
    const isOver = page.next === '';
    const pauseMs = isOver ? Math.min(ROUND_MS_MAX, (ruleMs || Number.POSITIVE_INFINITY) / 100) : 0;
    this.#rounds.set(apiId, {
      ...{ from: page.next, count: isOver ? 0 : page.count },
      dueMs: clock.monotonicMs() + pauseMs,
    });
  }

  /** Disables the unused keys whose time is over, and tells of the others. */
  async #act(apiId: string, ruleMs: number, rows: readonly (readonly string[])[]): Promise<void> {
    if (rows.length === 0) return;
    const { fleet, notices, clock, log, onDisabled } = this.#options;
    const { untilMs, lostMs } = await fleet.usageExtent();
    const nowMs = clock.wallMs();
    const disabled: string[] = [];
    const notes = [];
    for (const [keyId = '', last = '', externalId, name] of rows) {
      // Who was not heard may have been used when usage was lost.
      const stoppedMs = externalId ? await this.#stoppedUntil(externalId) : 0;
      const disablesAt = Math.max(Number(last), lostMs, stoppedMs) + ruleMs;
      if (disablesAt <= untilMs) {
        if (await this.#disable(apiId, keyId, ruleMs, last)) disabled.push(keyId);
      } else if (disablesAt <= nowMs + Math.min(LEAD_MS, ruleMs / 4)) {
        const named = { ...(externalId ? { externalId } : {}), ...(name ? { name } : {}) };
        const data = { apiId, keyId, ...named, disablesAt };
        notes.push({ type: 'key.unused', time: nowMs, data, mark: `${keyId}-unused-${disablesAt}` } as const);
      }
    }
    await notices.add(notes);
    if (disabled.length === 0) return;
    onDisabled(disabled.length);
    log.info({ apiId, keyIds: disabled }, 'keys that nobody used were disabled');
    const { head } = apiKeys(apiId);
    const noted = await this.#options.nodes.run(head, (redis) => redis.hgetall(unusedKeys(apiId)));
    await this.#record(apiId, Object.entries(noted).flat());
  }

  /** Returns until when nobody could use an identity's keys, Unix ms: its last change; Infinity while it is disabled. */
  async #stoppedUntil(externalId: string): Promise<number> {
    const record = recordKey(SHARED_LOG, identityIdOf(externalId));
    const [enabled, changed] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, 'e', 'u'),
    );
    return enabled === '0' ? Number.POSITIVE_INFINITY : Number(changed ?? 0);
  }

  async #disable(apiId: string, keyId: string, ruleMs: number, last: string): Promise<boolean> {
    const { writer, clock } = this.#options;
    const { head, log, index, members, channel, base } = apiKeys(apiId);
    const run = disableUnused({
      ...{ head, log, index, members, channel, base, keyId, rule: ruleMs, last, now: clock.wallMs() },
      ...{ record: recordKey(apiId, keyId), long: metaKey(apiId, keyId), unused: unusedKeys(apiId) },
      ...{ maxlen: LIMITS.logEntries, longest: LIMITS.payloadBytesMax },
    });
    return (await writer.send(run)).reply.status === 'OK';
  }

  /**
   * Records the disabled keys that are noted, and forgets the notes. A kill in between leaves them, so each is recorded once:
   * the audit log is asked first.
   * @param noted ids, each followed by the sequence, the time and the last use of its disable, and the rule
   * @returns false if the audit log does not take them now
   */
  async #record(apiId: string, noted: readonly string[]): Promise<boolean> {
    const { audit, nodes } = this.#options;
    const { head } = apiKeys(apiId);
    for (let i = 0; i < noted.length; i += 2) {
      const [keyId = '', about = ''] = noted.slice(i, i + 2);
      const [sequence, time, lastUse, disableUnusedAfterMs] = about.split(' ').map(Number);
      if (audit.waiting > 0) return false;
      const { events } = await audit.list('done', { keyId, operation: DISABLE_UNUSED }, 1);
      if (events[0]?.sequence !== sequence) {
        const event: AuditEvent = {
          ...{ time: time ?? 0, requestId: randomUUID(), operation: DISABLE_UNUSED, outcome: 'OK' },
          ...{ by: { address: 'keyfence' }, on: { apiId, keyId }, before: { enabled: true } },
          after: { enabled: false, unused: { lastUse, disableUnusedAfterMs } },
          ...(sequence === undefined ? {} : { sequence }),
        };
        await audit.recordAll('done', [event]);
        if (audit.waiting > 0) return false;
      }
      await nodes.run(head, (redis) => redis.hdel(unusedKeys(apiId), keyId));
    }
    return true;
  }
}
