import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import {
  call,
  type Fleet,
  lastKnownFleet,
  may,
  events as sessionEvents,
  type Verifier,
} from '../api/client.ts';
import { type Sample, useRates } from '../api/rates.ts';
import { COUNTERS } from '../api/verdicts.ts';
import { Events, useNames } from '../audit/events.tsx';
import { FirstRun } from '../overview/first-run.tsx';
import {
  Inbox,
  refusalTrouble,
  share,
  type Trouble,
  troublesOf,
  uncheckedTrouble,
  useInbox,
} from '../overview/inbox.tsx';
import { ApiLink } from '../parts/api-name.tsx';
import { Dock } from '../parts/dock.tsx';
import { LastKnown } from '../parts/fleet.tsx';
import { type Load, Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { type Refused, RefusedKeys } from '../usage/refused-keys.tsx';
import { type ShowRefused, totalOf, Usage } from '../usage/usage.tsx';
import { countedApis, minutesOfAll, type UsagePeriod, usageByApi, usageOfAll } from '../usage/usage-query.ts';

const REFRESH_MS = 2000;
const MINUTES_REFRESH_MS = 30_000;
const EVENTS_REFRESH_MS = 10_000;
const EVENTS_LIMIT = '8';

/** Tells whether there is nothing but one API, or none, that was never asked for a key, as far as that is known. */
async function firstApi(): Promise<{ isFirst: boolean; apiId?: string }> {
  if (!may('api.*.create_api') || !may('api.*.create_key') || !may('api.*.read_analytics'))
    return { isFirst: false };
  const [api, ...others] = (await call('apis.listApis', { limit: '2' })).apis;
  if (!api) return { isFirst: true };
  if (others.length > 0) return { isFirst: false };
  const { verifications } = await call('apis.getVerifications', { apiId: api.id, granularity: 'day' });
  return { isFirst: verifications.every((day) => totalOf(day) === 0), apiId: api.id };
}

/** The current state of the service: verdicts, what needs attention, and the latest changes. */
export function Overview() {
  const [maySeeFleet, maySeeAudit] = [may('root.*.read_fleet'), may('root.*.read_audit')];
  const first = useLoad(() => firstApi().catch(() => ({ isFirst: false, apiId: undefined })), []);
  return (
    <Page title="Overview">
      {/* Nothing is drawn above what the reader may already look at. */}
      <Loaded of={first}>
        {({ isFirst, apiId }) => (
          <>
            {isFirst && <FirstRun apiId={apiId} />}
            {maySeeFleet && <FleetState />}
            {may('api.*.read_analytics') && <TrafficOfAll />}
            {maySeeAudit && <LastChanges />}
            {!maySeeFleet && !maySeeAudit && (
              <p class="quiet">
                This root key may see neither the fleet nor the audit log. <a href="#/apis">To the APIs</a>
              </p>
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function FleetState() {
  const verifiers = useLoad(lastKnownFleet, [], REFRESH_MS);
  const samples = useRates(verifiers.data?.verifiers);
  const { troubles, reload, receipts } = useInbox();
  const lastMinutes = useLoad(
    () => (may('api.*.read_analytics') ? minutesOfAll() : Promise.resolve([])),
    [],
    MINUTES_REFRESH_MS,
  );
  // The running minute is not reported yet.
  const minutes = lastMinutes.data?.slice(-6, -1) ?? [];
  const [refused, setRefused] = useState<Refused>();
  const parts = [
    troublesIn(verifiers, 'Verifiers', troublesOf),
    troublesIn(lastMinutes, 'Refusals', () => refusalTrouble(minutes, setRefused)),
    troubles,
  ];
  const fleet = verifiers.data;
  return (
    <>
      <Inbox
        reload={reload}
        troubles={parts.some((part) => !part) ? undefined : parts.flatMap((part) => part ?? [])}
      />
      <Dock>{receipts}</Dock>
      {refused && <RefusedKeys of={refused} apiIds={countedApis} onClose={() => setRefused(undefined)} />}
      {fleet ? (
        <LastKnown of={fleet}>
          <Tiles fleet={fleet} last={fleet.isSilent ? undefined : samples.at(-1)} minutes={minutes} />
        </LastKnown>
      ) : (
        <Loaded of={verifiers}>{() => null}</Loaded>
      )}
    </>
  );
}

/** The troubles in what was loaded; undefined = it is not there yet. */
function troublesIn<T>(
  { data, failure }: Load<T>,
  name: string,
  find: (data: T) => readonly Trouble[],
): readonly Trouble[] | undefined {
  if (data === undefined && !failure) return undefined;
  return [...(failure ? uncheckedTrouble(name, failure) : []), ...(data === undefined ? [] : find(data))];
}

/** The verifications of all APIs in a time that the reader chooses. */
function TrafficOfAll() {
  return (
    <>
      <Usage
        title="Traffic of all APIs"
        hasMinutes
        apiIds={countedApis}
        load={async (period) => ({ verifications: await usageOfAll(period) })}
        below={(period, show) => (
          <TrafficByApi key={`${period.granularity} ${period.start}`} period={period} show={show} />
        )}
      />
    </>
  );
}

function TrafficByApi(props: { period: UsagePeriod; show: ShowRefused }) {
  const { period, show } = props;
  const usage = useLoad(() => usageByApi(period), []);
  return (
    <Loaded of={usage}>
      {(rows) =>
        rows.length > 0 && (
          <Table
            label="Traffic by API"
            rows={rows}
            id={({ apiId }) => apiId}
            empty=""
            columns={[
              { title: 'API', narrow: 'first', cell: ({ apiId }) => <ApiLink id={apiId} /> },
              { title: 'Verifications', number: true, cell: ({ total }) => total.toLocaleString() },
              {
                title: 'Refused',
                number: true,
                cell: ({ total, success }) => (total - success).toLocaleString(),
              },
              {
                title: 'Why',
                cell: (counts) =>
                  COUNTERS.filter(({ field }) => field !== 'success' && counts[field] > 0).map((kind, i) => (
                    <>
                      {i > 0 && ', '}
                      <button type="button" class="link" onClick={() => show(kind, undefined, counts.apiId)}>
                        {counts[kind.field].toLocaleString()} {kind.name}
                      </button>
                    </>
                  )),
              },
            ]}
          />
        )
      }
    </Loaded>
  );
}

function LastChanges() {
  const names = useNames();
  const events = useLoad(() => call('audit.listEvents', { limit: EVENTS_LIMIT }), [], EVENTS_REFRESH_MS);
  useEffect(() => {
    sessionEvents.addEventListener('changed', events.reload);
    return () => sessionEvents.removeEventListener('changed', events.reload);
  }, []);
  return (
    <>
      <div class="title">
        <h2>Last changes</h2>
        <a href="#/audit">All of the audit log</a>
      </div>
      <Loaded of={events}>
        {(page) => <Events events={page.events} names={names} empty="Nothing was changed yet." />}
      </Loaded>
    </>
  );
}

function Tiles(props: {
  fleet: Fleet;
  last: Sample | undefined;
  minutes: Awaited<ReturnType<typeof minutesOfAll>>;
}) {
  const { last, minutes } = props;
  const { verifiers, isSilent } = props.fleet;
  const memory = sum(verifiers, ({ verdicts }) => verdicts.memory);
  const redis = sum(verifiers, ({ verdicts }) => verdicts.redis);
  const live = verifiers.filter(({ apis }) => apis.every(({ state }) => state === 'live')).length;
  const total = minutes.reduce((all, minute) => all + totalOf(minute), 0);
  const allowed = minutes.reduce((all, { success }) => all + success, 0);
  return (
    <dl class="tiles">
      {/* From the reports of the last minutes until two of this page make a rate. */}
      <Tile name="Verifications a second">
        {last ? number(last.memory + last.redis) : total === 0 ? '–' : number(total / minutes.length / 60)}
      </Tile>
      <Tile name="Refused in 5 minutes">{share(total - allowed, total)}</Tile>
      <Tile name="Answered from memory">{share(memory, memory + redis)}</Tile>
      <Tile name="Verifiers in sync">
        {isSilent ? '?' : live} of {verifiers.length}
      </Tile>
    </dl>
  );
}

function Tile({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="panel">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const sum = (verifiers: readonly Verifier[], of: (verifier: Verifier) => number) =>
  verifiers.reduce((total, verifier) => total + of(verifier), 0);

const number = (value: number) =>
  value.toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 });
