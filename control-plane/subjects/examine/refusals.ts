import { KEY_FIELDS } from '#shared/protocol/records/key-record.ts';
import { leftInWords } from '#shared/protocol/records/limit.ts';
import {
  REFUSALS_KEPT,
  type RefusalCause,
  type RefusalRecord,
  type RefusedQuestion,
} from '#shared/protocol/records/refusal-records.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import {
  latestRefusalsKey,
  recordKey,
  refusalsKey,
  refusedKeysKey,
  refusedRequestsKey,
} from '#shared/redis/redis-keys.ts';
import { factsIn } from '#shared/rules/presenter.ts';

/** Rules that the code of a verdict does not tell. */
const REASONS = ['address', 'api', 'identity', 'origin'] as const;

/** A refusal of a key, as its verifier reported it. */
export interface ReportedRefusal extends RefusalCause, ReturnType<typeof factsIn> {
  /** By the verifier's clock, Unix milliseconds. */
  readonly time: number;
  readonly code: string;
  readonly reason?: (typeof REASONS)[number];
  /** Text for people: what decided, with the numbers. */
  readonly detail: string;
  /** The question, as `keys.explain` takes it; absent = unknown. */
  readonly question?: RefusedQuestion & ReturnType<typeof factsIn>;
  readonly requestId?: string;
  /** Id of the verifier in the fleet's list. */
  readonly verifierId: string;
  /** Method and path of the client's request. */
  readonly route?: string;
}

/** A refusal with its key. */
interface RefusalOfKey extends ReportedRefusal {
  readonly keyId: string;
  readonly name?: string;
  /** First characters of the secret; absent = the key is deleted, or they are unknown. */
  readonly start?: string;
}

/** Times beyond what a date can be are told as numbers. */
export function timeText(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}

/** The latest refusals of keys, as verifiers reported them. */
export class RefusalView {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** The latest refusals of a key, the latest first. */
  async list(apiId: string, keyId: string): Promise<ReportedRefusal[]> {
    const name = refusalsKey(apiId, keyId);
    const fields = await this.#nodes.run(name, (redis) => redis.hgetall(name));
    const refusals = Object.entries(fields).flatMap(([slot, text]) =>
      slot === '#' ? [] : refusalIn(text.slice(text.indexOf(' ') + 1)),
    );
    // A report that was repeated has the same refusals again.
    const distinct = new Map(refusals.map((refusal) => [JSON.stringify(refusal), refusal]));
    return [...distinct.values()].sort((a, b) => b.time - a.time);
  }

  /** The ids of the keys of an API that were refused and whose refusals are kept, in no order. */
  async keyIds(apiId: string): Promise<string[]> {
    const name = refusedKeysKey(apiId);
    const fields = await this.#nodes.run(name, (redis) => redis.hgetall(name));
    return Object.entries(fields).flatMap(([slot, keyId]) => (/^\d+$/.test(slot) ? [keyId] : []));
  }

  /**
   * Up to `limit` refusals of an API that come after the one with this number in the order of the reports, or if there is
   * none with it yet the latest, the oldest first.
   */
  async listOfApi(
    apiId: string,
    limit: number,
    after: number,
  ): Promise<{
    readonly refusals: readonly RefusalOfKey[];
    /** Number of the last of them. */
    readonly last: number;
    /** Refusals after the given number that are not kept any more. */
    readonly missed: number;
  }> {
    const name = latestRefusalsKey(apiId);
    const latest = Number(await this.#nodes.run(name, (redis) => redis.hget(name, '#')));
    // A number that was never given is of a time before Redis forgot.
    const from = after > latest ? Math.max(0, latest - limit) : after;
    const first = Math.max(from, latest - REFUSALS_KEPT.ofApi) + 1;
    const last = Math.min(first + limit - 1, latest);
    if (last < first) return { refusals: [], last, missed: 0 };
    const numbers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const slots = numbers.map((number) => String(number % REFUSALS_KEPT.ofApi));
    const texts = await this.#nodes.run(name, (redis) => redis.hmget(name, ...slots));
    const kept = numbers.flatMap((number, i) => {
      // A later one may have taken its place by now.
      const [, of, keyId = '', text = ''] = /^(\d+) (\S+) (.*)$/s.exec(texts[i] ?? '') ?? [];
      return Number(of) === number ? refusalIn(text).map((refusal) => ({ keyId, ...refusal })) : [];
    });
    const keys = await this.#labelsOf(apiId, new Set(kept.map(({ keyId }) => keyId)));
    const refusals = kept.map((refusal) => ({ ...refusal, ...keys.get(refusal.keyId) }));
    return { refusals, last, missed: last - from - refusals.length };
  }

  /** The names and the customers of keys, and the starts of their secrets. */
  async #labelsOf(apiId: string, keyIds: ReadonlySet<string>) {
    const rows = await this.#nodes.run(recordKey(apiId, ''), (redis) =>
      Promise.all(
        Array.from(keyIds, async (keyId) => {
          const letters = [KEY_FIELDS.name.letter, KEY_FIELDS.externalId.letter, 's'];
          const [name, externalId, start] = await redis.hmget(recordKey(apiId, keyId), ...letters);
          return [
            keyId,
            { ...(name && { name }), ...(externalId && { externalId }), ...(start && { start }) },
          ] as const;
        }),
      ),
    );
    return new Map(rows);
  }

  /** The key that a refused request of this API asked about; undefined = none is known. */
  async keyOf(apiId: string, requestId: string): Promise<string | undefined> {
    const name = refusedRequestsKey(apiId);
    return (await this.#nodes.run(name, (redis) => redis.hget(name, requestId))) ?? undefined;
  }
}

/** Reads the JSON of what `report-refusals.lua` wrote; nothing if it is damaged. */
function refusalIn(text: string): ReportedRefusal[] {
  try {
    const record = JSON.parse(text) as RefusalRecord;
    const { t, c, w, r, v, p, q, d } = record;
    const reason = REASONS.find((each) => each === w);
    const client = factsIn(record);
    return [
      {
        ...{ time: t, code: c },
        ...(reason ? { reason } : {}),
        detail: detailOf(record),
        ...d,
        ...(q ? { question: { ...q, ...client } } : {}),
        ...(r === '' ? {} : { requestId: r }),
        verifierId: v,
        ...client,
        ...(p === undefined ? {} : { route: p }),
      },
    ];
  } catch {
    return [];
  }
}

function detailOf({
  c,
  w,
  a = 'an unknown address',
  o = 'an unknown origin',
  q,
  d = {},
}: RefusalRecord): string {
  const { missingPermissions, ratelimit: limit, concurrency, credits, expires, externalId } = d;
  if (missingPermissions) return `lacks ${missingPermissions.join(', ')}`;
  if (limit) return `${limit.name}: ${leftInWords(limit, limit.remaining)}, takes ${limit.cost}`;
  if (concurrency) return `${concurrency.name}: ${concurrency.limit} were running`;
  if (credits) return `${credits.remaining} credits left, takes ${credits.cost}`;
  if (expires !== undefined) return `expired at ${timeText(expires)}`;
  if (externalId !== undefined) return `${externalId} is disabled`;
  if (w === 'address') return `may not be used from ${a}`;
  if (w === 'origin') return `may not be used from ${o}`;
  if (w === 'api') return `of another API than ${q?.apiId ?? 'the question'}`;
  return w === 'enabled' ? 'the key is disabled' : c;
}
