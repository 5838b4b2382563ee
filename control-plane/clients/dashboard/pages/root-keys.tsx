import { useState } from 'preact/hooks';
import { API_ACTIONS, PRESETS, ROOT_ACTIONS } from '../../../core/callers/root-permissions.ts';
import { call, InvalidField, may, type RootKey } from '../api/client.ts';
import { ActionForm, Field, type FormEntry, Opener } from '../forms/forms.tsx';
import { Badge } from '../parts/badge.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Switch } from '../parts/switch.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Sessions } from './sessions.tsx';

/**
 * A page with the root keys and their permissions, and a form to create one. Root keys of the configuration
 * are not listed.
 */
export function RootKeys() {
  const rootKeys = useLoad(() => call('rootKeys.listRootKeys'), []);
  const [disabling, setDisabling] = useState<{ rootKeyId: string; name: string }>();
  const [deleting, setDeleting] = useState<{ rootKeyId: string; name: string }>();
  const change = async (rootKeyId: string, enabled: boolean) => {
    await call('rootKeys.updateRootKey', { rootKeyId, enabled });
    rootKeys.reload();
    return {};
  };
  const changeColumn: Column<RootKey> = {
    title: 'Actions',
    narrow: 'menu',
    cell: ({ rootKeyId, enabled, name }) => (
      <>
        {may('root.*.update_root_key') && (
          <Switch
            enabled={enabled}
            name={name}
            change={async (isOn) => (isOn ? change(rootKeyId, true) : setDisabling({ rootKeyId, name }))}
          />
        )}{' '}
        {may('root.*.delete_root_key') && (
          <button
            type="button"
            class="small"
            aria-label={`Delete ${name}`}
            onClick={() => setDeleting({ rootKeyId, name })}
          >
            Delete
          </button>
        )}
      </>
    ),
  };
  return (
    <Page
      title="Root keys"
      actions={
        <Opener action="New root key" permission="root.*.create_root_key">
          {(close) => <NewRootKey onCreated={rootKeys.reload} onDone={close} />}
        </Opener>
      }
    >
      {disabling && (
        <DisableRootKey
          name={disabling.name}
          run={() => change(disabling.rootKeyId, false)}
          onClose={() => setDisabling(undefined)}
        />
      )}
      {deleting && (
        <Confirm
          title="Delete this root key?"
          action="Delete"
          run={() => call('rootKeys.deleteRootKey', { rootKeyId: deleting.rootKeyId })}
          onDone={() => {
            setDeleting(undefined);
            rootKeys.reload();
          }}
          onClose={() => setDeleting(undefined)}
        >
          <bdi>{deleting.name}</bdi> is refused from the next call on. All root keys that were created with
          it, directly or indirectly, are deleted too. Nothing brings them back.
        </Confirm>
      )}
      <Loaded of={rootKeys}>
        {(page) => (
          <Table
            label="Root keys"
            rows={page.rootKeys}
            id={({ rootKeyId }) => rootKeyId}
            empty="No root keys besides those of the configuration."
            columns={[...COLUMNS, changeColumn]}
          />
        )}
      </Loaded>
      <Sessions names={new Map(rootKeys.data?.rootKeys.map(({ rootKeyId, name }) => [rootKeyId, name]))} />
    </Page>
  );
}

const COLUMNS: readonly Column<RootKey>[] = [
  { title: 'Name', narrow: 'first', cell: ({ name }) => <bdi>{name}</bdi> },
  { title: 'Id', cell: ({ rootKeyId, name }) => <CopyId id={rootKeyId} of={name} /> },
  { title: 'May', cell: ({ permissions }) => <May permissions={permissions} /> },
  {
    title: 'State',
    narrow: 'beside',
    cell: ({ enabled }) => <Badge kind={enabled ? 'good' : 'bad'}>{enabled ? 'enabled' : 'disabled'}</Badge>,
  },
  { title: 'Created', cell: ({ createdAt }) => <Time at={createdAt} /> },
];

function DisableRootKey({
  name,
  run,
  onClose,
}: {
  name: string;
  run: () => Promise<object>;
  onClose: () => void;
}) {
  return (
    <Confirm title="Disable this root key?" action="Disable" run={run} onDone={onClose} onClose={onClose}>
      <bdi>{name}</bdi> is refused from the next call on, this page too where it signed in with it. Another
      root key can enable it again.
    </Confirm>
  );
}

function May({ permissions }: { permissions: readonly string[] }) {
  const preset = Object.entries(PRESETS).find(
    ([, each]) => each.permissions.toSorted().join() === permissions.toSorted().join(),
  );
  if (preset)
    return (
      <span class="chip" title={permissions.join(' ')}>
        {preset[0].replace('-', ' ')}
      </span>
    );
  const byTarget = Map.groupBy(permissions, (permission) => permission.split('.').slice(0, 2).join('.'));
  return (
    <ul class="plain">
      {[...byTarget].map(([target, each]) => (
        <li key={target}>
          <code>{target}</code>{' '}
          {each.map((permission) => permission.split('.')[2]?.replaceAll('_', ' ')).join(', ')}
        </li>
      ))}
    </ul>
  );
}

function NewRootKey({ onCreated, onDone }: { onCreated: () => void; onDone: () => void }) {
  const [preset, setPreset] = useState('read-only');
  const create = async (entry: FormEntry) => {
    const apiId = entry('apiId') || '*';
    const permissions = PRESETS[preset]?.permissions ?? [
      ...API_ACTIONS.filter(entry).map((action) => `api.${apiId}.${action}`),
      ...ROOT_ACTIONS.filter(entry).map((action) => `root.*.${action}`),
    ];
    if (permissions.length === 0) throw new InvalidField('permissions', 'choose at least one');
    const rootKey = await call('rootKeys.createRootKey', { name: entry('name'), permissions });
    onCreated();
    return rootKey;
  };
  return (
    <ActionForm label="New root key" action="Create root key" run={create} onDone={onDone}>
      <Field label="Name" name="name" required maxLength={256} />
      <fieldset class="wide row">
        <legend>May</legend>
        {[...Object.entries(PRESETS), ['', { text: 'do what is ticked here' }] as const].map(
          ([name, { text }]) => (
            <label class="check" key={name}>
              <input type="radio" name="preset" checked={preset === name} onChange={() => setPreset(name)} />{' '}
              {text}
            </label>
          ),
        )}
      </fieldset>
      {preset === '' && (
        <>
          <Field
            label="For the API"
            hint="its id; empty = all of them"
            wide
            name="apiId"
            pattern="[A-Za-z0-9_\-]{1,64}"
          />
          <Actions of={API_ACTIONS} title="Permissions on APIs and their keys" />
          <Actions of={ROOT_ACTIONS} title="Permissions beyond APIs" />
        </>
      )}
    </ActionForm>
  );
}

function Actions({ of, title }: { of: readonly string[]; title: string }) {
  return (
    <fieldset class="wide row">
      <legend>{title}</legend>
      {of.map((action) => (
        <label class="check" key={action}>
          <input type="checkbox" name={action} /> {action.replaceAll('_', ' ')}
        </label>
      ))}
    </fieldset>
  );
}
