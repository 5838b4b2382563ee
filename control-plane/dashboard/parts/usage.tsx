import { useState } from 'preact/hooks';
import type { Granularity, UsageField } from '#shared/contract/usage.ts';
import { call } from '../api/client.ts';
import { COUNTERS } from '../api/verdicts.ts';
import { Bars } from './charts.tsx';
import { Loaded, useLoad } from './loading.tsx';

const REFRESH_MS = 30_000;
/** Verdicts of one hour or day, by their kinds. */
type Counts = Readonly<Record<UsageField, number>>;
const totalOf = (counts: Counts) => COUNTERS.reduce((total, { field }) => total + counts[field], 0);

/** Verdicts of a key or of an API, by hour or day. */
export function Usage(props: {
  load: (
    granularity: Granularity,
  ) => Promise<{ verifications: readonly (Counts & { readonly time?: number })[] }>;
}) {
  const [granularity, setGranularity] = useState<Granularity>('hour');
  const usage = useLoad(() => props.load(granularity), [granularity], REFRESH_MS);
  const titleOf = new Intl.DateTimeFormat(
    undefined,
    granularity === 'hour'
      ? { weekday: 'short', hour: '2-digit', minute: '2-digit' }
      : { dateStyle: 'medium', timeZone: 'UTC' },
  );
  return (
    <div class="panel">
      <fieldset class="row">
        <legend class="unseen">Counted</legend>
        {(['hour', 'day'] as const).map((value) => (
          <label class="check" key={value}>
            <input
              type="radio"
              name="granularity"
              checked={granularity === value}
              onChange={() => setGranularity(value)}
            />{' '}
            by the {value}
          </label>
        ))}
      </fieldset>
      <Loaded of={usage}>
        {({ verifications }) =>
          verifications.every((at) => totalOf(at) === 0) ? (
            <p class="quiet">No verification was reported yet; verifiers report once a minute.</p>
          ) : (
            <Bars
              label={`Verifications by the ${granularity}`}
              unit=""
              series={COUNTERS}
              points={verifications.map((at) => ({
                title: titleOf.format(at.time),
                values: COUNTERS.map(({ field }) => at[field]),
              }))}
            />
          )
        }
      </Loaded>
    </div>
  );
}

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
