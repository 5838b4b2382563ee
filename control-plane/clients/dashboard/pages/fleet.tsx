import type { Following } from '#shared/protocol/records/verifier-status.ts';
import { lastKnownFleet, type Verifier } from '../api/client.ts';
import { useRates } from '../api/rates.ts';
import { history } from '../changes/follow.ts';
import { ApiLink } from '../parts/api-name.tsx';
import { Badge } from '../parts/badge.tsx';
import { counted } from '../parts/counted.ts';
import { LastKnown, silenceText } from '../parts/fleet.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Bars } from '../usage/charts.tsx';

const REFRESH_MS = 2000;

/** The verifiers' recent reports, their verdicts per second, and how quickly changes became complete. */
export function Fleet() {
  const verifiers = useLoad(lastKnownFleet, [], REFRESH_MS);
  return (
    <Page title="Fleet">
      <Loaded of={verifiers}>
        {(fleet) => (
          <>
            {fleet.isSilent && (
              <p class="problem" role="status">
                {silenceText(fleet)}. Each reports every few seconds, as long as it reaches Redis.
              </p>
            )}
            <LastKnown of={fleet}>
              <VerifierTable verifiers={fleet.verifiers} />
            </LastKnown>
            <Rates verifiers={fleet.verifiers} />
          </>
        )}
      </Loaded>
      <CompletionTimes />
    </Page>
  );
}

function VerifierTable({ verifiers }: { verifiers: readonly Verifier[] }) {
  return (
    <Table
      label="Verifiers"
      rows={verifiers}
      id={({ id }) => id}
      empty="No verifier reports at the moment. Each does so every few seconds, as long as it reaches Redis."
      columns={[
        {
          title: 'Verifier',
          narrow: 'first',
          cell: ({ host, id, version, protocol = 1, region, roundTripMs }) => (
            <>
              {host} <code>{id.slice(-6)}</code>{' '}
              <small>
                {region && `${region}, `}
                {version}, protocol {protocol}
                {roundTripMs ? `, ${roundTripMs} ms to Redis` : ''}
              </small>
            </>
          ),
        },
        { title: 'Started', narrow: 'none', cell: ({ startedAt }) => <Time at={startedAt} /> },
        {
          title: 'Reported',
          cell: ({ reportedAt }) => <Time at={reportedAt} />,
        },
        {
          title: 'Verifications',
          number: true,
          cell: ({ verdicts: v }) => (v.memory + v.redis).toLocaleString(),
        },
        { title: 'Answered from memory', number: true, cell: hitRate },
        {
          title: 'Keys in memory',
          number: true,
          cell: ({ keysInMemory }) => keysInMemory.toLocaleString(),
        },
        { title: 'APIs', cell: (verifier) => <FollowedApis by={verifier} /> },
      ]}
      details={(verifier) => <Standings of={verifier} />}
    />
  );
}

/** A chart of the times that changes made in this tab took to become complete. */
function CompletionTimes() {
  if (history.length === 0)
    return (
      <p class="quiet">
        Once keys are changed here, this page shows how long each change took to be complete.
      </p>
    );
  return (
    <div class="panel">
      <Bars
        label="How long changes made here took to be complete"
        unit="ms"
        placesMin={30}
        logarithmic
        series={[
          { name: 'acknowledged by all', tone: 'good' },
          { name: 'by fence', tone: 'warn' },
        ]}
        points={history.map(({ at, tookMs, by }, i) => ({
          title: `${i + 1}. ${new Date(at).toLocaleTimeString()}`,
          values: by === 'acks' ? [tookMs, 0] : [0, tookMs],
        }))}
      />
    </div>
  );
}

function FollowedApis({ by }: { by: Verifier }) {
  const { apis, apisNotShown, sharedLog } = by;
  const live = apis.filter(({ state }) => state === 'live').length + apisNotShown;
  const all = apis.length + apisNotShown;
  const isLate = sharedLog !== undefined && sharedLog.state !== 'live';
  if (all === 0 && !sharedLog) return <span class="quiet">none yet</span>;
  return (
    <>
      <Badge kind={live === all ? 'good' : 'warn'}>
        {live} of {all} live
      </Badge>{' '}
      {isLate && <Badge kind="warn">roles and identities {sharedLog.state}</Badge>}
    </>
  );
}

/** The standing of a verifier in each of its APIs. */
function Standings({ of: { apis, apisNotShown, sharedLog } }: { of: Verifier }) {
  return (
    <ul class="plain">
      {apis.map((api) => (
        <li key={api.apiId}>
          <ApiLink id={api.apiId} /> <Standing of={api} />
        </li>
      ))}
      {apisNotShown > 0 && <li>and {apisNotShown} more</li>}
      {sharedLog && (
        <li>
          Roles and identities: <Standing of={sharedLog} />
        </li>
      )}
    </ul>
  );
}

function Standing({ of: { state, position, lag, leaseRemainingMs } }: { of: Following }) {
  return (
    <>
      {state}, at change {position}, {lag === 0 ? 'up to date' : `${counted(lag, 'change')} behind`}, answers
      from memory for {(leaseRemainingMs / 1000).toFixed(1)} s without Redis
    </>
  );
}

/** A chart of verdicts per second between two reports, since this page was opened. */
function Rates({ verifiers }: { verifiers: readonly Verifier[] }) {
  const samples = useRates(verifiers);
  if (samples.length === 0) return null;
  return (
    <div class="panel">
      <Bars
        label="Verdicts since this page was opened"
        unit="a second"
        placesMin={30}
        series={[
          { name: 'from memory', tone: 'good' },
          { name: 'from Redis', tone: 'other' },
        ]}
        points={samples.map(({ at, memory, redis }) => ({
          title: new Date(at).toLocaleTimeString(),
          values: [memory, redis],
        }))}
      />
    </div>
  );
}

function hitRate({ verdicts: { memory, redis } }: Verifier): string {
  return memory + redis === 0 ? '–' : `${((100 * memory) / (memory + redis)).toFixed(1)} %`;
}
