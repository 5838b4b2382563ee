import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key, may } from '../api/client.ts';
import { KINDS } from '../api/verdicts.ts';
import type { Apply } from '../changes/change.tsx';
import { Badge } from '../parts/badge.tsx';
import { useConditions } from '../parts/conditions.ts';
import { CopyButton } from '../parts/copy-id.tsx';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { LIVE_MS } from '../usage/usage.tsx';
import { Explain, Explained, type Explanation } from './explain.tsx';

type Refusal = Awaited<ReturnType<typeof call<'keys.listRefusals'>>>['refusals'][number];

/** The latest refusals of a key, each with what decided it, and the form that explains any question. */
export function ExplainedRefusals({ of, apply }: { of: Key; apply: Apply }) {
  const refusals = useLoad(() => call('keys.listRefusals', { keyId: of.keyId }), [of.keyId], LIVE_MS);
  return (
    <>
      <h2>Last refusals</h2>
      <Loaded of={refusals}>{(page) => <Refusals of={of} refusals={page.refusals} apply={apply} />}</Loaded>
      {may(`api.${of.apiId}.explain_key`) && (
        <>
          <h2>Explain</h2>
          <Explain of={of} />
        </>
      )}
    </>
  );
}

const idOf = ({ requestId = '', time, verifierId }: Refusal) => `${requestId} ${time} ${verifierId}`;

/** The refusals as a table, each with a card that folds out; that of the request in the address is open. */
function Refusals({ of, refusals, apply }: { of: Key; refusals: readonly Refusal[]; apply: Apply }) {
  const [{ request }] = useConditions({ request: '' });
  const sought = request === '' ? undefined : refusals.find(({ requestId }) => requestId === request);
  return (
    <>
      {request !== '' && !sought && (
        <p role="status">
          The refusal of request <code>{request}</code> is no longer among the latest of this key.
        </p>
      )}
      <Table
        label="Last refusals"
        rows={refusals}
        id={idOf}
        empty="Not refused in the last seven days."
        columns={[
          { title: 'Why', narrow: 'first', grows: true, cell: ({ detail }) => <bdi>{detail}</bdi> },
          {
            title: 'Verdict',
            narrow: 'beside',
            cell: ({ code, reason }) => (
              <Badge kind="bad">
                {reason === 'address' || reason === 'origin' ? `${reason} not allowed` : nameOf(code)}
              </Badge>
            ),
          },
          { title: 'Time', cell: ({ time }) => <Time at={time} /> },
          {
            title: 'From',
            cell: ({ clientIp = '–', origin }) => (origin ? `${clientIp}, ${origin}` : clientIp),
          },
          {
            title: 'Request',
            cell: ({ requestId }) => (requestId ? <code class="short">{requestId}</code> : '–'),
          },
        ]}
        opened={sought && idOf(sought)}
        details={(refusal) => (
          <RefusalCard of={of} refusal={refusal} apply={apply} isSought={refusal === sought} />
        )}
      />
    </>
  );
}

/** A refusal as it was, what would mend it, and, as a step of its own, whether its question would pass now. */
function RefusalCard(props: { of: Key; refusal: Refusal; apply: Apply; isSought: boolean }) {
  const { of, refusal, apply, isSought } = props;
  const { code, detail, time, requestId, route, question, missingPermissions } = refusal;
  const [now, setNow] = useState<Explanation>();
  const { busy, run, problem } = useAction();
  const card = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!isSought) return;
    card.current?.scrollIntoView({ block: 'center' });
    card.current?.focus();
  }, []);
  const missing = missingPermissions?.join(' ');
  const give = () =>
    apply(
      of,
      `Gave ${missing}`,
      { permissions: [...(of.permissions ?? []), ...(missingPermissions ?? [])] },
      { permissions: of.permissions ?? null },
    );
  const askAgain = async () => {
    if (question) setNow(await call('keys.explain', { keyId: of.keyId, apiId: of.apiId, ...question }));
  };
  const text = `Request ${requestId ?? ''} was refused at ${new Date(time).toISOString()} (${code}): ${detail}`;
  return (
    <section ref={card} class="refusal" tabIndex={-1} aria-label="Refusal">
      <p>
        <strong>Refused: {detail}</strong>
        <br />
        <span class="quiet">
          Request <code>{requestId ?? 'without an id'}</code>, {route && <bdi>{route}, </bdi>}
          <Time at={time} exact />
        </span>
      </p>
      <p class="quiet">
        The key has {of.permissions?.join(' ') ?? 'no permissions'}
        {of.roles && `, and the role${of.roles.length === 1 ? '' : 's'} ${of.roles.join(', ')}`}.
      </p>
      <div class="row">
        {missing && may(`api.${of.apiId}.update_key`) && (
          <button type="button" aria-disabled={busy} onClick={() => void run(give)}>
            Give {missing}
          </button>
        )}
        {question && may(`api.${of.apiId}.explain_key`) && (
          <button type="button" aria-disabled={busy} onClick={() => void run(askAgain)}>
            Would it pass now?
          </button>
        )}
        <CopyButton text={text}>Copy for the customer</CopyButton>
      </div>
      {problem}
      {now && <Explained of={now}>Asked now, the same question is </Explained>}
    </section>
  );
}

const nameOf = (code: string): string =>
  Object.hasOwn(KINDS, code) ? KINDS[code as keyof typeof KINDS].name : code;
