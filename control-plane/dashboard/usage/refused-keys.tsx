import { useLayoutEffect, useRef } from 'preact/hooks';
import { call, may } from '../api/client.ts';
import type { COUNTERS } from '../api/verdicts.ts';
import { ApiLink } from '../parts/api-name.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

/** Refusals with one verdict in a time, which has a name; Unix milliseconds, the end included. */
export interface Refused {
  readonly kind: (typeof COUNTERS)[number];
  readonly time: string;
  readonly since: string;
  readonly until: string;
  /** The only API whose keys are meant; absent = all of the chart. */
  readonly apiId?: string | undefined;
}

/** The keys behind a part of a chart: those that were refused, each with its last refusal. */
export function RefusedKeys(props: {
  of: Refused;
  apiIds: () => Promise<readonly string[]>;
  onClose: () => void;
}) {
  const { kind, time, since, until, apiId } = props.of;
  const title = `Keys refused: ${kind.name}, ${time}`;
  const region = useRef<HTMLElement>(null);
  const keys = useLoad(async () => {
    const readable = (apiId === undefined ? await props.apiIds() : [apiId]).filter((apiId) =>
      may(`api.${apiId}.read_key`),
    );
    const list = async (apiId: string) => {
      const { keys } = await call('apis.listRefusedKeys', { apiId, code: kind.code, since, until });
      return keys.map((key) => ({ ...key, apiId }));
    };
    const all = (await Promise.all(readable.map(list))).flat();
    return all.sort((a, b) => b.refusal.time - a.refusal.time);
  }, [title, since, until, apiId]);
  useLayoutEffect(() => {
    region.current?.scrollIntoView({ block: 'nearest' });
    region.current?.focus();
  }, [title, apiId]);
  return (
    <section ref={region} class="refused" aria-label={title} tabIndex={-1}>
      <div class="title">
        <h2>{title}</h2>
        <div class="actions">
          <button type="button" class="small" onClick={props.onClose}>
            Close
          </button>
        </div>
      </div>
      <Loaded of={keys}>
        {(refused) => (
          <Table
            label={title}
            rows={refused}
            id={({ keyId }) => keyId}
            empty="No such refusal is kept: of a key, the latest 50 are, for seven days."
            columns={[
              {
                title: 'Key',
                narrow: 'first',
                cell: ({ keyId, name, refusal: { requestId = '' } }) => (
                  <a href={`#/keys/${keyId}?${new URLSearchParams({ request: requestId })}`} title={keyId}>
                    <bdi>{name ?? keyId}</bdi>
                  </a>
                ),
              },
              { title: 'Why', grows: true, cell: ({ refusal }) => <bdi>{refusal.detail}</bdi> },
              { title: 'API', cell: ({ apiId }) => <ApiLink id={apiId} /> },
              { title: 'Refusals', number: true, cell: ({ count }) => count.toLocaleString() },
              { title: 'Last', narrow: 'beside', cell: ({ refusal }) => <Time at={refusal.time} /> },
            ]}
          />
        )}
      </Loaded>
    </section>
  );
}
