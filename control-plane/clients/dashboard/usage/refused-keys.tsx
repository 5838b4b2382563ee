import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { call, may } from '../api/client.ts';
import type { COUNTERS } from '../api/verdicts.ts';
import { ApiLink } from '../parts/api-name.tsx';
import { counted } from '../parts/counted.ts';
import { identityPage } from '../parts/identity-state.tsx';
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

type RefusedKey = Awaited<ReturnType<typeof call<'apis.listRefusedKeys'>>>['keys'][number] & {
  readonly apiId: string;
};
/** So many are shown at first. */
const ROWS_AT_FIRST = 10;

/** The refused keys of each customer together, and each key without a customer; who was refused most comes first. */
function groupsOf(all: readonly RefusedKey[]) {
  const groups = Map.groupBy(all, ({ keyId, externalId }) =>
    externalId === undefined ? keyId : `=${externalId}`,
  );
  return [...groups]
    .flatMap(([id, group]) => {
      const keys = group.toSorted((a, b) => b.refusal.time - a.refusal.time);
      const [last] = keys;
      const count = keys.reduce((sum, key) => sum + key.count, 0);
      return last ? [{ id, externalId: last.externalId, keys, last, count }] : [];
    })
    .sort((a, b) => b.count - a.count || b.last.refusal.time - a.last.refusal.time);
}

const KeyLink = ({ of: { keyId, name, refusal } }: { of: RefusedKey }) => (
  <a href={`#/keys/${keyId}?${new URLSearchParams({ request: refusal.requestId ?? '' })}`} title={keyId}>
    <bdi>{name ?? keyId}</bdi>
  </a>
);

/**
 * The customers and keys behind a part of a chart: those that were refused, each with its last refusal.
 */
export function RefusedKeys(props: {
  of: Refused;
  apiIds: () => Promise<readonly string[]>;
  onClose: () => void;
}) {
  const { kind, time, since, until, apiId } = props.of;
  const title = `Refused: ${kind.name}, ${time}`;
  const region = useRef<HTMLElement>(null);
  const [isWhole, setWhole] = useState(false);
  const keys = useLoad(async () => {
    const readable = (apiId === undefined ? await props.apiIds() : [apiId]).filter((apiId) =>
      may(`api.${apiId}.read_key`),
    );
    const list = async (apiId: string) => {
      const { keys } = await call('apis.listRefusedKeys', { apiId, code: kind.code, since, until });
      return keys.map((key) => ({ ...key, apiId }));
    };
    return groupsOf((await Promise.all(readable.map(list))).flat());
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
            rows={isWhole ? refused : refused.slice(0, ROWS_AT_FIRST)}
            id={({ id }) => id}
            empty="No such refusal is kept: of a key, the latest 50 are, for seven days."
            columns={[
              {
                title: 'Customer or key',
                narrow: 'first',
                cell: ({ externalId, keys: [key] }) =>
                  externalId === undefined ? (
                    key && <KeyLink of={key} />
                  ) : (
                    <a href={identityPage(externalId)}>
                      <bdi>{externalId}</bdi>
                    </a>
                  ),
              },
              {
                title: 'Why, at last',
                grows: true,
                cell: ({ last, keys }) => (
                  <>
                    <bdi>{last.refusal.detail}</bdi>
                    {keys.length > 1 && (
                      <div class="under">
                        {counted(keys.length, 'key')}, at last <KeyLink of={last} />
                      </div>
                    )}
                  </>
                ),
              },
              { title: 'API', cell: ({ last }) => <ApiLink id={last.apiId} /> },
              { title: 'Refusals', number: true, cell: ({ count }) => count.toLocaleString() },
              { title: 'Last', narrow: 'beside', cell: ({ last }) => <Time at={last.refusal.time} /> },
            ]}
          />
        )}
      </Loaded>
      {!isWhole && (keys.data?.length ?? 0) > ROWS_AT_FIRST && (
        <button type="button" class="small" onClick={() => setWhole(true)}>
          Show all {keys.data?.length.toLocaleString()}
        </button>
      )}
    </section>
  );
}
