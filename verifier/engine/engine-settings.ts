import { flag, integer } from '#shared/process/load-config.ts';

/** Settings of the engine. A verifier process has them under these names, the library in camel case. */
export const engineSettings = {
  CACHE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).help(
    'Most keys in memory; the least recently used leave first. A key without meta takes about 450 bytes',
  ),
  UNKNOWN_KEYS_MAX: integer(1, 1_000_000, 'keys', 10_000).deprecated(
    'Most unknown keys that the verifier remembers as unknown, apart from the known ones; about 50 bytes each, allocated at the start',
  ),
  UNKNOWN_KEY_TTL_MS: integer(1, 1000, 'ms', 1000).deprecated(
    'Time for which the verifier remembers that a key is unknown. If somebody asks for a secret before its key exists, the new key can be refused for this time, or for LOOKUP_WAIT_MS if that is longer',
  ),
  LOOKUPS_IN_FLIGHT_MAX: integer(1, 10_000, 'look-ups', 64).deprecated('Most look-ups at Redis at once'),
  LOOKUPS_QUEUED_MAX: integer(0, 100_000, 'look-ups', 1000).deprecated(
    'Most look-ups that wait for one of LOOKUPS_IN_FLIGHT_MAX to end; requests for further ones get 503',
  ),
  LOOKUP_WAIT_MS: integer(1, 10_000, 'ms', 50).help(
    'Longest wait of a request for its look-up. After that the request gets 503, and the look-up goes on',
  ),
  SYNC_PERIOD_MS: integer(50, 60_000, 'ms', 1000).help(
    'Period (±10 %) in which the verifier asks Redis for the changes of each followed API. It bounds staleness when messages are lost. Set it well below LEASE_MS',
  ),
  SYNC_DEADLINE_MS: integer(20, 60_000, 'ms', 800).deprecated(
    'Longest wait for a reply to a synchronisation; then the connection to Redis is cut',
  ),
  CREDITS_SLICE_MS: integer(0, 60_000, 'ms', 2000).help(
    'For a key that is used often, the verifier takes credits and parts of rate limits in advance, enough for this time. It spends them without asking Redis; a crash loses them. 0 = it asks Redis each time',
  ),
  APIS_MAX: integer(1, 100_000, 'APIs', 1000).deprecated(
    'Most APIs that the verifier follows at once; questions about keys of further APIs get 503',
  ),
  API_IDLE_MS: integer(1000, 86_400_000, 'ms', 600_000).deprecated(
    'Time without a question after which the verifier stops following an API, unless it is one of API_IDS',
  ),
  FOREIGN_KEYS: flag(false).help(
    'true = looks up keys of another format than that of Keyfence, such as imported ones; false = refuses them without asking Redis',
  ),
  STATUS_PERIOD_MS: integer(100, 600_000, 'ms', 10_000).deprecated(
    'Period after which this verifier reports itself for fleet.listVerifiers. After three missed reports it is no longer listed',
  ),
  USAGE_PERIOD_MS: integer(0, 3_600_000, 'ms', 60_000).help(
    'Period in which the verifier reports its counts of verdicts by key. lastUsedAt may be too late by this period and the time that a report takes. 0 = it counts no usage',
  ),
  USAGE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).deprecated(
    'Most keys that the verifier counts between two reports of usage; it does not count verdicts on further keys. About 150 bytes each',
  ),
  USAGE_TAGS_MAX: integer(1, 100_000, 'tags', 1000).deprecated(
    'Most tags of an API and day that are counted apart, the first ones; verdicts with further tags are counted together as `other`. Up to 700 bytes of Redis each, for a month',
  ),
  USAGE_TAGS_HELD_MAX: integer(1, 1_000_000, 'tags', 10_000).deprecated(
    'Most tags, of all APIs, whose counts wait in memory between two reports; verdicts with others are counted as `other`. Up to 700 bytes each',
  ),
};
