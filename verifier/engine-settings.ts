import { flag, integer } from '#shared/process/load-config.ts';

/** Settings of the engine. A verifier process has them under these names, the library in camel case. */
export const engineSettings = {
  CACHE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).help(
    'Maximum number of keys in memory. If there are more, the least recently used keys are dropped. A key without `meta` takes about 450 bytes',
  ),
  LOOKUP_WAIT_MS: integer(1, 10_000, 'ms', 50).help(
    'Maximum time that a request waits for its key to be read from Redis. After that the request gets 503, and the reading continues',
  ),
  SYNC_PERIOD_MS: integer(50, 60_000, 'ms', 1000).help(
    'Period (±10 %) after which the verifier asks Redis for the changes of each API that it follows. If messages are lost, changes arrive this much later. Set it well below LEASE_MS, a setting of the control plane',
  ),
  CREDITS_SLICE_MS: integer(0, 60_000, 'ms', 2000).help(
    'For a key that is used often, the verifier takes credits and uses of rate limits from Redis in advance, enough for about this time. It spends them without asking Redis. If the verifier crashes, they are lost. With 0 the verifier asks Redis each time',
  ),
  FOREIGN_KEYS: flag(false).help(
    "If true, the verifier also looks up keys that do not have Keyfence's own format, such as imported keys. If false, it refuses them without asking Redis",
  ),
  USAGE_PERIOD_MS: integer(0, 3_600_000, 'ms', 60_000).help(
    'Period after which the verifier reports its counts of verdicts to Redis. The time `lastUsedAt` of a key is the time of such a report, so it can be later than the real use, by up to this period plus the duration of a report. With 0 the verifier does not count usage',
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const engineLimits = {
  /**
   * Most unknown keys that the verifier remembers as unknown, apart from the known ones; about 50 bytes each,
   * allocated at the start.
   */
  UNKNOWN_KEYS_MAX: 10_000,
  /**
   * Time for which the verifier remembers that a key is unknown. If somebody asks for a secret before its key
   * exists, the new key can be refused for this time, or for LOOKUP_WAIT_MS if that is longer.
   */
  UNKNOWN_KEY_TTL_MS: 1000,
  /** Most look-ups at Redis at once. */
  LOOKUPS_IN_FLIGHT_MAX: 64,
  /** Most look-ups that wait for a running one to end; requests for further ones get 503. */
  LOOKUPS_QUEUED_MAX: 1000,
  /** Longest wait for a reply to a synchronisation; then the connection to Redis is cut. */
  SYNC_DEADLINE_MS: 800,
  /** Most APIs that the verifier follows at once; questions about keys of further APIs get 503. */
  APIS_MAX: 1000,
  /** Time without a question after which the verifier stops following an API, unless it is one of API_IDS. */
  API_IDLE_MS: 600_000,
  /**
   * Period after which this verifier reports itself for fleet.listVerifiers. After three missed reports it is
   * no longer listed.
   */
  STATUS_PERIOD_MS: 10_000,
  /**
   * Most keys that the verifier counts between two reports of usage; it does not count verdicts on further
   * keys. About 150 bytes each.
   */
  USAGE_KEYS_MAX: 100_000,
  /**
   * Most tags of an API and day that are counted apart, the first ones; verdicts with further tags are
   * counted together as `other`. Up to 700 bytes of Redis each, for a month.
   */
  USAGE_TAGS_MAX: 1000,
  /**
   * Most tags, of all APIs, whose counts wait in memory between two reports; verdicts with others are counted
   * as `other`. Up to 700 bytes each.
   */
  USAGE_TAGS_HELD_MAX: 10_000,
};
