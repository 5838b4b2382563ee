import { useState } from 'preact/hooks';
import { call, type Delivery, may, serverNow } from '../api/client.ts';
import { Badge } from '../parts/badge.tsx';
import { Fact } from '../parts/fact.tsx';
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
              rows={page.deliveries}
              id={({ deliveryId }) => deliveryId}
              empty={isDead ? 'No event was given up.' : 'Nothing was sent yet.'}
              columns={[
                { title: 'Event', narrow: 'first', cell: ({ type }) => <code>{type}</code> },
                { title: 'Result', narrow: 'beside', cell: (delivery) => <Result delivery={delivery} /> },
                { title: 'Attempt', number: true, cell: ({ attempt }) => attempt },
                { title: 'Took', number: true, cell: ({ durationMs }) => duration(durationMs) },
                { title: 'When', cell: ({ time }) => <Time at={time} /> },
                {
                  title: 'Again',
                  narrow: 'beside',
                  cell: ({ deliveryId, type }) =>
                    may('root.*.update_webhook') && (
                      <Redeliver endpointId={endpointId} deliveryId={deliveryId} type={type} />
                    ),
                },
              ]}
              details={(delivery) => <Content delivery={delivery} />}
            />
            {pages.pager(page.cursor, page.deliveries.length)}
          </>
        )}
      </Loaded>
    </>
  );
}

const RESULTS = { delivered: 'good', failed: 'warn', dead: 'bad' } as const;

function Result({ delivery: { result, status, error, nextAt } }: { delivery: Delivery }) {
  return (
    <>
      <Badge kind={RESULTS[result]}>{result === 'dead' ? 'given up' : result}</Badge>{' '}
      <small>
        {status ?? error}
        {nextAt !== undefined && (
          <>
            {nextAt > serverNow() ? ', again ' : ', tried again '}
            <Time at={nextAt} />
          </>
        )}
      </small>
    </>
  );
}

function Content({ delivery: { event, response, eventId } }: { delivery: Delivery }) {
  return (
    <dl>
      <Fact name="Event">
        <code>{eventId}</code>
      </Fact>
      <Fact name="Sent">
        <pre>{JSON.stringify(event, null, 1)}</pre>
      </Fact>
      <Fact name="Answer">
        <pre>{response ?? 'none'}</pre>
      </Fact>
    </dl>
  );
}

function Redeliver(props: { endpointId: string; deliveryId: string; type: string }) {
  const { endpointId, deliveryId, type } = props;
  const { busy, run, problem } = useAction();
  const [isQueued, setQueued] = useState(false);
  const send = async () => {
    await call('webhooks.redeliver', { endpointId, deliveryId });
    setQueued(true);
  };
  return (
    <>
      <button
        type="button"
        class="small"
        aria-disabled={busy || isQueued}
        aria-label={`Send ${type} again`}
        onClick={() => !isQueued && void run(send)}
      >
        {isQueued ? 'Queued' : 'Send again'}
      </button>
      {problem}
    </>
  );
}
