import { useState } from 'preact/hooks';
import { call, type Delivery, may, serverNow } from '../api/client.ts';
import { ApiLink } from '../parts/api-name.tsx';
import { Badge } from '../parts/badge.tsx';
import { useKeyNames } from '../parts/key-names.ts';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';
import { duration, Time } from '../parts/time.tsx';

const PER_PAGE = '50';

/** The latest attempts to deliver events to an endpoint, or the events that were given up. */
export function Deliveries({ endpointId }: { endpointId: string }) {
  const [isDead, setDead] = useState(false);
  const pages = usePages(Number(PER_PAGE));
  const deliveries = useLoad(
    () =>
      call('webhooks.listDeliveries', {
        ...{ endpointId, dead: String(isDead), limit: PER_PAGE, cursor: pages.cursor },
      }),
    [endpointId, isDead, pages.cursor],
  );
  const names = useKeyNames(eventsOf(deliveries.data?.deliveries ?? []).map(subjectOf));
  const show = (onlyDead: boolean) => {
    pages.reset();
    setDead(onlyDead);
  };
  return (
    <>
      <div class="title">
        <h2>Deliveries</h2>
        <label class="check">
          <input type="checkbox" checked={isDead} onChange={(event) => show(event.currentTarget.checked)} />{' '}
          Only events given up
        </label>
        <button type="button" class="small" onClick={deliveries.reload}>
          Reload
        </button>
      </div>
      <Loaded of={deliveries}>
        {(page) => (
          <>
            <Table
              label="Deliveries"
              rows={eventsOf(page.deliveries)}
              id={({ latest: { eventId } }) => eventId}
              empty={isDead ? 'No event was given up.' : 'Nothing was sent yet.'}
              columns={[
                { title: 'Event', narrow: 'first', cell: ({ latest }) => <code>{latest.type}</code> },
                {
                  title: 'Key',
                  cell: (event) => <EventKey {...subjectOf(event)} names={names} />,
                },
                { title: 'Result', cell: ({ latest }) => <Result delivery={latest} /> },
                { title: 'Attempts', number: true, cell: ({ attempts }) => attempts.length },
                { title: 'When', cell: ({ latest }) => <Time at={latest.time} /> },
                {
                  title: 'Again',
                  cell: ({ latest: { deliveryId, eventId, type } }) =>
                    may('root.*.update_webhook') && (
                      <SendNow {...{ endpointId, deliveryId, eventId, type }} onSent={deliveries.reload} />
                    ),
                },
              ]}
              details={(event) => <Content of={event} />}
            />
            {pages.pager(page.cursor, page.deliveries.length)}
          </>
        )}
      </Loaded>
    </>
  );
}

const RESULTS = { delivered: 'good', failed: 'warn', dead: 'bad' } as const;

/** An event with its attempts on this page, the latest first. */
interface SentEvent {
  readonly latest: Delivery;
  readonly attempts: readonly Delivery[];
}

function eventsOf(deliveries: readonly Delivery[]): readonly SentEvent[] {
  const events = Map.groupBy(deliveries, ({ eventId }) => eventId);
  return [...events.values()].flatMap((attempts) => (attempts[0] ? [{ latest: attempts[0], attempts }] : []));
}

/** Returns what an event is about. */
const subjectOf = ({ latest: { event } }: SentEvent): { readonly keyId?: string; readonly apiId?: string } =>
  (event as { data?: object }).data ?? {};

function EventKey(props: { keyId?: string; apiId?: string; names: ReadonlyMap<string, string> }) {
  const { keyId, apiId, names } = props;
  if (keyId !== undefined)
    return (
      <a href={`#/keys/${keyId}`} title={keyId}>
        <bdi>{names.get(keyId) ?? keyId}</bdi>
      </a>
    );
  return apiId === undefined ? null : <ApiLink id={apiId} />;
}

function Result({ delivery: { result, status, error, nextAt } }: { delivery: Delivery }) {
  return (
    <>
      <Badge kind={RESULTS[result]}>{result === 'dead' ? 'given up' : result}</Badge>{' '}
      <small>
        {status ?? error}
        {nextAt !== undefined && nextAt <= serverNow() && ', waits for its turn'}
        {nextAt !== undefined && nextAt > serverNow() && (
          <>
            , again <Time at={nextAt} />
          </>
        )}
      </small>
    </>
  );
}

/** All attempts of an event, and what was sent in each. */
function Content({ of: { latest, attempts } }: { of: SentEvent }) {
  return (
    <>
      <ul class="plain" aria-label="Attempts">
        {attempts.map(({ deliveryId, result, status, error, durationMs, time, response }, i) => (
          <li key={deliveryId}>
            {result === 'dead' ? 'given up' : result} {status ?? error}, {duration(durationMs)},{' '}
            <Time at={time} exact />
            {i > 0 && (
              <>
                , retried <Time at={attempts[i - 1]?.time} />
              </>
            )}
            {response && <pre>{response}</pre>}
          </li>
        ))}
      </ul>
      <p class="quiet">
        Sent as <code>{latest.eventId}</code>:
      </p>
      <pre>{JSON.stringify(latest.event, null, 1)}</pre>
    </>
  );
}

const SEND_MS_MAX = 15_000;
const LOOK_MS = 500;

/** A button that sends an event now, and says when its outcome is in the list. */
function SendNow(props: {
  endpointId: string;
  deliveryId: string;
  eventId: string;
  type: string;
  onSent: () => void;
}) {
  const { endpointId, deliveryId, eventId, type, onSent } = props;
  const { busy, run, problem } = useAction();
  const [notice, setNotice] = useState('');
  const latest = async () => {
    const { deliveries } = await call('webhooks.listDeliveries', { endpointId, limit: PER_PAGE });
    return deliveries.find((each) => each.eventId === eventId);
  };
  const send = async () => {
    const before = (await latest())?.deliveryId;
    await call('webhooks.redeliver', { endpointId, deliveryId });
    for (const until = performance.now() + SEND_MS_MAX; performance.now() < until; ) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      const now = await latest();
      if (!now || now.deliveryId === before) continue;
      setNotice(now.result === 'delivered' ? 'Delivered' : 'Failed again');
      onSent();
      return;
    }
    setNotice('Queued');
  };
  return (
    <>
      <button
        type="button"
        class="small"
        aria-disabled={busy}
        aria-label={`Send now: ${type}`}
        onClick={() => void run(send)}
      >
        {busy ? 'Sending…' : 'Send now'}
      </button>{' '}
      <span role="status">{notice}</span>
      {problem}
    </>
  );
}
