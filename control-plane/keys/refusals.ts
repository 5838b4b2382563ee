import type { RefusalRecord } from '#shared/protocol/refusal-records.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { refusalsKey, refusedRequestsKey } from '#shared/redis/redis-keys.ts';

/** A refusal of a key, as its verifier reported it. */
export interface ReportedRefusal {
  /** By the verifier's clock, Unix milliseconds. */
  readonly time: number;
  readonly code: string;
  /** `address`: the key may not be used from the client's address. */
  readonly reason?: 'address';
  readonly requestId?: string;
  /** Id of the verifier in the fleet's list. */
  readonly verifierId: string;
  readonly clientIp?: string;
  /** Method and path of the client's request. */
  readonly route?: string;
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
    const refusals = Object.entries(fields).flatMap(([slot, text]) => (slot === '#' ? [] : refusalIn(text)));
    // A report that was repeated has the same refusals again.
    const distinct = new Map(refusals.map((refusal) => [JSON.stringify(refusal), refusal]));
    return [...distinct.values()].sort((a, b) => b.time - a.time);
  }

  /** The key that a refused request of this API asked about; undefined = none is known. */
  async keyOf(apiId: string, requestId: string): Promise<string | undefined> {
    const name = refusedRequestsKey(apiId);
    return (await this.#nodes.run(name, (redis) => redis.hget(name, requestId))) ?? undefined;
  }
}

/** Reads what `report-refusals.lua` wrote; nothing if it is damaged. */
function refusalIn(text: string): ReportedRefusal[] {
  try {
    const { t, c, w, r, v, a, p } = JSON.parse(text.slice(text.indexOf(' ') + 1)) as RefusalRecord;
    return [
      {
        time: t,
        code: c,
        ...(w === 'ip' ? { reason: 'address' } : {}),
        ...(r === '' ? {} : { requestId: r }),
        verifierId: v,
        ...(a === undefined ? {} : { clientIp: a }),
        ...(p === undefined ? {} : { route: p }),
      },
    ];
  } catch {
    return [];
  }
}
