import { useEffect, useState } from 'preact/hooks';
import type { VerdictCode } from '#shared/verdict-codes.ts';
import { listVerifiers, serverNow, type Verifier } from './api.ts';
import { history } from './change.tsx';
import { Bars, type Series } from './charts.tsx';
import { Loaded, useLoad } from './loading.tsx';
import { Badge, Page, Table, Time } from './parts.tsx';

const REFRESH_MS = 2000;

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
                  narrow: 'first',
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
                {
                  title: 'Verdicts',
                  number: true,
                  cell: ({ verdicts: v }) => (v.memory + v.redis).toLocaleString(),
                },
                { title: 'From memory', number: true, cell: hitRate },
                {
                  title: 'Keys in memory',
                  number: true,
                  cell: ({ keysInMemory }) => keysInMemory.toLocaleString(),
                },
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

/** Verdicts a second between two reports, since this page was opened. */
function Rates({ verifiers }: { verifiers: readonly Verifier[] }) {
  const samples = useRates(verifiers);
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

const SAMPLES_MAX = 60;
/** Kinds of verdicts, each with its name and its colour. */
export const KINDS = {
  VALID: { name: 'allowed', tone: 'good' },
  DISABLED: { name: 'disabled', tone: 'bad' },
  EXPIRED: { name: 'expired', tone: 'warn' },
  INSUFFICIENT_PERMISSIONS: { name: 'lacks a permission', tone: 'other' },
  RATE_LIMITED: { name: 'rate limited', tone: 'warn' },
  USAGE_EXCEEDED: { name: 'credits spent', tone: 'spent' },
  FORBIDDEN: { name: 'of another API', tone: 'other' },
  NOT_FOUND: { name: 'unknown key', tone: 'quiet' },
} satisfies Record<VerdictCode, Series>;
/** Their codes, in that order. */
export const CODES = Object.keys(KINDS) as VerdictCode[];

/** Verdicts a second between two reports of each verifier, all together. */
interface Sample {
  readonly at: number;
  readonly memory: number;
  readonly redis: number;
  /** By what they were; all 0 where verifiers are too old to say. */
  readonly codes: Readonly<Record<VerdictCode, number>>;
}

/** Samples of the verdicts a second, since this page was opened. */
export function useRates(verifiers: readonly Verifier[] | undefined): readonly Sample[] {
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const [before, setBefore] = useState<readonly Verifier[]>([]);
  useEffect(() => {
    if (!verifiers) return;
    const gained = verifiers.flatMap((now) => {
      const was = before.find(({ id }) => id === now.id);
      const seconds = was ? (now.reportedAt - was.reportedAt) / 1000 : 0;
      return was && seconds > 0 ? [{ now, was, seconds }] : [];
    });
    setBefore(verifiers);
    if (gained.length === 0) return;
    const rate = (of: (verifier: Verifier) => number) =>
      round(gained.reduce((sum, { now, was, seconds }) => sum + (of(now) - of(was)) / seconds, 0));
    const sample: Sample = {
      at: Date.now(),
      memory: rate(({ verdicts }) => verdicts.memory),
      redis: rate(({ verdicts }) => verdicts.redis),
      codes: Object.fromEntries(
        CODES.map((code) => [code, rate(({ codes }) => codes?.[code] ?? 0)]),
      ) as Sample['codes'],
    };
    setSamples((all) => [...all, sample].slice(-SAMPLES_MAX));
  }, [verifiers]);
  return samples;
}

const round = (rate: number) => Math.max(0, Math.round(rate * 10) / 10);
