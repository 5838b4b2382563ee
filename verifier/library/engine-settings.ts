import { flag, integer } from '#shared/process/config.ts';

/** Settings of what decides on keys, wherever it runs: of a verifier process as they are, of the library in camel case. */
export const engineSettings = {
  CACHE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).help(
    'Most keys kept in memory; the least recently used leave first. About 450 bytes each without meta',
  ),
  UNKNOWN_KEYS_MAX: integer(1, 1_000_000, 'keys', 10_000).deprecated(
    'Most unknown keys that are remembered as such, apart from the known ones; about 50 bytes each, taken at the start',
  ),
  UNKNOWN_KEY_TTL_MS: integer(1, 1000, 'ms', 1000).deprecated(
    'Time for which an unknown key is remembered as such. A new key whose secret was asked for before it existed can be refused for so long, or for LOOKUP_WAIT_MS where that is longer',
  ),
  LOOKUPS_IN_FLIGHT_MAX: integer(1, 10_000, 'look-ups', 64).deprecated('Most look-ups at Redis at once'),
  LOOKUPS_QUEUED_MAX: integer(0, 100_000, 'look-ups', 1000).deprecated(
    'Most look-ups that wait for one of those; more are answered 503',
  ),
  LOOKUP_WAIT_MS: integer(1, 10_000, 'ms', 50).help(
    'Longest wait of a request for its look-up. Then it is answered 503, and the look-up goes on',
  ),
  SYNC_PERIOD_MS: integer(50, 60_000, 'ms', 1000).help(
    'Period after which each followed API is synchronised (±10 %). It bounds staleness when messages are lost. Set it well below LEASE_MS',
  ),
  SYNC_DEADLINE_MS: integer(20, 60_000, 'ms', 800).deprecated(
    'Longest wait for a reply to a synchronisation; then the connection to Redis is cut',
  ),
  CREDITS_SLICE_MS: integer(0, 60_000, 'ms', 2000).help(
    'Time for which the credits last that this verifier takes in advance for a key that is asked for often. It answers from them without Redis; a crash loses them. 0 = Redis is asked each time',
  ),
  APIS_MAX: integer(1, 100_000, 'APIs', 1000).deprecated(
    'Most APIs followed at once; keys of any other API are answered 503',
  ),
  API_IDLE_MS: integer(1000, 86_400_000, 'ms', 600_000).deprecated(
    'Time after which an API that nobody asks for is followed no more, unless it is one of API_IDS',
  ),
  FOREIGN_KEYS: flag(false).help(
    'Looks keys of another format than ours up, as imported ones are; otherwise they are refused without asking Redis',
  ),
  STATUS_PERIOD_MS: integer(100, 600_000, 'ms', 10_000).deprecated(
    'Period after which this verifier reports itself for fleet.listVerifiers. After three missed reports it is no longer listed',
  ),
  USAGE_PERIOD_MS: integer(0, 3_600_000, 'ms', 60_000).help(
    'Period after which this verifier reports its counts of verdicts by key. lastUsedAt is later than the truth by up to this period and the time that a report takes. 0 = usage is not counted',
  ),
  USAGE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).deprecated(
    'Most keys that are counted between two such reports; verdicts on others are in no usage. About 150 bytes each',
  ),
  USAGE_TAGS_MAX: integer(1, 100_000, 'tags', 1000).deprecated(
    'Tags of an API that are told apart in a day, the first ones; verdicts with others are counted together as `other`. Up to 700 bytes of Redis each, for a month',
  ),
  USAGE_TAGS_HELD_MAX: integer(1, 1_000_000, 'tags', 10_000).deprecated(
    'Most tags, of all APIs, whose counts wait in memory between two reports; verdicts with others are counted as `other`. Up to 700 bytes each',
  ),
};
