import type { ComponentChildren } from 'preact';
import { type Key, may } from '../api/client.ts';
import type { Apply } from '../changes/change.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { identityPage } from '../parts/identity-state.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Expiry, KeyState, KeySwitch, useForeignFound } from './key-state.tsx';
import type { useSelection } from './selection.tsx';

/** A page of an API's keys, which can be selected, opened and changed. */
export function KeyTable(props: {
  apiId: string;
  page: { readonly keys: readonly Key[]; readonly total: number; readonly cursor?: string | undefined };
  selection: ReturnType<typeof useSelection>;
  apply: Apply;
  panelOf: (keyId: string) => ComponentChildren;
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
        page.total === 0
          ? 'No keys yet. “New key” makes the first one, and so does a call of keys.createKey.'
          : page.cursor
            ? 'No match so far. “Next” searches further.'
            : 'No key matches.'
      }
      columns={[
        ...(mayChange ? [{ title: 'Selected', narrow: 'box', cell: props.selection.box } as const] : []),
        KEY_COLUMN,
        { title: 'Starts with', narrow: 'none', cell: ({ start }) => <code class="nowrap">{start}…</code> },
        {
          title: 'Identity',
          cell: ({ externalId }) =>
            externalId && (
              <a class="short" href={identityPage(externalId)} title={externalId}>
                <bdi>{externalId}</bdi>
              </a>
            ),
        },
        { title: 'State', narrow: 'beside', cell: (key) => <KeyState of={key} isFound={isFound} /> },
        { title: 'Last use', cell: ({ lastUsedAt }) => <Time at={lastUsedAt} placeholder="never seen" /> },
        { title: 'Expires', cell: (key) => <Expiry of={key} /> },
        { title: 'Created', narrow: 'none', cell: ({ createdAt }) => <Time at={createdAt} /> },
        ...(mayChange ? [changeColumn(props.apply)] : []),
      ]}
      below={({ keyId }) => props.panelOf(keyId)}
    />
  );
}

const changeColumn = (apply: Apply): Column<Key> => ({
  title: 'Change',
  narrow: 'beside',
  cell: (key) => <KeySwitch of={key} apply={apply} />,
});

const KEY_COLUMN: Column<Key> = {
  title: 'Key',
  narrow: 'first',
  cell: ({ keyId, name }) => (
    <>
      <a href={`#/keys/${keyId}`} title={name}>
        <bdi>{name ?? keyId}</bdi>
      </a>
      <CopyId id={keyId} of={name ?? keyId} unseen />
    </>
  ),
};
