import { serverNow } from '../api/client.ts';
import { Choice, Field, fieldsOf } from '../forms/forms.tsx';

/** A time from `since` until before `until`, Unix milliseconds. */
export interface Period {
  readonly since: number;
  readonly until: number;
}
/** A period of which one end may be open. */
type OpenPeriod = { readonly [End in keyof Period]: number | undefined };

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
/** The server keeps counts by hour and by day for so long. */
const KEPT_MS = { hour: 48 * HOUR_MS, day: 31 * DAY_MS } as const;

/** Returns when a day begins in the reader's time zone. */
const dayBegin = (daysAgo: number): number => {
  const now = new Date(serverNow());
  return new Date(now.getFullYear(), now.getMonth(), now.getDate() - daysAgo).getTime();
};

const lastMs = (ms: number) => (): Period => ({ since: serverNow() - ms, until: serverNow() + 1 });
const PRESETS = {
  hour: { text: 'last hour', chip: '1 h', of: lastMs(HOUR_MS) },
  '24h': { text: 'last 24 hours', chip: '24 h', of: lastMs(DAY_MS) },
  today: { text: 'today', chip: 'today', of: (): Period => ({ since: dayBegin(0), until: dayBegin(-1) }) },
  yesterday: {
    text: 'yesterday',
    chip: 'yesterday',
    of: (): Period => ({ since: dayBegin(1), until: dayBegin(0) }),
  },
  '7d': { text: 'last 7 days', chip: '7 d', of: lastMs(7 * DAY_MS) },
  '31d': { text: 'last 31 days', chip: '31 d', of: lastMs(31 * DAY_MS) },
} as const;
type Preset = keyof typeof PRESETS;

/** The presets of a list, and `custom`, for which the reader enters both times; '' = any time. */
export type PeriodName = Preset | 'custom' | '';

/** A choice of a period as a form has it: its name, and two local times if it is `custom`. */
export interface ChosenPeriod {
  readonly period: string;
  readonly since: string;
  readonly until: string;
}

/** Returns the chosen period now; undefined = any time, or a custom period whose times are not both there. */
export function periodOf({ period, since, until }: ChosenPeriod): OpenPeriod | undefined {
  if (period === 'custom') {
    const times = { since: momentOf(since), until: momentOf(until) };
    return times.since === undefined && times.until === undefined ? undefined : times;
  }
  return Object.hasOwn(PRESETS, period) ? PRESETS[period as Preset].of() : undefined;
}

/** Returns the Unix milliseconds of a date or datetime input; undefined = empty or not a time. */
function momentOf(text: string): number | undefined {
  const at = new Date(text.length === 10 ? `${text}T00:00` : text).getTime();
  return Number.isNaN(at) ? undefined : Math.max(0, at);
}

/** Names a chosen period in a sentence. */
export const periodText = ({ period }: ChosenPeriod): string =>
  Object.hasOwn(PRESETS, period) ? PRESETS[period as Preset].text : 'in this time';

/** The inputs that choose a period, in a search form. */
export function PeriodFields({ value, names }: { value: ChosenPeriod; names: readonly PeriodName[] }) {
  const textOf = (name: PeriodName) =>
    name === '' ? 'any time' : name === 'custom' ? 'custom…' : PRESETS[name].text;
  return (
    <>
      <Choice
        label="Time"
        name="period"
        value={value.period}
        options={Object.fromEntries(names.map((name) => [name, textOf(name)]))}
      />
      {value.period === 'custom' && (
        <>
          <Field type="datetime-local" label="From" name="since" defaultValue={value.since} />
          <Field
            type="datetime-local"
            label="To"
            hint="not included"
            name="until"
            defaultValue={value.until}
          />
        </>
      )}
    </>
  );
}

/** The same as chips, of which a click shows another period at once; `custom` has a form beside it. */
export function PeriodChips(props: {
  value: ChosenPeriod;
  names: readonly Exclude<PeriodName, ''>[];
  onChoose: (choice: ChosenPeriod) => void;
}) {
  const { value, names, onChoose } = props;
  return (
    <fieldset class="views" aria-label="Period">
      {names.map((name) => (
        <button
          key={name}
          type="button"
          class="view"
          aria-pressed={value.period === name}
          onClick={() => onChoose({ ...value, period: name })}
        >
          {name === 'custom' ? 'custom…' : PRESETS[name].chip}
        </button>
      ))}
      {value.period === 'custom' && (
        <form
          class="row"
          aria-label="Custom period"
          onSubmit={(event) => {
            const entry = fieldsOf(event);
            onChoose({ ...value, since: entry('since'), until: entry('until') });
          }}
        >
          <Field type="date" label="From" name="since" defaultValue={value.since} />
          <Field type="date" label="To" hint="not included" name="until" defaultValue={value.until} />
          <button type="submit">Show</button>
        </form>
      )}
    </fieldset>
  );
}

/** The presets for counts by hour or day. */
export const USAGE_PERIODS = ['24h', 'today', 'yesterday', '7d', '31d', 'custom'] as const;
/** The same where counts are kept by the minute too. */
export const MINUTE_PERIODS = ['hour', ...USAGE_PERIODS] as const;

/** A period of counts, and whether they are those of hours or of days: hours are kept for two days only. */
export function usagePeriodOf(
  choice: ChosenPeriod,
): Period & { readonly granularity: 'minute' | 'hour' | 'day' } {
  if (choice.period === 'hour') return { ...PRESETS.hour.of(), granularity: 'minute' };
  const { since = 0, until = serverNow() } = periodOf(choice) ?? PRESETS['24h'].of();
  const isRecent = since > serverNow() - KEPT_MS.hour && until - since <= KEPT_MS.hour;
  const earliest = serverNow() - KEPT_MS.day;
  return {
    since: Math.max(since, earliest),
    until: Math.min(until, serverNow()),
    granularity: isRecent ? 'hour' : 'day',
  };
}
