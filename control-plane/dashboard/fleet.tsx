import { useEffect, useState } from 'preact/hooks';
import { listVerifiers, serverNow, type Verifier } from './api.ts';
import { history } from './change.tsx';
import { Bars } from './charts.tsx';
import { Loaded, useLoad } from './loading.tsx';
import { Badge, Page, Table, Time } from './parts.tsx';

const REFRESH_MS = 2000;
const SAMPLES_MAX = 60;

/** The verifiers as they reported themselves lately, how much they answer, and how quickly changes reached them. */
export function Fleet() {
  const verifiers = useLoad(listVerifiers, [], REFRESH_MS);
  return (
    <Page title="Fleet">
      <Loaded of={verifiers}>
        {(found) => (
          <>
            <Table
              label="Verifiers"
              rows={found}
              id={({ id }) => id}
              empty="No verifier has reported itself. Each does so when it starts."
              columns={[
                {
                  title: 'Verifier',
                  cell: ({ host, id, version, protocol = 1 }) => (
                    <>
                      {host} <code>{id.slice(-6)}</code>{' '}
                      <small>
                        {version}, protocol {protocol}
                      </small>
                    </>
                  ),
                },
                { title: 'Started', cell: ({ startedAt }) => <Time at={startedAt} /> },
                {
                  title: 'Reported',
                  cell: ({ reportedAt }) => <span class="nowrap">{ago(reportedAt)} ago</span>,
                },
                { title: 'Verdicts', cell: ({ verdicts: v }) => (v.memory + v.redis).toLocaleString() },
                { title: 'From memory', cell: hitRate },
                { title: 'Keys in memory', cell: ({ keysInMemory }) => keysInMemory.toLocaleString() },
                { title: 'APIs', cell: (verifier) => <Followed by={verifier} /> },
              ]}
            />
            <Rates verifiers={found} />
          </>
        )}
      </Loaded>
      {history.length > 0 ? (
        <div class="panel">
          <Bars
            label="How long changes made here took to be complete"
            unit="ms"
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
      ) : (
        <p class="quiet">
          Once keys are changed here, this page shows how long each change took to be complete.
        </p>
      )}
    </Page>
  );
}

function Followed({ by }: { by: Verifier }) {
  const { apis, apisNotShown } = by;
  const live = apis.filter(({ state }) => state === 'live').length + apisNotShown;
  const all = apis.length + apisNotShown;
  if (all === 0) return <span class="quiet">none yet</span>;
  return (
    <details>
      <summary>
        <Badge kind={live === all ? 'good' : 'warn'}>
          {live} of {all} live
        </Badge>
      </summary>
      <ul>
        {apis.map(({ apiId, state, lag, leaseRemainingMs, position }) => (
          <li key={apiId}>
            <a href={`#/apis/${apiId}`}>{apiId}</a> {state}, at change {position}, lag {lag}, lease{' '}
            {(leaseRemainingMs / 1000).toFixed(1)} s
          </li>
        ))}
        {apisNotShown > 0 && <li>and {apisNotShown} more</li>}
      </ul>
    </details>
  );
}

interface Sample {
  readonly at: number;
  readonly memory: number;
  readonly redis: number;
}

/** Verdicts a second between two reports, since this page was opened. */
function Rates({ verifiers }: { verifiers: readonly Verifier[] }) {
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const [before, setBefore] = useState<readonly Verifier[]>([]);
  useEffect(() => {
    const gained = verifiers.flatMap((now) => {
      const was = before.find(({ id }) => id === now.id);
      const seconds = was ? (now.reportedAt - was.reportedAt) / 1000 : 0;
      if (!was || seconds <= 0) return [];
      return [
        {
          memory: (now.verdicts.memory - was.verdicts.memory) / seconds,
          redis: (now.verdicts.redis - was.verdicts.redis) / seconds,
        },
      ];
    });
    setBefore(verifiers);
    if (gained.length === 0) return;
    const sum = (of: 'memory' | 'redis') =>
      Math.round(gained.reduce((total, rates) => total + rates[of], 0) * 10) / 10;
    const sample = { at: Date.now(), memory: sum('memory'), redis: sum('redis') };
    setSamples((all) => [...all, sample].slice(-SAMPLES_MAX));
  }, [verifiers]);
  if (samples.length === 0) return null;
  return (
    <div class="panel">
      <Bars
        label="Verdicts since this page was opened"
        unit="a second"
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

const ago = (at: number) => `${Math.max(0, Math.round((serverNow() - at) / 1000))} s`;
