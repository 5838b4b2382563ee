import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call, type Role } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import { slugsOf } from '../forms/entered-values.ts';
import { ActionForm, Empty, Field, type FormEntry, Opener } from '../forms/forms.tsx';
import { useConditions } from '../parts/conditions.ts';
import { Confirm } from '../parts/dialogs.tsx';
import { Dock } from '../parts/dock.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Managed } from '../parts/managed.tsx';
import { Page } from '../parts/page.tsx';
import { Plans } from '../roles/role-limits.tsx';
import { Matrix } from '../roles/role-matrix.tsx';

/** Maximum number of roles shown side by side. */
const COLUMNS_MAX = 12;

/** A page with the roles and their permissions as one matrix. */
export function Roles() {
  const roles = useLoad(() => call('permissions.listRoles'), []);
  // A user who may not see the catalogue still sees the roles.
  const catalogue = useLoad(() => call('permissions.listPermissions').catch(() => []), []);
  const [{ find: text }, setCondition] = useConditions({ find: '' });
  const [deleting, setDeleting] = useState<Role>();
  const { applyRole, applyRoleLimits, receipts } = useChange(roles.reload);
  return (
    <Page
      title="Plans & roles"
      actions={
        <Opener action="New role" permission="root.*.create_role">
          {(close) => <NewRole onCreated={roles.reload} onDone={close} />}
        </Opener>
      }
    >
      <p class="row">
        <Field
          label="Find"
          isBare
          placeholder="Part of a role or a permission"
          type="search"
          value={text}
          onInput={(event) => setCondition({ find: event.currentTarget.value })}
        />
      </p>
      <Dock>{receipts}</Dock>
      {deleting && (
        <Confirm
          title="Delete this role?"
          word={deleting.name}
          action="Delete role"
          run={() => call('permissions.deleteRole', { roleId: deleting.id })}
          onDone={() => {
            setDeleting(undefined);
            roles.reload();
          }}
          onClose={() => setDeleting(undefined)}
        >
          Keys that have it lose what only <bdi>{deleting.name}</bdi> lets them do. This cannot be undone.
        </Confirm>
      )}
      <Loaded of={roles}>
        {(all) => (
          <Matches all={all} text={text}>
            {(roles) => {
              const plans = <Plans roles={roles} change={applyRoleLimits} />;
              const hasPermissions =
                catalogue.data?.length !== 0 || roles.some(({ permissions }) => permissions.length > 0);
              return (
                <>
                  {roles.map((role) => (
                    <Managed key={role.id} of={role} name={role.name} />
                  ))}
                  {!hasPermissions && plans}
                  {!hasPermissions && <h2>Permissions</h2>}
                  <Matrix
                    roles={roles}
                    catalogue={catalogue.data ?? []}
                    change={applyRole}
                    remove={setDeleting}
                  />
                  {hasPermissions && plans}
                </>
              );
            }}
          </Matches>
        )}
      </Loaded>
    </Page>
  );
}

function NewRole({ onCreated, onDone }: { onCreated: () => void; onDone: () => void }) {
  const create = async (entry: FormEntry) => {
    const [name, description] = [entry('name'), entry('description')];
    const permissions = slugsOf(entry('permissions'));
    await call('permissions.createRole', { name, permissions, ...(description ? { description } : {}) });
    onCreated();
    return undefined;
  };
  return (
    <ActionForm label="New role" action="Create role" run={create} onDone={onDone}>
      <Field
        label="Name"
        hint="letters, digits, spaces and _:.*-"
        name="name"
        required
        pattern="[A-Za-z0-9_:.*\-]+( [A-Za-z0-9_:.*\-]+)*"
        maxLength={100}
      />
      <Field label="Meant for" name="description" maxLength={512} />
      <Field label="Permissions" hint="such as files.read files.write" wide name="permissions" />
    </ActionForm>
  );
}

/** The roles that contain a text, as a matrix of at most COLUMNS_MAX columns. */
function Matches(props: {
  all: readonly Role[];
  text: string;
  children: (roles: readonly Role[]) => ComponentChildren;
}) {
  const { all, text, children } = props;
  const matches = all.filter(({ name, description = '', permissions }) =>
    [name, description, ...permissions.map((each) => each.name)].some((own) => own.includes(text)),
  );
  if (matches.length === 0)
    return (
      <div class="quiet empty">
        {all.length === 0 ? (
          <Empty page="#/roles" action="Create the first role" permission="root.*.create_role">
            No roles yet. A role gives any number of keys the same permissions; with limits, it is a plan.
          </Empty>
        ) : (
          'No role matches.'
        )}
      </div>
    );
  return (
    <>
      {matches.length > COLUMNS_MAX && (
        <p class="quiet" role="status">
          The first {COLUMNS_MAX} of {matches.length}.
        </p>
      )}
      {children(matches.slice(0, COLUMNS_MAX))}
    </>
  );
}
