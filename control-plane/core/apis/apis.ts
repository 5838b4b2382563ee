import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { apiIds, createApi, createSharedLog } from '#shared/protocol/log/new-log.ts';
import { cameLate } from '#shared/protocol/log/write-error.ts';
import { TOKEN_LEEWAY } from '#shared/protocol/timing.ts';
import { fenceLending, type SetLending } from '#shared/protocol/writer/sweep.ts';
import { setLending } from '#shared/protocol/writer/sweep-store.ts';
import { command, oneOf } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, apiList } from '#shared/redis/redis-keys.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { generateId } from '#shared/rules/key-format.ts';
import type { Draw } from '../ports.ts';
import { type Managed, managedOf } from '../records/key-view.ts';
import type { ApiDefaults } from './api-defaults.ts';

export const updateApi = command(
  new URL('./update-api.lua', import.meta.url),
  ['head'],
  ['condition', 'now', 'fence', '...fields'],
  oneOf('status', {
    ...{ OK: ['changes#', '...before'], NOT_FOUND: [], CONFLICT: ['changes#'] },
    ...{ ABOVE_MAX: ['defaultMs#', 'maxMs#'], OVERTAKEN: [] },
  }),
);

/** An API as admins see it. Times are Unix milliseconds. */
export interface Api extends ApiDefaults, Managed {
  readonly id: string;
  readonly name?: string;
  readonly createdAt: number;
  /** True if verifiers issue tokens about its keys. */
  readonly tokens?: boolean;
  /** The audiences that these may have; absent = its own id. */
  readonly tokenAudiences?: readonly string[];
  /** The time for which others accept a token after its end, milliseconds; absent = a minute. */
  readonly tokenLeewayMs?: number;
  /** Number of changes of its name, defaults and rules. */
  readonly sequence: number;
  /** Number of the API's keys. */
  readonly keys: number;
  /**
   * True if the API has imported keys of a foreign format, which only verifiers with FOREIGN_KEYS on can
   * find.
   */
  readonly foreignKeys?: true;
  /** Digests besides SHA-256 by which some of these were imported. */
  readonly foreignDigests?: readonly string[];
  /** The protocol that the API's verifiers must speak, if it is above 1. */
  readonly protocol?: number;
}

/** Changes to an API; `null` clears a field. */
export type ApiPatch = {
  readonly name?: string;
  readonly managedBy?: string | null;
  readonly tokens?: boolean | null;
  readonly tokenAudiences?: readonly string[] | null;
  readonly tokenLeewayMs?: number | null;
} & {
  readonly [Name in keyof ApiDefaults]?: ApiDefaults[Name] | null;
};

/** The fields of the head that a patch sets. */
const FIELDS = {
  ...{ name: 'name', defaultPrefix: 'prefix', defaultBytes: 'bytes' },
  ...{ defaultLifetimeMs: 'usual', maxLifetimeMs: 'longest', disableUnusedAfterMs: 'unused' },
  ...{ managedBy: 'managed', selfRevocation: 'revocable', tokens: 'T' },
  ...{ tokenAudiences: 'aud', tokenLeewayMs: 'leeway' },
} as const;
/** Fields of the head that are flags, or text; others are numbers. */
const FLAGS: readonly string[] = ['selfRevocation', 'tokens'];
const TEXTS: readonly string[] = ['name', 'defaultPrefix', 'managedBy'];
const LISTS: readonly string[] = ['tokenAudiences'];
const NAMES = Object.keys(FIELDS) as (keyof ApiPatch)[];

/** Shortest lease with which tokens are of use. */
const TOKENS_LEASE_MS_MIN = 5000;

/** One page of a listing. */
interface ApiPage {
  readonly apis: readonly Api[];
  /** The id after which the next page begins; undefined on the last page. */
  readonly next?: string;
}

/** APIs in Redis. Deleting an API is a change of its log; the sweep does the rest. */
export class Apis {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #clock: Clock;
  readonly #leaseMs: number;
  readonly #hasTokens: boolean;

  /** @param hasTokens true if this process has the secret of tokens */
  constructor(nodes: RedisNodes, writer: DurableWriter, clock: Clock, leaseMs: number, hasTokens = false) {
    this.#nodes = nodes;
    this.#writer = writer;
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#hasTokens = hasTokens;
  }

