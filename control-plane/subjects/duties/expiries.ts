import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { command, each, list } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import {
  apiKeys,
  expiryIndex,
  poolKey,
  poolMarks,
  recordKey,
  SHARED_LOG,
  unusedKeys,
} from '#shared/redis/redis-keys.ts';
import { type Run, send } from '#shared/redis/script.ts';
import type { Apis } from '../../core/apis/apis.ts';
import type { Notice, NoticeSink } from '../../core/ports.ts';
import type { Duty } from './duty.ts';

const DAY_MS = 86_400_000;
/** An expiry that is this long over when it is first seen is old news. */
const OLD_MS = 3 * DAY_MS;

/** A key whose next event is due. */
export interface DueKey {
  /** When the event was due, Unix milliseconds; 0 = the expiry was set and not looked at yet. */
  readonly dueMs: number;
  readonly expiresMs: number;
}

/** The event that is due, and when the next one is. */
interface DueEvent {
  /** Within how many days the key expires; 0 = it has expired; undefined = nothing is to be sent. */
  readonly days?: number;
  /** Unix milliseconds; undefined = never. */
  readonly nextMs?: number;
}

/**
 * Returns the event that is due about a key's expiry. If several leads have passed when an expiry is set, only the
 * shortest counts.
 * @param leads days before the expiry at which an event is sent
 */
export function dueEvent({ dueMs, expiresMs }: DueKey, leads: readonly number[], nowMs: number): DueEvent {
  const restMs = expiresMs - nowMs;
  if (restMs <= 0) return dueMs === 0 && restMs < -OLD_MS ? {} : { days: 0 };
  const passed = leads.filter((days) => restMs <= days * DAY_MS);
  const ahead = leads.filter((days) => restMs > days * DAY_MS);
  const nextMs = expiresMs - Math.max(0, ...ahead) * DAY_MS;
  return passed.length === 0 ? { nextMs } : { days: Math.min(...passed), nextMs };
}

const readDue = command(
  new URL('./read-due.lua', import.meta.url),
  ['head', 'expiries', 'marks', 'noted'],
  ['now', 'most', 'records', 'poolNames'],
  each(each(list)),
);
const scheduleExpiries = command(
  new URL('./schedule-expiries.lua', import.meta.url),
  ['expiries', 'marks'],
  ['records', 'keys', '...about'],
  Number,
);

/** Keys that one run of a script reads. */
const DUE_AT_ONCE = 200;

/** A key as events about it name it. */
export interface NamedKey {
  readonly keyId: string;
  readonly externalId?: string;
  readonly name?: string;
}

/** A key whose next event about its expiry is due. */
export interface ExpiringKey extends NamedKey, DueKey {}

/** A mark of a pool of credits that ran out, or of a pool or limit of which so much was used, with the keys that share it. */
export interface PoolMark {
  /** The id of the pool or limit; of a threshold that was passed, followed by a space and the threshold. */
  readonly name: string;
  /** When it was made, Unix milliseconds by the clock of Redis; and other numbers as exchange.lua writes them. */
  readonly value: string;
  readonly keys: readonly NamedKey[];
}

/** Everything in one API about which an event is due. */
export interface DueInApi {
  readonly keys: readonly ExpiringKey[];
  readonly marks: readonly PoolMark[];
  /** True if the API has rules for its keys that somebody must enforce. */
  readonly hasRules: boolean;
}

/** The index of keys by expiry, of each API in the API's own slot, and the marks of pools. */
export class DueKeys {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** Reads what is due; undefined if there is no such API. Its cost depends on what is due, not on all keys. */
  async read(apiId: string, nowMs: number): Promise<DueInApi | undefined> {
    const { head } = apiKeys(apiId);
    const run = readDue({
      ...{ head, expiries: expiryIndex(apiId), marks: poolMarks(apiId), noted: unusedKeys(apiId) },
      ...{ now: nowMs, most: DUE_AT_ONCE, records: recordKey(apiId, ''), poolNames: poolKey(apiId, '') },
    });
    const [due, marks, rules] = await this.#send(run);
    if (!due || !marks || !rules) return undefined;
    return {
      hasRules: rules.length > 0,
      keys: due.map(([keyId = '', dueMs, expires, externalId, name]) => ({
        ...namedKey([keyId, externalId, name]),
        ...{ dueMs: Number(dueMs), expiresMs: Number(expires) },
      })),
      marks: marks.map(([name = '', value = '', ...values]) => ({
        ...{ name, value },
        keys: Array.from({ length: values.length / 3 }, (_, i) => namedKey(values.slice(3 * i, 3 * i + 3))),
      })),
    };
  }

  /** Sets when the next event of each key is due, undefined = never, and forgets the marks. */
  async schedule(
    apiId: string,
    keys: readonly (ExpiringKey & { readonly nextMs: number | undefined })[],
    marks: readonly PoolMark[],
  ): Promise<void> {
    if (keys.length + marks.length === 0) return;
    const about = [
      ...keys.flatMap(({ keyId, dueMs, expiresMs, nextMs = '' }) => [keyId, dueMs, expiresMs || '', nextMs]),
      ...marks.flatMap(({ name, value }) => [name, value]),
    ];
    const places = {
      expiries: expiryIndex(apiId),
      marks: poolMarks(apiId),
      records: recordKey(apiId, ''),
    };
    await this.#send(scheduleExpiries({ ...places, keys: keys.length, about }));
  }

