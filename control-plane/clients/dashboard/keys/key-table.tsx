import { type Key, may } from '../api/client.ts';
import type { Apply } from '../changes/change.tsx';
import { Empty } from '../forms/forms.tsx';
import { CopyButton } from '../parts/copy-id.tsx';
import { identityPage } from '../parts/identity-state.tsx';
import { useAction } from '../parts/loading.tsx';
import { More } from '../parts/more.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Expiry, KeyState, LastUse, useForeignFound } from './key-state.tsx';
import type { useSelection } from './selection.tsx';

/** A page of an API's keys, which can be selected, opened and changed. */
export function KeyTable(props: {
  apiId: string;
  page: { readonly keys: readonly Key[]; readonly total: number; readonly cursor?: string | undefined };
  selection: ReturnType<typeof useSelection>;
  apply: Apply;
}) {
  const { page } = props;
  const mayChange = may(`api.${props.apiId}.update_key`);
  const isFound = useForeignFound(page.keys);
  return (
    <Table
      label="Keys"
      rows={page.keys}
      id={({ keyId }) => keyId}
      empty={
        page.total === 0 ? (
          <Empty
            page={`#/apis/${props.apiId}`}
            action="Create the first key"
            permission={`api.${props.apiId}.create_key`}
          >
            No keys yet. A key lets one client call this API; you see its secret once.
          </Empty>
        ) : page.cursor ? (
          'No match so far. “Next” searches further.'
        ) : (
          'No key matches.'
        )
      }
      columns={[
        ...(mayChange
          ? [
              {
                title: 'Selected',
                heading: props.selection.pageBox(page.keys),
                narrow: 'box',
                cell: props.selection.box,
              } as const,
            ]
          : []),
        KEY_COLUMN,
        { title: 'State', narrow: 'beside', cell: (key) => <KeyState of={key} isFound={isFound} /> },
        { title: 'Last accepted', cell: (key) => <LastUse of={key} /> },
        ...(page.keys.some(({ expires }) => expires !== undefined)
          ? [{ title: 'Expires', cell: (key) => <Expiry of={key} /> } satisfies Column<Key>]
          : []),
        { title: 'Created', narrow: 'none', cell: ({ createdAt }) => <Time at={createdAt} /> },
        {
          title: 'Actions',
          narrow: 'menu',
          cell: (key) => <KeyMenu of={key} apply={mayChange ? props.apply : undefined} />,
        },
      ]}
    />
  );
}

/** The menu of a key in a list. */
function KeyMenu({ of, apply }: { of: Key; apply: Apply | undefined }) {
  const { run, problem } = useAction();
  const name = of.name ?? of.keyId;
  const verb = of.enabled ? 'Disable' : 'Enable';
  const change = () => apply?.(of, `${verb}d ${name}`, { enabled: !of.enabled }, { enabled: of.enabled });
  return (
    <>
      <More of={name}>
        {apply && (
          <button type="button" aria-label={`${verb} ${name}`} onClick={() => void run(async () => change())}>
            {verb}
          </button>
        )}
        <CopyButton text={of.keyId}>Copy id</CopyButton>
        {of.externalId !== undefined && <a href={identityPage(of.externalId)}>Open its customer</a>}
        {may('root.*.read_audit') && <a href={`#/keys/${of.keyId}?tab=history`}>History</a>}
      </More>
      {problem}
    </>
  );
}

const KEY_COLUMN: Column<Key> = {
  title: 'Key',
  narrow: 'first',
  grows: true,
  cell: ({ keyId, name, start, externalId }) => (
    <>
      <a href={`#/keys/${keyId}`} title={name}>
        <bdi>{name ?? keyId}</bdi>
      </a>
      <div class="under">
        {externalId !== undefined && (
          <>
            <bdi title={externalId}>{externalId}</bdi> ·{' '}
          </>
        )}
        <code>{start}…</code>
      </div>
    </>
  ),
};
