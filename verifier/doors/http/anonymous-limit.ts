import { LRUCache } from 'lru-cache';
import type { Clock } from '#shared/process/clock.ts';
import { setting } from '#shared/process/load-config.ts';
import { sourceOf } from '#shared/rules/ip-ranges.ts';
import { type AnonymousRefusal, limitOutcome } from './gateway-answer.ts';

/** Values of ANONYMOUS_LIMIT. */
interface Bound {
  readonly limit: number;
  readonly durationMs: number;
}

export const anonymousSettings = {
  ANONYMOUS_LIMIT: setting({
    parse(value: string): Bound | undefined {
      if (value === '') return undefined;
      const [, limit = 0, durationMs = 0] = (/^(\d{1,7})\/(\d{1,8})$/.exec(value) ?? []).map(Number);
      if (limit < 1 || limit > 1_000_000 || durationMs < 1000 || durationMs > 86_400_000)
        throw new Error(`"${value}" is not allowed`);
      return { limit, durationMs };
    },
    default: '',
    rule: '<requests>/<ms>, such as 60/60000: 1..1000000 / 1000..86400000',
  }).help(
    'Maximum number of requests without a key that one address may send in a window of so many milliseconds, where keys are optional; more get 429. An IPv6 network of 64 bits counts as one address, and so do all clients of unknown address. Each verifier counts for itself, in windows from its start, and at most 50,000 addresses in one. If empty, there is no limit',
  ),
};

/** Returns the faults of ANONYMOUS_LIMIT in combination with the settings that tell addresses. */
export const anonymousFaults = (config: {
  readonly ANONYMOUS_LIMIT: Bound | undefined;
  readonly CLIENT_IP_HEADER: string;
  readonly EXT_AUTHZ_GRPC_PORT: number | undefined;
}): string[] =>
  config.ANONYMOUS_LIMIT && config.CLIENT_IP_HEADER === '' && config.EXT_AUTHZ_GRPC_PORT === undefined
    ? ['ANONYMOUS_LIMIT: needs CLIENT_IP_HEADER, without which all clients would count as one']
    : [];

/** Maximum number of addresses that are counted in a window. Beyond it, those that were seen longest ago begin anew. */
const ADDRESSES_MAX = 50_000;

/** Counts the requests without a key by address. */
export class AnonymousLimit {
  readonly #bound: Bound;
  readonly #clock: Clock;
  readonly #counts = new LRUCache<string, number>({ max: ADDRESSES_MAX });
  #window = 0;

  constructor(bound: Bound, clock: Clock) {
    this.#bound = bound;
    this.#clock = clock;
  }

  /** Counts a request. Returns its refusal if it is one too many. */
  take(clientIp: string | undefined): AnonymousRefusal | undefined {
    const { limit, durationMs } = this.#bound;
    const nowMs = this.#clock.monotonicMs();
    const window = Math.floor(nowMs / durationMs);
    if (window !== this.#window) this.#counts.clear();
    this.#window = window;
    const address = clientIp === undefined ? '' : sourceOf(clientIp);
    const count = (this.#counts.get(address) ?? 0) + 1;
    this.#counts.set(address, count);
    if (count <= limit) return undefined;
    const retryMs = (window + 1) * durationMs - nowMs;
    const reset = this.#clock.wallMs() + retryMs;
    const limits = [
      limitOutcome({ name: 'anonymous', limit, duration: durationMs, remaining: 0, reset, exceeded: true }),
    ];
    const detail = 'Too many requests without an API key; send one, or try again later.';
    return { code: 'RATE_LIMITED', spending: { code: 'RATE_LIMITED', limits, retryMs }, detail };
  }
}
