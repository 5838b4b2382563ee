import { randomBytes } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { managedByOthers } from '#shared/protocol/log/write-error.ts';
import { command } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { auditStream, webhookEndpoints, webhookKeys } from '#shared/redis/redis-keys.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { generateId } from '#shared/rules/key-format.ts';
import type { Draw } from '../../core/ports.ts';
import type { Managed } from '../../core/records/key-view.ts';

const setEndpoint = command(
  new URL('./set-endpoint.lua', import.meta.url),
  ['endpoints', 'queue', 'retries', 'attempts', 'dead', 'state', 'log'],
  ['id', 'before', 'after', 'most', 'group'],
  String,
);

/** Name of the consumer group of the streams where events arise, and of its only consumer: whoever is the sender. */
export const WEBHOOK_GROUP = 'webhooks';
/** The maximum number of endpoints, so that one response can list them and Redis can hold their queues. */
const ENDPOINTS_MAX = 50;
/** The beginning of signing secrets. */
export const SECRET_PREFIX = 'whsec_';
const SECRET_BYTES = 32;
/** Time for which a replaced signing secret still signs. */
const ROTATION_MS = 86_400_000;
/** Number of times that a change is tried when others change the endpoint too. */
const TRIES_MAX = 5;

/** A webhook endpoint as admins see it: never its signing secret. */
export interface WebhookEndpoint extends Managed {
  readonly endpointId: string;
  readonly url: string;
  readonly name?: string;
  /** Types, groups such as `key.*`, or `*`. */
  readonly events: readonly string[];
  /** The only APIs whose events are sent; absent = all, and events that belong to no API. */
  readonly apiIds?: readonly string[];
  readonly enabled: boolean;
  /** When it answered that it is gone, and was disabled; until somebody changes `enabled`. */
  readonly goneAt?: number;
  readonly createdAt: number;
  readonly updatedAt?: number;
  /** When the former signing secret ends, if it still signs. */
  readonly formerSecretEndsAt?: number;
}

/** Changes to an endpoint; `null` clears a field. */
export interface EndpointPatch {
  readonly url?: string;
  readonly name?: string | null;
  readonly events?: readonly string[];
  readonly apiIds?: readonly string[] | null;
  readonly enabled?: boolean;
  readonly managedBy?: string | null;
}

/** An endpoint's record with its signing secrets. */
export interface SigningEndpoint extends WebhookEndpoint {
  readonly secret: string;
  readonly formerSecret?: string;
}

/** Webhook endpoints in Redis, with their signing secrets. */
export class WebhookEndpoints {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #clock: Clock;

  constructor(nodes: RedisNodes, writer: DurableWriter, clock: Clock) {
    this.#nodes = nodes;
    this.#writer = writer;
    this.#clock = clock;
  }

