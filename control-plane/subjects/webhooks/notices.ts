import { command } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { noticeMark, noticeStream, webhookEndpoints } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import type { Notice, NoticeSink } from '../../core/ports.ts';
import { EVENT_TYPES } from '../../core/schema/event-types.ts';
import type { PendingEvent } from './events-of.ts';

const addNotices = command(
  new URL('./add-notices.lua', import.meta.url),
  ['endpoints', 'notices'],
  ['most', 'marks', '...added'],
  Number,
);

/** The maximum number of notices that wait for the sender. */
const NOTICES_MAX = 100_000;

/** The events for webhooks that no single call in the audit log stands for. */
export class Notices implements NoticeSink {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** Adds notices, unless there is no endpoint. */
  async add(notices: readonly (Notice & { readonly mark?: string })[]): Promise<number> {
    if (notices.length === 0) return 0;
    const added = notices.flatMap(({ mark = '', ...notice }) => [mark, JSON.stringify(notice)]);
    const about = {
      endpoints: webhookEndpoints,
      notices: noticeStream,
      most: NOTICES_MAX,
      marks: noticeMark(''),
    };
    return this.#nodes.run(noticeStream, (redis) => send(redis, addNotices({ ...about, added })));
  }
}

/** Returns the events of a stored notice; none if it is damaged. */
export function noticesOf(text: string): PendingEvent[] {
  try {
    const { keyIds, ...event } = JSON.parse(text) as Notice;
    if (!(event.type in EVENT_TYPES)) return [];
    return keyIds ? keyIds.map((keyId) => ({ ...event, data: { ...event.data, keyId } })) : [event];
  } catch {
    return [];
  }
}
