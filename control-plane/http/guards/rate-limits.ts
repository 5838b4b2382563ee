import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { sourceOf } from '#shared/lang/ip-ranges.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { callCounter } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import { Gathering } from '../../redis/gathering.ts';
import { isChange, isStop, mayStop } from '../operations/operation.ts';
import type { App } from '../server.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Id of the caller whose limit the request counts for. */
    countedAs: string;
  }
}

const countScript = new Script(new URL('../../redis/lua/callers/count-calls.lua', import.meta.url));

const WINDOW_MS = 60_000;
/**
 * Maximum number of remembered addresses over their limit; calls from other addresses are counted in Redis
 * each time.
 */
const ADDRESSES_MAX = 10_000;

/**
 * Limits on callers. Each method sets `Retry-After` and rejects with RATE_LIMITED if the limit is exceeded.
 */
export interface RateLimits {
  /** Counts a call of a caller. */
  countCall(request: FastifyRequest, reply: FastifyReply, callerId: string): Promise<void>;
  /** Counts a call without a valid root key. */
  countFailure(request: FastifyRequest, reply: FastifyReply): Promise<void>;
}

/**
 * Counts calls in Redis, for all control planes together. For each root key, reads and changes are counted
 * separately, so that a caller who lists too much can still disable a key. Calls over the limit that stop something
 * have a counter of their own, so that a caller who changes too much can, too. For each address, calls without a
 * valid root key are counted. An address over its limit may still call with a valid root key; otherwise one
 * client behind a proxy could lock out the others. If Redis cannot count, every call is let through: a limit
 * must not cause the outage that it should prevent.
 * @param options.callsMax per root key, counter and minute; 0 = no limit
 * @param options.failuresMax per address and minute; 0 = no limit
 */
export function limitRates(
  app: App,
  options: {
    nodes: RedisNodes;
    callsMax: number;
    failuresMax: number;
    clock: Clock;
    onLimit: (limit: 'calls' | 'failures' | 'unchecked') => void;
  },
): RateLimits {
  const { nodes, clock, onLimit } = options;
  /** The calls of one turn of the event loop are counted together. */
  const turn = new Gathering<undefined, Count>((caller, calls) => count(nodes, caller, calls.length));
  app.decorateRequest('countedAs', '');
  const over = new OverLimit();
  const limit = (
    name: 'calls' | 'failures',
    max: number,
    callerOf: (request: FastifyRequest) => string,
    onOver = (_request: FastifyRequest, refuse: () => never): void => refuse(),
  ) => {
    return async (request: FastifyRequest, reply: FastifyReply) => {
      if (max === 0) return;
      const nowMs = clock.monotonicMs();
      const caller = callerOf(request);
      let untilMs = name === 'failures' ? over.untilMs(caller) : 0;
      if (untilMs <= nowMs) {
        const { place, result } = turn.add(caller, undefined);
        const counted = await result.catch(() => undefined);
        if (counted === undefined) return onLimit('unchecked');
        if (counted.before + place < max) return;
        untilMs = nowMs + counted.ttl;
        if (name === 'failures') over.remember(caller, untilMs);
      }
      onOver(request, () => {
        onLimit(name);
        reply.header('retry-after', String(Math.max(1, Math.ceil((untilMs - nowMs) / 1000))));
        throw new ApiError('RATE_LIMITED', `more than ${max} ${name} within a minute`);
      });
    };
  };
  const countCall = limit('calls', options.callsMax, counterOf, ({ call, routeOptions }, refuse) => {
    const { operation } = routeOptions.config;
    if (!call || !operation || !mayStop(operation)) return refuse();
    call.refuse = refuse;
  });
  const countStop = limit('calls', options.callsMax, ({ countedAs }) => `${countedAs}:STOP`);
  app.addHook('preValidation', async (request, reply) => {
    const { call, routeOptions, body } = request;
    const { refuse } = call ?? {};
    if (!call || !refuse || !routeOptions.config.operation) return;
    call.refuse = undefined;
    if (!isStop(routeOptions.config.operation, body)) refuse();
    await countStop(request, reply);
  });
  return {
    async countCall(request, reply, callerId) {
      request.countedAs = callerId;
      await countCall(request, reply);
    },
    countFailure: limit(
      'failures',
      options.failuresMax,
      ({ call, ip }) => `address:${sourceOf(call?.address ?? ip)}`,
    ),
  };
}

/** Returns the name of a call's counter: changes and reads have different ones. */
function counterOf({ countedAs, method, routeOptions: { config } }: FastifyRequest): string {
  const isWrite = config.operation ? isChange(config.operation) : method !== 'GET';
  return `${countedAs}:${isWrite ? 'POST' : 'GET'}`;
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
  const reply = await nodes.run(counter, (redis) => countScript.run(redis, [counter], [WINDOW_MS, calls]));
  const [current, ttl] = reply as [number, number];
  return { before: current - calls, ttl };
}
