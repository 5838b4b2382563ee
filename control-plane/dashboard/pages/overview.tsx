import type { ComponentChildren } from 'preact';
import { call, listVerifiers, may, serverNow, type Verifier } from '../api/client.ts';
import { type Sample, useRates } from '../api/rates.ts';
import { CODES, COUNTERS, KINDS } from '../api/verdicts.ts';
import { Events, useNames } from '../audit/events.tsx';
import { FirstRun } from '../overview/first-run.tsx';
import { type Load, Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { duration } from '../parts/time.tsx';
import { Bars } from '../usage/charts.tsx';
import { Usage } from '../usage/usage.tsx';
import { type UsagePeriod, usageByApi, usageOfAll } from '../usage/usage-query.ts';

const REFRESH_MS = 2000;
const EVENTS_REFRESH_MS = 10_000;
const FINDINGS_REFRESH_MS = 60_000;
const EVENTS_LIMIT = '8';
/** Age of a report that needs attention; a report is due every few seconds. */
const LATE_MS = 20_000;

const REFUSALS = CODES.filter((code) => code !== 'VALID');

/** The current state of the service: verdicts, what needs attention, and the latest changes. */
export function Overview() {
  const [maySeeFleet, maySeeAudit] = [may('root.*.read_fleet'), may('root.*.read_audit')];
  const apis = useLoad(() => call('apis.listApis', { limit: '1' }), []);
  const isFirst = apis.data?.apis.length === 0 && may('api.*.create_api') && may('api.*.create_key');
  return (
    <Page title="Overview">
      {isFirst && <FirstRun />}
      {maySeeFleet && <FleetState />}
      {may('api.*.read_analytics') && <TrafficOfAll />}
      {maySeeAudit && <LastChanges />}
      {!maySeeFleet && !maySeeAudit && (
        <p class="quiet">
          This root key may see neither the fleet nor the audit log. <a href="#/apis">To the APIs</a>
        </p>
      )}
    </Page>
  );
}

function FleetState() {
  const verifiers = useLoad(listVerifiers, [], REFRESH_MS);
  const findings = useLoad(() => call('fleet.listFindings'), [], FINDINGS_REFRESH_MS);
  const samples = useRates(verifiers.data);
  return (
    <Loaded of={verifiers}>
      {(fleet) => (
        <>
          <Tiles verifiers={fleet} last={samples.at(-1)} />
          <Attention
            troubles={[...troublesOf(fleet), ...changesIn(findings)]}
            isExamined={!findings.failure}
          />
          <div class="panel">
            <Rates samples={samples} />
            <Reasons verifiers={fleet} />
          </div>
        </>
      )}
    </Loaded>
  );
}

/** The verifications of all APIs in a time that the reader chooses. */
function TrafficOfAll() {
  return (
    <>
      <h2>Traffic of all APIs</h2>
      <Usage
        load={async (period) => ({ verifications: await usageOfAll(period) })}
        below={(period) => <TrafficByApi key={`${period.granularity} ${period.start}`} period={period} />}
      />
    </>
  );
}

function TrafficByApi({ period }: { period: UsagePeriod }) {
  const usage = useLoad(() => usageByApi(period), []);
  if (!usage.data?.length) return null;
  return (
    <Table
      label="Traffic by API"
      rows={usage.data}
      id={({ apiId }) => apiId}
      empty=""
      columns={[
        { title: 'API', narrow: 'first', cell: ({ apiId }) => <a href={`#/apis/${apiId}`}>{apiId}</a> },
        { title: 'Verifications', number: true, cell: ({ total }) => total.toLocaleString() },
        {
          title: 'Refused',
          number: true,
          cell: ({ total, success }) => (total - success).toLocaleString(),
        },
        {
          title: 'Why',
          cell: (counts) =>
            COUNTERS.filter(({ field }) => field !== 'success' && counts[field] > 0)
              .map(({ name, field }) => `${counts[field].toLocaleString()} ${name}`)
              .join(', '),
        },
      ]}
    />
  );
}

function LastChanges() {
  const names = useNames();
  const events = useLoad(() => call('audit.listEvents', { limit: EVENTS_LIMIT }), [], EVENTS_REFRESH_MS);
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

function Tiles({ verifiers, last }: { verifiers: readonly Verifier[]; last: Sample | undefined }) {
  const memory = sum(verifiers, ({ verdicts }) => verdicts.memory);
  const redis = sum(verifiers, ({ verdicts }) => verdicts.redis);
  const refusals = last && REFUSALS.reduce((total, code) => total + last.codes[code], 0);
  const live = verifiers.filter(({ apis }) => apis.every(({ state }) => state === 'live')).length;
  return (
    <dl class="tiles">
      <Tile name="Verifications a second">{last ? number(last.memory + last.redis) : '…'}</Tile>
      <Tile name="Refused a second">{refusals === undefined ? '…' : number(refusals)}</Tile>
      <Tile name="Answered from memory">
        {share(last && last.memory + last.redis > 0 ? last : { memory, redis })}
      </Tile>
      <Tile name="Verifiers in sync">
        {live} of {verifiers.length}
      </Tile>
    </dl>
  );
}

function Attention({ troubles, isExamined }: { troubles: readonly string[]; isExamined: boolean }) {
  return (
    <section class={`panel attention ${troubles.length > 0 ? 'wanted' : ''}`} aria-label="Attention">
      <h2>Needs attention</h2>
      {troubles.length === 0 ? (
        <p class="quiet">
          Nothing. All verifiers report, and follow their APIs
          {isExamined ? ', and the settings of Redis fit.' : '; Redis could not be examined.'}
        </p>
      ) : (
        <ul>
          {troubles.map((trouble) => (
            <li key={trouble}>{trouble}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Rates({ samples }: { samples: readonly Sample[] }) {
  if (samples.length === 0)
    return <p class="quiet">Verifications a second are drawn here from the next report of a verifier on.</p>;
  return (
    <Bars
      label="Verifications since this page was opened"
      unit="a second"
      placesMin={30}
      series={Object.values(KINDS)}
      points={samples.map(({ at, codes }) => ({
        title: new Date(at).toLocaleTimeString(),
        values: CODES.map((code) => codes[code]),
      }))}
    />
  );
}

/** Refusals by their reason, since the verifiers started. */
function Reasons({ verifiers }: { verifiers: readonly Verifier[] }) {
  const counts = REFUSALS.map((code) => [code, sum(verifiers, ({ codes }) => codes?.[code] ?? 0)] as const);
  return (
    <>
      <h2>Refusals since the verifiers started</h2>
      <dl class="reasons" aria-label="Refusals since the verifiers started">
        {counts.map(([code, count]) => (
          <div key={code}>
            <dt title={code}>{KINDS[code].name}</dt>
            <dd>{count.toLocaleString()}</dd>
          </div>
        ))}
      </dl>
    </>
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

/** Describes problems that an operator should look at. */
function troublesOf(verifiers: readonly Verifier[]): string[] {
  if (verifiers.length === 0)
    return ['No verifier reports itself: nobody verifies keys, or none reaches Redis.'];
  const versions = new Set(verifiers.map(({ version }) => version));
  const each = verifiers.flatMap(({ host, id, apis, reportedAt }) => {
    const name = `${host} ${id.slice(-6)}`;
    const lateMs = serverNow() - reportedAt;
    const behind = apis.filter(({ state }) => state !== 'live');
    const lagging = apis.filter(({ state, lag }) => state === 'live' && lag > 0);
    return [
      ...(lateMs > LATE_MS ? [`${name} last reported itself ${duration(lateMs)} ago.`] : []),
      ...behind.map(({ apiId, state }) =>
        state === 'lapsed'
          ? `${name} lost its lease on ${apiId}: it asks Redis for each key.`
          : `${name} is not in sync with ${apiId}.`,
      ),
      ...lagging.map(({ apiId, lag }) => `${name} is ${lag} changes behind in ${apiId}.`),
    ];
  });
  return versions.size === 1
    ? each
    : [`Verifiers are of ${versions.size} versions: ${[...versions].join(', ')}.`, ...each];
}

/** The changes that the examination of Redis and the verifiers proposes. */
const changesIn = ({ data }: Load<{ findings: readonly { check: string; change?: string }[] }>) =>
  (data?.findings ?? []).flatMap(({ check, change }) =>
    change === undefined ? [] : [`${check}: ${change}.`],
  );

/** Formats the share of verdicts that came from memory. */
const share = ({ memory, redis }: { memory: number; redis: number }) =>
  memory + redis === 0 ? '–' : `${((100 * memory) / (memory + redis)).toFixed(1)} %`;

const sum = (verifiers: readonly Verifier[], of: (verifier: Verifier) => number) =>
  verifiers.reduce((total, verifier) => total + of(verifier), 0);

const number = (value: number) =>
  value.toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 });