  /** Rejects with CONFLICT if the id is in use or its deleted API is still being swept. */
  async create(
    request: ApiDefaults & { name: string; apiId?: string; managedBy?: string },
    draw?: Draw,
  ): Promise<{ apiId: string; name: string; managedBy?: string } & ApiDefaults> {
    const { apiId: wantedId, ...about } = request;
    const { defaultLifetimeMs = 0, maxLifetimeMs = defaultLifetimeMs } = about;
    if (defaultLifetimeMs > maxLifetimeMs) throw aboveMax(defaultLifetimeMs, maxLifetimeMs);
    const nowMs = draw?.nowMs ?? this.#clock.wallMs();
    const apiId = wantedId ?? generateId('api', nowMs, draw?.random);
    await this.#nodes.run(apiList, (redis) => redis.zadd(apiList, 0, apiId));
    const { head } = apiKeys(apiId);
    const fields = encode(about, nowMs);
    const run = createApi({ head, members: [], now: nowMs, lease: this.#leaseMs, fields });
    const { reply: isNew, replicated } = await this.#writer.send(run);
    // What was drawn before, the first call created.
    const isOwn = draw !== undefined && wantedId === undefined;
    if (!isNew && !isOwn) throw new ApiError('CONFLICT', `apiId: ${apiId} is in use or still being deleted`);
    if (!replicated) throw unavailable('the API is not on all replicas yet; read it before trying again');
    return { apiId, ...about };
  }

  /**
   * Applies a patch. Rejects with CONFLICT unless `ifSequence` is the number of its changes so far, and with BAD_REQUEST if
   * the default lifetime would be above the maximum.
   * @returns the number of changes then, and the previous values of the patched fields, `null` = none; undefined if there is
   * no such API
   */
  async update(
    apiId: string,
    patch: ApiPatch,
    ifSequence?: number,
  ): Promise<{ readonly sequence: number; readonly before: object } | undefined> {
    const { head } = apiKeys(apiId);
    const now = this.#clock.wallMs();
    for (const audience of patch.tokenAudiences ?? [])
      if (audience !== apiId && !OTHER_AUDIENCE.test(audience)) throw wrongAudience(apiId, audience);
    const fence = await this.#fenceTokens(apiId, patch);
    const run = updateApi({ head, condition: ifSequence ?? '', now, fence, fields: encode(patch, now) });
    const { reply, replicated } = await this.#writer.send(run);
    if (reply.status === 'CONFLICT') throw cameLate(ifSequence ?? 0, reply.changes);
    if (reply.status === 'OVERTAKEN') throw overtaken();
    if (reply.status === 'ABOVE_MAX') throw aboveMax(reply.defaultMs, reply.maxMs);
    if (reply.status !== 'OK') return undefined;
    if (!replicated) throw unavailable('the change is not on all replicas yet; send it again');
    const before = NAMES.filter((name) => patch[name] !== undefined).map((name, i) => {
      const text = reply.before[i];
      return [name, text ? decode(name, text) : null];
    });
    return { sequence: reply.changes, before: Object.fromEntries(before) };
  }

  /**
   * Makes changes wait for tokens before there are any, and for their leeway before it is longer; returns the name of this, `''`
   * = there is no need. Rejects with BAD_REQUEST if there can be no tokens.
   */
  async #fenceTokens(apiId: string, { tokens, tokenLeewayMs }: ApiPatch): Promise<string> {
    if (tokens !== true && tokenLeewayMs === undefined) return '';
    const { head } = apiKeys(apiId);
    const [created, waits, present] = await this.#nodes.run(head, (redis) =>
      redis.hmget(head, 'c', 'Tf', FIELDS.tokenLeewayMs),
    );
    if (tokens !== true && !waits) return '';
    if (!this.#hasTokens)
      throw new ApiError('BAD_REQUEST', 'tokens: need TOKEN_KEY_FILE, at control planes and verifiers');
    if (this.#leaseMs < TOKENS_LEASE_MS_MIN)
      throw new ApiError(
        'BAD_REQUEST',
        `tokens: need a LEASE_MS of at least ${TOKENS_LEASE_MS_MIN}, because each ends two seconds before its lease`,
      );
    const token = randomUUID();
    if (!created) return token;
    const stays = tokenLeewayMs === undefined && present ? Number(present) : undefined;
    const leewayMs = stays ?? tokenLeewayMs ?? TOKEN_LEEWAY.usualMs;
    await createSharedLog(this.#writer, this.#clock.wallMs(), this.#leaseMs);
    const set: SetLending = async (id, step) => {
      const run = setLending({ head: apiKeys(id).head, step, name: token, outlives: leewayMs });
      const { reply, replicated } = await this.#writer.send(run);
      return reply && replicated;
    };
    if (!(await fenceLending(set, apiId, token, leewayMs))) throw overtaken();
    return token;
  }

  /** Tells whether an API of this id exists, or is deleted but not yet swept. */
  async isKnown(apiId: string): Promise<boolean> {
    const { head } = apiKeys(apiId);
    return (await this.#nodes.run(head, (redis) => redis.hexists(head, 'c'))) === 1;
  }

  /** The longest lifetime that a key of the API may be given; undefined = no rule. */
  async maxLifetimeMs(apiId: string): Promise<number | undefined> {
    const { head } = apiKeys(apiId);
    const text = await this.#nodes.run(head, (redis) => redis.hget(head, FIELDS.maxLifetimeMs));
    return text ? Number(text) : undefined;
  }

  /** Returns undefined if the API does not exist or is deleted. */
  async get(apiId: string): Promise<Api | undefined> {
    const { head, index } = apiKeys(apiId);
    const [[createdAt, deleted, foreign, protocol, changes, drifted, ...defaults], keys] =
      await this.#nodes.run(head, (redis) =>
        Promise.all([
          redis.hmget(head, 'c', 'deleted', 'foreign', 'P', 'u', 'drifted', ...Object.values(FIELDS)),
          redis.zcard(index),
        ]),
      );
    if (!createdAt || deleted) return undefined;
    const digests = foreign?.match(/[a-z]\w+/g);
    const about = NAMES.flatMap((name, i) => (defaults[i] ? [[name, decode(name, defaults[i])]] : []));
    return {
      id: apiId,
      ...Object.fromEntries(about),
      createdAt: Number(createdAt),
      sequence: Number(changes ?? 0),
      keys,
      ...managedOf(undefined, drifted),
      ...(foreign ? { foreignKeys: true } : {}),
      ...(digests ? { foreignDigests: digests } : {}),
      ...(protocol ? { protocol: Number(protocol) } : {}),
    };
  }

  /**
   * One page of all APIs, ordered by id. It may be short, because ids of deleted APIs count towards `limit`.
   */
  async list(after: string, limit: number): Promise<ApiPage> {
    const ids = await this.ids(after, limit + 1);
    const page = ids.slice(0, limit);
    const next = ids.length > limit ? page.at(-1) : undefined;
    return { apis: await this.#getAll(page), ...(next === undefined ? {} : { next }) };
  }

  /** One page of those `ids` that exist as APIs. */
  async among(ids: readonly string[], after: string, limit: number): Promise<ApiPage> {
    const page = await this.#getAll(ids.filter((apiId) => apiId > after));
    const apis = page.slice(0, limit);
    const next = page.length > limit ? apis.at(-1)?.id : undefined;
    return { apis, ...(next === undefined ? {} : { next }) };
  }

  async #getAll(ids: readonly string[]): Promise<Api[]> {
    const apis = await Promise.all(ids.map((apiId) => this.get(apiId)));
    return apis.filter((api) => api !== undefined);
  }

  /** As `apiIds`. */
  ids(after: string, limit: number): Promise<string[]> {
    return apiIds(this.#nodes, after, limit);
  }
}

/** The fields of the head and their values, alternating: those of the patch in the order of NAMES, then others. */
function encode(patch: ApiPatch, nowMs: number): (string | number)[] {
  const fields = NAMES.flatMap((name) => {
    const value = patch[name];
    return value === undefined ? [] : [FIELDS[name], textOf(value)];
  });
  const { disableUnusedAfterMs: unused } = patch;
  return unused === undefined ? fields : [...fields, 'unusedSince', unused === null ? '' : nowMs];
}

const textOf = (value: NonNullable<unknown> | null): string | number => {
  if (typeof value === 'number') return value;
  return Array.isArray(value) ? JSON.stringify(value) : value === true ? 1 : String(value || '');
};

const decode = (name: keyof ApiPatch, text: string) => {
  if (LISTS.includes(name)) return JSON.parse(text);
  return FLAGS.includes(name) || (TEXTS.includes(name) ? text : Number(text));
};

/** An audience that no API's id can be. */
const OTHER_AUDIENCE = /^[\x21-\x7e]*[:/.][\x21-\x7e]*$/;

const wrongAudience = (apiId: string, audience: string) =>
  new ApiError(
    'BAD_REQUEST',
    `tokenAudiences: ${JSON.stringify(audience)} must be ${apiId}, the API's own id, or have a colon, slash or dot and no space, as https://${audience.replace(/[^\w-]/g, '') || 'files'}.example.com: the id of another API cannot be one`,
  );

const aboveMax = (defaultMs: number, maxMs: number) =>
  new ApiError(
    'BAD_REQUEST',
    `defaultLifetimeMs: must be at most maxLifetimeMs; ${defaultMs} is above ${maxMs}, so lower it or raise that`,
  );

const overtaken = () =>
  unavailable('another call switches tokens, or Redis does not have this one on all replicas; send it again');
