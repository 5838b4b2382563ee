import { useState } from 'preact/hooks';
import { limitParts, type UNITS } from '#shared/protocol/records/limit.ts';
import { Options } from './forms.tsx';

export const NAMES = {
  s: 'seconds',
  m: 'minutes',
  h: 'hours',
  d: 'days',
  ms: 'milliseconds',
} as const satisfies Record<keyof typeof UNITS, string>;
export const PERIODS = {
  hour: 'calendar hour',
  day: 'calendar day',
  week: 'calendar week',
  month: 'calendar month',
};

/**
 * Inputs for a rate limit, in words: so many calls per so much time, or per period of the calendar. A form gets the text that
 * `limitOf` parses.
 */
export function LimitInput({ id, name, text }: { id: string; name: string; text: string }) {
  const { limit = '', amount = '', unit = 's', isExact = false, rest } = limitParts(text) ?? {};
  const [entry, setEntry] = useState({ limit, amount, unit, isExact });
  const input = (key: 'limit' | 'amount', label: string) => ({
    'aria-label': label,
    value: entry[key],
    inputMode: 'numeric' as const,
    autocomplete: 'off',
    onInput: (event: { currentTarget: HTMLInputElement }) =>
      setEntry({ ...entry, [key]: event.currentTarget.value.trim() }),
  });
  const isQuota = entry.unit in PERIODS;
  const isEmpty = entry.limit === '' && (isQuota || entry.amount === '');
  const suffix = `${entry.isExact ? ' exact' : ''}${rest && entry.unit === unit ? ` ${rest}` : ''}`;
  const value = `${entry.limit}/${isQuota ? '' : entry.amount}${entry.unit}${suffix}`;
  return (
    <span class="limit">
      <input id={id} {...input('limit', 'Calls')} /> per{' '}
      {!isQuota && <input {...input('amount', 'Length')} />}
      <select aria-label="Unit" onChange={(event) => setEntry({ ...entry, unit: event.currentTarget.value })}>
        <Options of={{ ...NAMES, ...PERIODS }} value={entry.unit} />
      </select>
      <label
        class="check"
        title="No verifier admits more than the limit, at the price of a call of Redis each"
      >
        <input
          type="checkbox"
          checked={entry.isExact}
          onChange={(event) => setEntry({ ...entry, isExact: event.currentTarget.checked })}
        />{' '}
        exact
      </label>
      <input type="hidden" name={name} value={isEmpty ? '' : value} />
    </span>
  );
}
