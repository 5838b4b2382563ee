import { lastKnownFleet } from '../api/client.ts';
import { Badge } from '../parts/badge.tsx';
import { counted } from '../parts/counted.ts';
import { LastKnown, silenceText } from '../parts/fleet.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';

const REFRESH_MS = 30_000;

/** The verifiers that answer from memory for keys of this API, and how up to date each is. */
export function Holders({ apiId }: { apiId: string }) {
  const verifiers = useLoad(lastKnownFleet, [], REFRESH_MS);
  return (
    <Loaded of={verifiers}>
      {(fleet) => (
        <>
          {fleet.isSilent && <p role="status">{silenceText(fleet)}.</p>}
          <LastKnown of={fleet}>
            <Table
              label="Verifiers that have its API"
              rows={fleet.verifiers.flatMap(({ id, host, apis }) =>
                apis.filter((api) => api.apiId === apiId).map((api) => ({ ...api, id, host })),
              )}
              id={({ id }) => id}
              empty="No verifier has its API yet: the first verification of a key of this API brings it there."
              columns={[
                {
                  title: 'Verifier',
                  narrow: 'first',
                  cell: ({ id, host }) => (
                    <>
                      {host} <code>{id.slice(-6)}</code>
                    </>
                  ),
                },
                {
                  title: 'State',
                  narrow: 'beside',
                  cell: ({ state, lag }) => (
                    <Badge kind={state === 'live' && lag === 0 ? 'good' : 'warn'}>
                      {state === 'live'
                        ? lag === 0
                          ? 'up to date'
                          : `${counted(lag, 'change')} behind`
                        : state}
                    </Badge>
                  ),
                },
                { title: 'At change', number: true, cell: ({ position }) => position },
              ]}
            />
          </LastKnown>
        </>
      )}
    </Loaded>
  );
}
