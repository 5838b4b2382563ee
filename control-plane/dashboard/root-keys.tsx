import { useState } from 'preact/hooks';
import { API_ACTIONS, ROOT_ACTIONS } from '../core/permissions.ts';
import { call, Failure, type RootKey } from './api.ts';
import { SecretDialog } from './dialogs.tsx';
import { Loaded, useAction, useLoad } from './loading.tsx';
import { Badge, fieldsOf, Page, Table, Time } from './parts.tsx';

/** The root keys, what each may do, and making one. Those of the configuration are not listed. */
export function RootKeys() {
  const rootKeys = useLoad(() => call('rootKeys.listRootKeys'), []);
  const [open, setOpen] = useState(false);
  return (
    <Page title="Root keys">
      <p class="row">
        <button type="button" class="main" aria-expanded={open} onClick={() => setOpen(!open)}>
          New root key
        </button>
      </p>
      {open && <NewRootKey onCreated={rootKeys.again} />}
      <Loaded of={rootKeys}>
        {(found) => (
          <Table
            label="Root keys"
            rows={found.rootKeys}
            id={({ rootKeyId }) => rootKeyId}
            empty="No root keys besides those of the configuration."
            columns={[
              { title: 'Name', cell: ({ name }) => name },
              { title: 'Id', cell: ({ rootKeyId }) => <code>{rootKeyId}</code> },
              { title: 'May', cell: ({ permissions }) => <May permissions={permissions} /> },
              {
                title: 'State',
                cell: ({ enabled }) => (
                  <Badge kind={enabled ? 'good' : 'bad'}>{enabled ? 'enabled' : 'disabled'}</Badge>
                ),
              },
              { title: 'Created', cell: ({ createdAt }) => <Time at={createdAt} /> },
              { title: 'Change', cell: (of) => <RootSwitch of={of} onChanged={rootKeys.again} /> },
            ]}
          />
        )}
      </Loaded>
    </Page>
  );
}

function May({ permissions }: { permissions: readonly string[] }) {
  if (permissions.includes('*')) return <>everything</>;
  return (
    <details>
      <summary>{permissions.length === 1 ? '1 permission' : `${permissions.length} permissions`}</summary>
      <ul>
        {permissions.map((permission) => (
          <li key={permission}>
            <code>{permission}</code>
          </li>
        ))}
      </ul>
    </details>
  );
}

function RootSwitch({ of, onChanged }: { of: RootKey; onChanged: () => void }) {
  const { busy, run, problem } = useAction();
  const { rootKeyId, enabled, name } = of;
  const verb = enabled ? 'Disable' : 'Enable';
  const change = async () => {
    await call('rootKeys.updateRootKey', { rootKeyId, enabled: !enabled });
    onChanged();
  };
  return (
    <>
      <button
        type="button"
        class={enabled ? 'danger' : ''}
        aria-label={`${verb} ${name}`}
        disabled={busy}
        onClick={() => void run(change)}
      >
        {verb}
      </button>
      {problem}
    </>
  );
}

function NewRootKey({ onCreated }: { onCreated: () => void }) {
  const { busy, run, problem } = useAction();
  const [everything, setEverything] = useState(false);
  const [secret, setSecret] = useState('');
  const create = (event: Event) => {
    const field = fieldsOf(event);
    const apiId = field('apiId') || '*';
    const permissions = everything
      ? ['*']
      : [
          ...API_ACTIONS.filter((action) => field(action)).map((action) => `api.${apiId}.${action}`),
          ...ROOT_ACTIONS.filter((action) => field(action)).map((action) => `root.*.${action}`),
        ];
    void run(async () => {
      if (permissions.length === 0) throw new Failure('BAD_REQUEST', 'permissions: choose at least one');
      const created = await call('rootKeys.createRootKey', { name: field('name'), permissions });
      setSecret(created.key);
      onCreated();
    });
  };
  const choice = (action: string) => (
    <label class="check" key={action}>
      <input type="checkbox" name={action} /> {action.replaceAll('_', ' ')}
    </label>
  );
  return (
    <>
      <form class="panel fields" onSubmit={create} aria-label="New root key">
        <label>
          Name
          <input name="name" required maxLength={256} autocomplete="off" />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={everything}
            onChange={(event) => setEverything(event.currentTarget.checked)}
          />{' '}
          May do everything
        </label>
        {!everything && (
          <>
            <label class="wide">
              For the API <small>its id; empty = all of them</small>
              <input name="apiId" pattern="[A-Za-z0-9_\-]{1,64}" autocomplete="off" />
            </label>
            <fieldset class="wide row">
              <legend>With APIs and their keys</legend>
              {API_ACTIONS.map(choice)}
            </fieldset>
            <fieldset class="wide row">
              <legend>With what belongs to no API</legend>
              {ROOT_ACTIONS.map(choice)}
            </fieldset>
          </>
        )}
        {problem}
        <div class="row wide">
          <button type="submit" class="main" disabled={busy}>
            Create root key
          </button>
        </div>
      </form>
      {secret !== '' && (
        <SecretDialog title="The new root key" secret={secret} onClose={() => setSecret('')} />
      )}
    </>
  );
}
