import { useEffect, useRef, useState } from 'preact/hooks';
import { type AuditEvent, awaitsTokens, call, type Key, listEvents, may } from '../api/client.ts';
import { Events, useNames } from '../audit/events.tsx';
import { AWAITS_TOKENS } from '../changes/fence.tsx';
import { type Load, Loaded, useLoad } from '../parts/loading.tsx';

/** Clocks of control planes and Redis may differ by so much. */
const CLOCK_MS_OFF_MAX = 3_600_000;

/** Loads the latest events of a key. */
export function useHistory(keyId: string, key: Key | undefined) {
  const list = async () =>
    !may('root.*.read_audit')
      ? { events: [], isCut: false }
      : listEvents({ keyId, since: key?.createdAt && key.createdAt - CLOCK_MS_OFF_MAX });
  return useLoad(list, [key?.createdAt, key?.updatedAt]);
}

/** The latest events of a key. */
export function History(props: { keyId: string; events: Load<Awaited<ReturnType<typeof listEvents>>> }) {
  const names = useNames();
  return (
    <Loaded of={props.events}>
      {(page) => (
        <>
          <Events
            events={page.events}
            names={names}
            exact
            empty={page.isCut ? 'None among the latest events.' : 'No events of this key are kept.'}
          />
          <p class="quiet">
            {page.isCut && 'Earlier events are in the audit log. '}
            <a href={`#/audit/${props.keyId}`}>Audit log of this key</a>
          </p>
        </>
      )}
    </Loaded>
  );
}

const POLL_MS = 500;

/** The latest change, if it is not complete and was not made on this page since it was loaded. */
export function UnderWay({
  keyId,
  events = [],
}: {
  keyId: string;
  events?: readonly AuditEvent[] | undefined;
}) {
  const sequence = events.find((event) => event.sequence !== undefined)?.sequence;
  const wasPending = useRef(false);
  const loadKey = async () => {
    if (sequence === undefined) return undefined;
    const { propagation } = await call('keys.getPropagation', { keyId, sequence });
    wasPending.current ||= propagation.state === 'pending';
    return propagation;
  };
  const [isPending, setPending] = useState(false);
  const { data, failure } = useLoad(loadKey, [sequence, isPending], isPending ? POLL_MS : 0);
  const isLost = failure !== undefined && !failure.passes;
  useEffect(() => setPending(data?.state === 'pending' && !isLost), [data, isLost]);
  if (!data || isLost || !wasPending.current) return null;
  const late = data.laggards?.length ?? data.verifiers;
  const rest = awaitsTokens(data) ? AWAITS_TOKENS : `Waiting for ${late} of ${data.verifiers} verifiers.`;
  return (
    <section class={`panel fence ${isPending ? '' : 'done'}`} aria-label="How far the last change has come">
      <span role="status">
        {isPending
          ? `Change ${data.sequence} is not complete yet. ${rest}`
          : `Change ${data.sequence} is complete: no verifier answers from the earlier state.`}
      </span>
    </section>
  );
}
