import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { UsageField } from '#shared/protocol/records/usage.ts';
import { call } from '../api/client.ts';
import { COUNTERS } from '../api/verdicts.ts';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Bars, PLACES_MIN } from './charts.tsx';
import {
  type ChosenPeriod,
  MINUTE_PERIODS,
  PeriodChips,
  periodText,
  USAGE_PERIODS,
  usagePeriodOf,
} from './periods.tsx';
import { type Refused, RefusedKeys } from './refused-keys.tsx';
import { LENGTHS, type UsagePeriod } from './usage-query.ts';

const REFRESH_MS = 30_000;
export const LIVE_MS = 1000;
/** Verdicts of one hour or day, by their kinds. */
type Counts = Readonly<Record<UsageField, number>>;
export const totalOf = (counts: Counts) => COUNTERS.reduce((total, { field }) => total + counts[field], 0);

/** Shows the keys refused for one reason, in a part of the time or all of it, in one API or all. */
export type ShowRefused = (kind: Refused['kind'], at?: number, apiId?: string) => void;

/** Verdicts of a key, of an API or of all, by hour or day, in a time that the reader chooses. */
export function Usage(props: {
  load: (period: UsagePeriod) => Promise<{ verifications: readonly (Counts & { readonly time?: number })[] }>;
  title: string;
  /** True if it costs little, so that it is loaded each second. */
  isLive?: boolean;
  /** True if there are counts by the minute, which are shown first. */
  hasMinutes?: boolean;
  /** The APIs whose refused keys are shown if somebody asks for what is behind a refusal; absent = nobody can. */
  apiIds?: () => Promise<readonly string[]>;
  /** Shows more about the same period; what it is given shows the keys behind a refusal. */
  below?: (period: UsagePeriod, show: ShowRefused) => ComponentChildren;
}) {
  const [choice, setChoice] = useState<ChosenPeriod>({
    period: props.hasMinutes ? 'hour' : '24h',
    since: '',
    until: '',
  });
  const [refused, setRefused] = useState<Refused>();
  const { apiIds } = props;
  const load = async () => {
    const { granularity, since, until } = usagePeriodOf(choice);
    const period = { granularity, start: String(since), end: String(until - 1) };
    const { verifications } = await props.load(period);
    return { period, verifications: sinceFirst(verifications) };
  };
  const usage = useLoad(load, [choice], props.isLive ? LIVE_MS : REFRESH_MS);
  const show: ShowRefused = (kind, at, apiId) => {
    if (!usage.data) return;
    const { period, verifications } = usage.data;
    const { granularity } = period;
    const part = at === undefined ? verifications : [verifications[at]];
    const times = part.map((each) => each?.time ?? 0);
    const time = at === undefined ? periodText(choice) : TITLES[granularity].format(times[0]);
    const until = Math.max(...times) + LENGTHS[granularity] - 1;
    setRefused({ kind, time, apiId, since: String(Math.min(...times)), until: String(until) });
  };
  const choose = (next: ChosenPeriod) => {
    setChoice(next);
    setRefused(undefined);
  };
  return (
    <div class="panel">
      <div class="head">
        <h2>{props.title}</h2>
        <PeriodChips
          value={choice}
          names={props.hasMinutes ? MINUTE_PERIODS : USAGE_PERIODS}
          onChoose={choose}
        />
      </div>
      <Loaded of={usage}>
        {({ period: { granularity }, verifications }) =>
          verifications.every((at) => totalOf(at) === 0) ? (
            <p class="quiet">No verification was reported for this time.</p>
          ) : (
            <Bars
              label={`Verifications by the ${granularity}`}
              unit=""
              series={COUNTERS}
              points={verifications.map((at) => ({
                title: TITLES[granularity].format(at.time),
                values: COUNTERS.map(({ field }) => at[field]),
              }))}
              behind={(series, at) => {
                const kind = COUNTERS[series];
                if (!apiIds || !kind || kind.code === 'VALID') return undefined;
                return () => show(kind, at);
              }}
            />
          )
        }
      </Loaded>
      {refused && apiIds && (
        <RefusedKeys of={refused} apiIds={apiIds} onClose={() => setRefused(undefined)} />
      )}
      {usage.data && props.below?.(usage.data.period, show)}
    </div>
  );
}

/** Leaves out what lies before the first verification, as far as the rest is enough for a chart. */
const sinceFirst = <T extends Counts>(points: readonly T[]): readonly T[] =>
  points.slice(
    Math.max(
      0,
      Math.min(
        points.findIndex((at) => totalOf(at) > 0),
        points.length - PLACES_MIN,
      ),
    ),
  );

/** Counts by day are those of days in UTC. */
const TITLES = {
  minute: new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' }),
  hour: new Intl.DateTimeFormat(undefined, { weekday: 'short', hour: '2-digit', minute: '2-digit' }),
  day: new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', timeZone: 'UTC' }),
};

const DAY_HOURS = 24;

/**
 * Verdicts of an API in the last 24 hours: how many, how many of them refusals, and how they are spread over
 * time.
 */
export function Traffic({ apiId }: { apiId: string }) {
  const usage = useLoad(() => call('apis.getVerifications', { apiId, granularity: 'hour' }), [], REFRESH_MS);
  // Also if this root key may not see them, which the list need not say in every row.
  if (!usage.data) return <span class="quiet none">{usage.failure ? '–' : '…'}</span>;
  const hours = usage.data.verifications.slice(-DAY_HOURS);
  const total = hours.reduce((sum, hour) => sum + totalOf(hour), 0);
  if (total === 0) return <span class="quiet none">none</span>;
  const refusals = total - hours.reduce((sum, { success }) => sum + success, 0);
  const highest = Math.max(...hours.map(totalOf));
  return (
    <span class="traffic">
      <svg viewBox={`0 0 ${3 * DAY_HOURS} 20`} aria-hidden="true">
        {hours.map((hour, i) => {
          const [height, good] = [(20 * totalOf(hour)) / highest, (20 * hour.success) / highest];
          return (
            <g key={hour.time}>
              <rect class="bad" x={3 * i} y={20 - height} width="2" height={height - good} />
              <rect class="good" x={3 * i} y={20 - good} width="2" height={good} />
            </g>
          );
        })}
      </svg>{' '}
      {total.toLocaleString()}
      {refusals > 0 && <small> {refusals.toLocaleString()} refused</small>}
    </span>
  );
}
