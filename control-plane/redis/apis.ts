import type { Clock } from '#shared/clock.ts';
import { ApiError, unavailable } from '#shared/errors.ts';
import { generateId } from '#shared/key-format.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, apiList } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import type { DurableWriter } from './change-log.ts';

const createScript = new Script(new URL('./lua/create-api.lua', import.meta.url));

/** An API as admins see it. Times are Unix milliseconds. */
export interface Api {
  readonly id: string;
  readonly name?: string;
  readonly createdAt: number;
  /** Some of its keys were imported and are of another format, found only by verifiers with FOREIGN_KEYS on. */
  readonly foreignKeys?: true;
}

/** One page of a listing. */
interface ApiPage {
  readonly apis: readonly Api[];
  /** The id to go on after; undefined on the last page. */
  readonly next?: string;
}

/** APIs in Redis. Deleting one is a change of its log; the sweep does the rest. */
export class Apis {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #clock: Clock;
  readonly #leaseMs: number;

  constructor(nodes: RedisNodes, writer: DurableWriter, clock: Clock, leaseMs: number) {
    this.#nodes = nodes;
    this.#writer = writer;
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  /** Rejects with CONFLICT where the id is in use or still being deleted. */
  async create(name: string, wantedId?: string): Promise<{ apiId: string; name: string }> {
    const nowMs = this.#clock.wallMs();
    const apiId = wantedId ?? generateId('api', nowMs);
    await this.#nodes.run(apiList, (redis) => redis.zadd(apiList, 0, apiId));
    const { head } = apiKeys(apiId);
    const { reply, replicated } = await this.#writer.run(createScript, [head], [nowMs, this.#leaseMs, name]);
    if (reply !== 'OK') throw new ApiError('CONFLICT', `apiId: ${apiId} is in use or still being deleted`);
    if (!replicated) throw unavailable('the API is not on all replicas yet; read it before trying again');
    return { apiId, name };
  }

  /** undefined when there is none, or it is deleted. */
  async get(apiId: string): Promise<Api | undefined> {
    const { head } = apiKeys(apiId);
    const [createdAt, name, deleted, foreign] = await this.#nodes.run(head, (redis) =>
      redis.hmget(head, 'c', 'name', 'deleted', 'foreign'),
    );
    if (!createdAt || deleted) return undefined;
    return {
      id: apiId,
      ...(name ? { name } : {}),
      createdAt: Number(createdAt),
      ...(foreign ? { foreignKeys: true } : {}),
    };
  }

  /** One page of all APIs in order. It may be short: ids of deleted ones count towards `limit`. */
  async list(after: string, limit: number): Promise<ApiPage> {
    const ids = await this.ids(after, limit + 1);
    const page = ids.slice(0, limit);
    const next = ids.length > limit ? page.at(-1) : undefined;
    return { apis: await this.#getAll(page), ...(next === undefined ? {} : { next }) };
  }

  /** One page of those of these APIs that there are. */
  async among(ids: readonly string[], after: string, limit: number): Promise<ApiPage> {
    const found = await this.#getAll(ids.filter((apiId) => apiId > after));
    const apis = found.slice(0, limit);
    const next = found.length > limit ? apis.at(-1)?.id : undefined;
    return { apis, ...(next === undefined ? {} : { next }) };
  }

  async #getAll(ids: readonly string[]): Promise<Api[]> {
    const apis = await Promise.all(ids.map((apiId) => this.get(apiId)));
    return apis.filter((api) => api !== undefined);
  }

  /**
   * Ids of APIs in order, deleted ones and ones that never came to be among them.
   * @param after the id to go on after; '' = from the start
   */
  async ids(after: string, limit: number): Promise<string[]> {
    const from = `(${after}`; // no id is empty
    return this.#nodes.run(apiList, (redis) => redis.zrangebylex(apiList, from, '+', 'LIMIT', 0, limit));
  }
}
