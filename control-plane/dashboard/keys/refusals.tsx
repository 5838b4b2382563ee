import { useEffect, useState } from 'preact/hooks';
import { call, type Key, may } from '../api/client.ts';
import { KINDS } from '../api/verdicts.ts';
import { useConditions } from '../parts/conditions.ts';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Explain, type RefusedFrom } from './explain.tsx';

/** The latest refusals of a key, each of which can be explained, and the form that explains any question. */
export function ExplainedRefusals({ of }: { of: Key }) {
  const [refusal, setRefusal] = useState<RefusedFrom>();
  const [{ request }] = useConditions({ request: '' });
  const mayExplain = may(`api.${of.apiId}.explain_key`);
  return (
    <>
      <h2>Last refusals</h2>
      <Refusals keyId={of.keyId} request={request} {...(mayExplain ? { onExplain: setRefusal } : {})} />
      {mayExplain && (
        <>
          <h2>Explain</h2>
          <Explain of={of} refusal={refusal} />
        </>
      )}
    </>
  );
}

/** @param props.request id of the request whose refusal is explained at once; '' = of none */
function Refusals(props: { keyId: string; request: string; onExplain?: (refusal: RefusedFrom) => void }) {
  const { keyId, request, onExplain } = props;
  const refusals = useLoad(() => call('keys.listRefusals', { keyId }), [keyId]);
  const isLoaded = refusals.data !== undefined;
  useEffect(() => {
    const refusal = refusals.data?.refusals.find(({ requestId }) => requestId === request);
    if (refusal) onExplain?.({ clientIp: refusal.clientIp, origin: refusal.origin });
  }, [isLoaded]);
  return (
    <Loaded of={refusals}>
      {(page) => (
        <Table
          label="Last refusals"
          rows={page.refusals}
          id={({ requestId = '', time, verifierId }) => `${requestId} ${time} ${verifierId}`}
          empty="Not refused in the last seven days."
          columns={[
            { title: 'Time', narrow: 'first', cell: ({ time }) => <Time at={time} /> },
            {
              title: 'Why',
              narrow: 'beside',
              cell: ({ code, reason }) =>
                reason === 'address' || reason === 'origin' ? `${reason} not allowed` : nameOf(code),
            },
            {
              title: 'From',
              cell: ({ clientIp = '–', origin }) => (origin ? `${clientIp}, ${origin}` : clientIp),
            },
            { title: 'Route', cell: ({ route = '–' }) => <bdi>{route}</bdi> },
            { title: 'Request', cell: ({ requestId }) => (requestId ? <code>{requestId}</code> : '–') },
            ...(onExplain === undefined
              ? []
              : [
                  {
                    title: 'Explain',
                    narrow: 'beside',
                    cell: ({ clientIp, origin, requestId = '' }) => (
                      <button
                        type="button"
                        class="small"
                        aria-label={`Explain the refusal of request ${requestId}`}
                        onClick={() => onExplain({ clientIp, origin })}
                      >
                        Explain
                      </button>
                    ),
                  } satisfies Column<Refusal>,
                ]),
          ]}
        />
      )}
    </Loaded>
  );
}

type Refusal = Awaited<ReturnType<typeof call<'keys.listRefusals'>>>['refusals'][number];

const nameOf = (code: string): string =>
  Object.hasOwn(KINDS, code) ? KINDS[code as keyof typeof KINDS].name : code;
