import { InvalidField, serverNow } from '../api/client.ts';

/** The query of `apis.listKeys` that a filter stands for. */
type Query = Readonly<Record<string, string>>;

const HOUR_MS = 3_600_000;
const UNITS: Readonly<Record<string, number>> = { h: HOUR_MS, d: 24 * HOUR_MS };
const STATES: Readonly<Record<string, Query>> = {
  enabled: { state: 'enabled' },
  disabled: { state: 'disabled' },
  expired: { state: 'expired' },
  stopped: { state: 'identity_disabled' },
  leaked: { leaked: 'true' },
  foreign: { foreign: 'true' },
};

/** Words that can stand before a colon, with the conditions that they stand for. */
const WORDS: Readonly<Record<string, (value: string) => Query | undefined>> = {
  state: (value) => STATES[value],
  unused: (value) => {
    if (value === 'never') return { neverUsed: 'true' };
    const ms = lengthOf(value);
    return ms === undefined ? undefined : { lastUsedBefore: momentIn(-ms) };
  },
  role: (value) => ({ role: value }),
  customer: (value) => ({ externalId: value }),
  expires: (value) => {
    const ms = lengthOf(value);
    // Those that have expired already are asked for by state:expired.
    return ms === undefined ? undefined : { state: 'enabled', expiresBefore: momentIn(ms) };
  },
};
const RULES: Readonly<Record<string, string>> = {
  state: `is one of ${Object.keys(STATES).join(', ')}`,
  unused: 'is never or a number of hours or days, such as 12h or 30d',
  expires: 'is a number of hours or days from now, such as 12h or 7d',
};

/** Lists that are asked for often, by their names. */
export const VIEWS: readonly (readonly [name: string, filter: string])[] = [
  ['All', ''],
  ['Leaked', 'state:leaked'],
  ['Expiring', 'expires:7d'],
  ['Never used', 'unused:never'],
  ['Unused for 30 days', 'unused:30d'],
  ['Disabled', 'state:disabled'],
];

/**
 * Reads a filter, such as `state:leaked unused:30d role:reader customer:"Acme & Co" words of the name`. Throws a Failure
 * that says what is wrong.
 */
export function queryOf(filter: string): Query {
  const query: Record<string, string> = {};
  const rest = filter.replaceAll(
    /(?<!\S)([a-z]+):(?:"([^"]*)"|(\S+))/g,
    (whole, word: string, quoted, plain) => {
      const read = WORDS[word];
      // A name may have a colon in it.
      if (!read) return whole;
      const condition = read(quoted ?? plain);
      if (!condition) throw new InvalidField('filter', `${word} ${RULES[word]}`);
      Object.assign(query, condition);
      return '';
    },
  );
  const search = rest.trim().replaceAll(/\s+/g, ' ');
  return search === '' ? query : { ...query, search };
}

/** To the hour, so that all pages of a list ask for the same. */
const momentIn = (ms: number) => String(Math.ceil((serverNow() + ms) / HOUR_MS) * HOUR_MS);

function lengthOf(text: string): number | undefined {
  const [, count, unit = ''] = /^(\d{1,4})([hd])$/.exec(text) ?? [];
  const length = UNITS[unit];
  return count === undefined || length === undefined ? undefined : Number(count) * length;
}
