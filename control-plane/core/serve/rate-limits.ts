import type { FastifyRequest } from 'fastify';
import type { Clock } from '#shared/process/clock.ts';
import { Gathering } from '#shared/process/gathering.ts';
import { command, row } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { callCounter } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { sourceOf } from '#shared/rules/ip-ranges.ts';

export const countCalls = command(
  new URL('./count-calls.lua', import.meta.url),
  ['counter'],
  ['window', 'count'],
  row('current#', 'ttl#'),
);

const WINDOW_MS = 60_000;
/**
 * Maximum number of remembered addresses over their limit; calls from other addresses are counted in Redis
 * each time.
 */
const ADDRESSES_MAX = 10_000;

/** The refusal of a call over a limit. */
export class Excess extends ApiError {
  readonly limit: 'calls' | 'failures' | 'waiting' | 'once';
  /** Time after which the call may be sent again. */
  readonly retryAfterMs: number;

  constructor(limit: Excess['limit'], message: string, retryAfterMs = 0) {
    super('RATE_LIMITED', message);
    this.limit = limit;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * Counts calls in Redis, for all control planes together. For each root key, reads and changes are counted
 * separately, so that a caller who lists too much can still disable a key. Calls over the limit that stop something
 * have a counter of their own, so that a caller who changes too much can, too. For each address, calls without a
 * valid root key are counted. An address over its limit may still call with a valid root key; otherwise one
 * client behind a proxy could lock out the others. If Redis cannot count, every call is let through: a limit
 * must not cause the outage that it should prevent.
 */
export class RateLimits {
  readonly #max: { readonly calls: number; readonly failures: number };
  readonly #clock: Clock;
  readonly #onUnchecked: () => void;
  /** The calls of one turn of the event loop are counted together. */
  readonly #gathering: Gathering<undefined, Count>;
  readonly #over = new OverLimit();

  /** @param max per root key, counter and minute, and per address and minute; 0 = no limit */
  constructor(
    nodes: RedisNodes,
    clock: Clock,
    max: { readonly calls: number; readonly failures: number },
    onUnchecked: () => void,
  ) {
    this.#max = max;
    this.#clock = clock;
    this.#onUnchecked = onUnchecked;
    this.#gathering = new Gathering((counter, calls) => count(nodes, counter, calls.length));
  }

  /** Counts a call of a caller; resolves with the refusal if the caller is over its limit. Never rejects. */
  excess(callerId: string, counter: 'GET' | 'POST' | 'STOP'): Promise<Excess | undefined> {
    return this.#count('calls', `${callerId}:${counter}`);
  }

  /** Counts a request of a caller to a path of no operation. Rejects with RATE_LIMITED. */
  async countCall({ method }: FastifyRequest, callerId: string): Promise<void> {
    const excess = await this.excess(callerId, method === 'GET' ? 'GET' : 'POST');
    if (excess) throw excess;
  }

  /** Counts a request without a valid root key. Rejects with RATE_LIMITED. */
  async countFailure({ call, ip }: FastifyRequest): Promise<void> {
    const counter = `address:${sourceOf(call?.arrival.address ?? ip)}`;
    const excess = await this.#count('failures', counter);
    if (excess) throw excess;
  }

  async #count(limit: 'calls' | 'failures', counter: string): Promise<Excess | undefined> {
    const max = this.#max[limit];
    if (max === 0) return undefined;
    const nowMs = this.#clock.monotonicMs();
    let untilMs = this.#over.untilMs(counter);
    if (untilMs <= nowMs) {
      const { place, result } = this.#gathering.add(counter, undefined);
      const counted = await result.catch(() => this.#onUnchecked());
      if (!counted || counted.before + place < max) return undefined;
      untilMs = nowMs + counted.ttl;
      if (limit === 'failures') this.#over.remember(counter, untilMs);
    }
    return new Excess(limit, `more than ${max} ${limit} within a minute`, untilMs - nowMs);
  }
}

/**
 * Addresses over their limit, the first remembered first, so that a flood from one address costs Redis
 * nothing.
 */
class OverLimit {
  readonly #untilMs = new Map<string, number>();

  /** When the minute of an address ends; 0 = the address is not remembered. */
  untilMs(address: string): number {
    return this.#untilMs.get(address) ?? 0;
  }

  remember(address: string, untilMs: number): void {
    this.#untilMs.delete(address);
    const [oldest = ''] = this.#untilMs.size < ADDRESSES_MAX ? [] : this.#untilMs.keys();
    this.#untilMs.delete(oldest);
    this.#untilMs.set(address, untilMs);
  }
}

/** The count of a window before the calls of one turn, and the milliseconds until the window ends. */
interface Count {
  readonly before: number;
  readonly ttl: number;
}

async function count(nodes: RedisNodes, caller: string, calls: number): Promise<Count> {
  const counter = callCounter(caller);
  const run = countCalls({ counter, window: WINDOW_MS, count: calls });
  const { current, ttl } = await nodes.run(counter, (redis) => send(redis, run));
  return { before: current - calls, ttl };
}