  #send<T>(run: Run<T>): Promise<T> {
    return this.#nodes.run(run.keys[0] ?? '', (redis) => send(redis, run));
  }
}

function namedKey([keyId = '', externalId = '', name = '']: readonly (string | undefined)[]): NamedKey {
  return { keyId, ...(externalId ? { externalId } : {}), ...(name ? { name } : {}) };
}

/** APIs that are visited in each period, so that any number of them costs no more. */
const VISITED_AT_ONCE = 200;
const PERIOD_MS = 1000;
/** Pages of due keys of one API in a row, before other APIs have their turn. */
const PAGES_MAX = 50;

interface DueWatchOptions {
  readonly apis: Pick<Apis, 'ids'>;
  readonly dueKeys: DueKeys;
  readonly notices: NoticeSink;
  /** Enforces the rules of an API for its keys. */
  readonly rules: { visit(apiId: string): Promise<void> };
  /** Days before the expiry of a key at which an event is sent. */
  readonly leads: readonly number[];
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Tells of keys that expire, and of credits and limits that are used up or nearly so, and disables keys that nobody uses.
 * Visits 200 APIs a second, and reads in each only the keys for which something is due.
 */
export class DueWatch implements Duty {
  readonly #options: DueWatchOptions;

  constructor(options: DueWatchOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { apis, clock, log } = this.#options;
    for (let after = ''; !signal.aborted; ) {
      try {
        const apiIds = await apis.ids(after, VISITED_AT_ONCE);
        after = apiIds.length === VISITED_AT_ONCE ? (apiIds.at(-1) ?? '') : '';
        // The shared log has what the keys of an identity share.
        for (const apiId of [SHARED_LOG, ...apiIds]) {
          if (signal.aborted) return;
          // In a Cluster, the node of one API may be away, and those of others not.
          await this.#visit(apiId, signal).catch((err: unknown) => {
            log.debug({ err, apiId }, 'cannot look for keys that expire');
          });
        }
      } catch (err) {
        log.debug({ err }, 'cannot list APIs to look for keys that expire');
      }
      await pause(clock, PERIOD_MS, signal);
    }
  }

  async #visit(apiId: string, signal: AbortSignal): Promise<void> {
    const { dueKeys, rules, clock } = this.#options;
    for (let pages = 0; pages < PAGES_MAX && !signal.aborted; pages++) {
      const due = await dueKeys.read(apiId, clock.wallMs());
      if (!due) return;
      const hasToldAll = await this.#tell(apiId, due);
      if (pages === 0 && due.hasRules) await rules.visit(apiId);
      if (due.keys.length < DUE_AT_ONCE || !hasToldAll) return;
    }
  }

  /** Returns false if there was no room for all notices; then the others stay due. */
  async #tell(apiId: string, { keys, marks }: DueInApi): Promise<boolean> {
    const { notices, dueKeys, leads, clock } = this.#options;
    const nowMs = clock.wallMs();
    const scheduled = keys.map((key) => {
      const { days, nextMs } = key.expiresMs > 0 ? dueEvent(key, leads, nowMs) : {};
      const { dueMs: _, expiresMs: expires, ...named } = key;
      const data = { apiId, ...named, expires, ...(days ? { days } : {}) };
      const type = days === 0 ? 'key.expired' : 'key.expiring';
      const time = days === 0 ? expires : nowMs;
      const mark = `${named.keyId}-${expires}-${days}`;
      return { key, nextMs, notice: days === undefined ? undefined : ({ type, time, data, mark } as const) };
    });
    const all = [
      ...scheduled.flatMap(({ notice }) => notice ?? []),
      ...marks.flatMap((mark) => noticesOfMark(apiId, mark)),
    ];
    if ((await notices.add(all)) < all.length) return false;
    const next = scheduled.map(({ key, nextMs }) => ({ ...key, nextMs }));
    await dueKeys.schedule(apiId, next, marks);
    return true;
  }
}

/** Returns the notice of a mark for each key that it concerns. */
function noticesOfMark(apiId: string, { name: markName, value, keys }: PoolMark) {
  const [id = '', threshold] = markName.split(' ');
  const [time = 0, whole = 0, remaining = 0, reset] = value.split(' ').map(Number);
  return keys.map((key): Notice & { readonly mark: string } => {
    const about = apiId === SHARED_LOG ? identityIn(key) : { apiId, ...key };
    const mark = `${key.keyId}-${markName}-${time}`;
    if (threshold === undefined) {
      const type = apiId === SHARED_LOG ? 'identity.credits_exhausted' : 'key.credits_exhausted';
      return { type, time, data: { ...about, exhaustedAt: time }, mark };
    }
    const passed = { ...about, threshold: Number(threshold), passedAt: time };
    if (reset === undefined)
      return { type: 'credits.low', time, data: { ...passed, credits: whole, remaining }, mark };
    const quota = { name: id.slice(id.lastIndexOf('.') + 1), limit: whole, remaining, reset };
    return { type: 'quota.low', time, data: { ...passed, quota }, mark };
  });
}

/** The record of an identity has the external id as its name. */
const identityIn = ({ keyId: identityId, name: externalId }: NamedKey) => ({ identityId, externalId });