  /** Creates an endpoint, and returns its signing secret too. Rejects with CONFLICT if there are too many. */
  async create(
    fields: Pick<WebhookEndpoint, 'url' | 'name' | 'events' | 'apiIds' | 'managedBy'>,
    draw?: Draw,
  ): Promise<{ readonly endpoint: WebhookEndpoint; readonly secret: string }> {
    const createdAt = draw?.nowMs ?? this.#clock.wallMs();
    const endpointId = generateId('endpoint', createdAt, draw?.random);
    const secret = newSecret(draw?.random);
    const record: SigningEndpoint = { endpointId, ...fields, enabled: true, createdAt, secret };
    // What was drawn before, the first call created.
    if (!draw || (await this.#read(endpointId)) === null)
      await this.#set(endpointId, '', JSON.stringify(record));
    return { endpoint: publicPart(record, createdAt), secret };
  }

  /** Returns undefined if there is no such endpoint. */
  async get(endpointId: string): Promise<WebhookEndpoint | undefined> {
    const text = await this.#read(endpointId);
    return text === null ? undefined : publicPart(recordOf(text), this.#clock.wallMs());
  }

  /** All endpoints in order of creation. */
  async list(): Promise<WebhookEndpoint[]> {
    const nowMs = this.#clock.wallMs();
    return (await this.signing()).map((record) => publicPart(record, nowMs));
  }

  /** All endpoints with their signing secrets, for whoever signs. */
  async signing(): Promise<SigningEndpoint[]> {
    const texts = await this.#nodes.run(webhookEndpoints, (redis) => redis.hvals(webhookEndpoints));
    return texts.flatMap(recordOrNone).sort((a, b) => (a.endpointId < b.endpointId ? -1 : 1));
  }

  /** Returns the endpoint before and after the change; undefined if there is no such endpoint. */
  async update(
    endpointId: string,
    patch: EndpointPatch,
  ): Promise<{ readonly before: WebhookEndpoint; readonly after: WebhookEndpoint } | undefined> {
    return this.#change(endpointId, (record, updatedAt) => {
      const { name: oldName, apiIds: oldApiIds, goneAt, managedBy: set, driftedAt, ...rest } = record;
      const { name = oldName, apiIds = oldApiIds, managedBy = set, ...changes } = patch;
      const isDrifted = managedBy != null && patch.managedBy === undefined;
      return {
        ...{ ...rest, ...changes, updatedAt },
        ...(goneAt === undefined || changes.enabled !== undefined ? {} : { goneAt }),
        ...(name == null ? {} : { name }),
        ...(apiIds == null ? {} : { apiIds }),
        ...(managedBy == null ? {} : { managedBy }),
        ...(isDrifted ? { driftedAt: driftedAt ?? updatedAt } : {}),
      };
    });
  }

  /** Disables an endpoint that answered that it is gone. Returns false if it is disabled or deleted already. */
  async disableGone(endpointId: string): Promise<boolean> {
    const changed = await this.#change(endpointId, (record, nowMs) => ({
      ...record,
      ...(record.enabled ? { enabled: false, goneAt: nowMs } : {}),
    }));
    return changed?.before.enabled === true;
  }

  /** Replaces the signing secret; the former one still signs for a day. */
  async rotate(
    endpointId: string,
    draw?: Draw,
  ): Promise<{ readonly secret: string; readonly formerSecretEndsAt: number } | undefined> {
    const secret = newSecret(draw?.random);
    const formerSecretEndsAt = this.#clock.wallMs() + ROTATION_MS;
    const changed = await this.#change(endpointId, (record, updatedAt) => ({
      ...record,
      ...(record.secret === secret
        ? {}
        : { secret, formerSecret: record.secret, formerSecretEndsAt, updatedAt }),
    }));
    return changed && { secret, formerSecretEndsAt };
  }

  /** Deletes an endpoint with all events that wait for it. Returns undefined if there is no such endpoint. */
  async delete(endpointId: string, ifManagedBy?: string): Promise<WebhookEndpoint | undefined> {
    const changed = await this.#change(endpointId, ({ managedBy }) => {
      if (ifManagedBy !== undefined && managedBy !== ifManagedBy) throw managedByOthers(ifManagedBy);
      return undefined;
    });
    return changed?.before;
  }

  async #change(
    endpointId: string,
    change: (record: SigningEndpoint, nowMs: number) => SigningEndpoint | undefined,
  ): Promise<{ readonly before: WebhookEndpoint; readonly after: WebhookEndpoint } | undefined> {
    for (let tries = 1; ; tries++) {
      const text = await this.#read(endpointId);
      if (text === null) return undefined;
      const nowMs = this.#clock.wallMs();
      const before = recordOf(text);
      const after = change(before, nowMs);
      try {
        await this.#set(endpointId, text, after ? JSON.stringify(after) : '');
        return { before: publicPart(before, nowMs), after: publicPart(after ?? before, nowMs) };
      } catch (error) {
        if (!(error instanceof ApiError && error.code === 'CONFLICT') || tries === TRIES_MAX) throw error;
      }
    }
  }

  #read(endpointId: string): Promise<string | null> {
    return this.#nodes.run(webhookEndpoints, (redis) => redis.hget(webhookEndpoints, endpointId));
  }

  async #set(endpointId: string, before: string, after: string): Promise<void> {
    const run = setEndpoint({
      ...{ endpoints: webhookEndpoints, ...webhookKeys(endpointId), log: auditStream('done') },
      ...{ id: endpointId, before, after, most: ENDPOINTS_MAX, group: WEBHOOK_GROUP },
    });
    const { reply, replicated } = await this.#writer.send(run);
    const [, present] = /^EXISTS (.*)$/.exec(reply) ?? [];
    if (present !== undefined)
      throw new ApiError('CONFLICT', `name: its managedBy has the endpoint ${present} of this name already`);
    if (reply === 'FULL') throw new ApiError('CONFLICT', `there are ${ENDPOINTS_MAX} endpoints already`);
    if (reply !== 'OK') throw new ApiError('CONFLICT', 'another call changed the endpoint; send it again');
    if (!replicated) throw unavailable('the change is not on all replicas yet; send it again');
  }
}

/** Returns the secrets that sign a message at this time. */
export const secretsOf = (
  { secret, formerSecret, formerSecretEndsAt = 0 }: SigningEndpoint,
  nowMs: number,
): string[] => (formerSecret !== undefined && formerSecretEndsAt > nowMs ? [secret, formerSecret] : [secret]);

const newSecret = (random: Draw['random'] = randomBytes) =>
  `${SECRET_PREFIX}${random(SECRET_BYTES).toString('base64')}`;

const recordOf = (text: string) => JSON.parse(text) as SigningEndpoint;

/** Returns the record in a text; none if it is damaged, so that it does not stop the others. */
function recordOrNone(text: string): SigningEndpoint[] {
  try {
    return [recordOf(text)];
  } catch {
    return [];
  }
}

function publicPart(record: SigningEndpoint, nowMs: number): WebhookEndpoint {
  const { secret: _, formerSecret: __, formerSecretEndsAt = 0, ...endpoint } = record;
  return { ...endpoint, ...(formerSecretEndsAt > nowMs ? { formerSecretEndsAt } : {}) };
}
