import { serverNow } from '../api/client.ts';

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
const UNITS = [
  ['second', 1000, 60],
  ['minute', 60_000, 60],
  ['hour', 3_600_000, 24],
  ['day', 86_400_000, 30],
] as const;

/**
 * A time relative to now, with the exact time on hover, or only the exact time with `exact`; shows
 * `placeholder` if `at` is undefined.
 */
export function Time(props: { at: number | undefined; placeholder?: string; exact?: boolean }) {
  const { at, placeholder = '–', exact = false } = props;
  // A verifier may report a time that no calendar has.
  const date = new Date(at ?? Number.NaN);
  if (at === undefined || Number.isNaN(date.getTime())) return <span class="quiet none">{placeholder}</span>;
  const text = EXACT.format(date);
  const near = relative(at - serverNow());
  return (
    <time dateTime={date.toISOString()} title={text}>
      {exact ? text : (near ?? DAY.format(date))}
      {exact && near && <small> {near}</small>}
    </time>
  );
}

/** Formats a relative time, such as "5 minutes ago"; undefined beyond a month. */
function relative(ms: number): string | undefined {
  for (const [unit, length, max] of UNITS) {
    const count = Math.round(ms / length);
    if (Math.abs(count) < max)
      return RELATIVE.format(unit === 'second' && Math.abs(count) < 5 ? 0 : count, unit);
  }
  return undefined;
}

/** Formats a duration: milliseconds below a second, seconds above. */
export const duration = (ms: number) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
