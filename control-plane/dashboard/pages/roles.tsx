import { useState } from 'preact/hooks';
import { call, type Role } from '../api/client.ts';
import { useChange } from '../parts/change.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { ActionForm, type Entered, Field, Opener } from '../parts/forms.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Matrix } from '../parts/role-matrix.tsx';
import { slugsOf } from '../parts/slugs.ts';

/** Most roles that stand beside each other. */
const SHOWN_MAX = 12;

/** The roles and what each may do, as one matrix. */
export function Roles() {
  const roles = useLoad(() => call('permissions.listRoles'), []);
  // Who may not see the catalogue sees the roles all the same.
  const catalogue = useLoad(() => call('permissions.listPermissions').catch(() => []), []);
  const [wanted, setWanted] = useState('');
  const [deleting, setDeleting] = useState<Role>();
  const { applyRole, panelsBeside } = useChange(roles.again);
  const create = async (entered: Entered) => {
    const [name, description] = [entered('name'), entered('description')];
    const permissions = slugsOf(entered('permissions'));
    await call('permissions.createRole', { name, permissions, ...(description ? { description } : {}) });
    roles.again();
    return undefined;
  };
  const found = (all: readonly Role[]) =>
    all.filter(({ name, description = '', permissions }) =>
      [name, description, ...permissions.map((each) => each.name)].some((text) => text.includes(wanted)),
    );
  return (
    <Page title="Roles">
      <Opener
        action="New role"
        beside={
          <Field
            label="Find"
            type="search"
            value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
        }
      >
        {(close) => (
          <ActionForm label="New role" action="Create role" run={create} onDone={close}>
            <Field
              label="Name"
              hint="letters, digits and _:.*-"
              name="name"
              required
              pattern="[A-Za-z0-9_:.*\-]{1,100}"
            />
            <Field label="Meant for" name="description" maxLength={512} />
            <Field label="Permissions" hint="such as files.read files.write" wide name="permissions" />
          </ActionForm>
        )}
      </Opener>
      {panelsBeside([])}
      {deleting && (
        <Confirm
          title="Delete this role?"
          word={deleting.name}
          action="Delete role"
          run={() => call('permissions.deleteRole', { roleId: deleting.id })}
          onDone={() => {
            setDeleting(undefined);
            roles.again();
          }}
          onClose={() => setDeleting(undefined)}
        >
          Keys that have it lose what only <bdi>{deleting.name}</bdi> lets them do. This cannot be undone.
        </Confirm>
      )}
      <Loaded of={roles}>
        {(all) => {
          const shown = found(all);
          if (shown.length === 0)
            return (
              <div class="quiet empty">
                {all.length === 0
                  ? 'No roles yet. A role is one list of permissions for any number of keys.'
                  : 'No role is like that.'}
              </div>
            );
          return (
            <>
              {shown.length > SHOWN_MAX && (
                <p class="quiet" role="status">
                  The first {SHOWN_MAX} of {shown.length}.
                </p>
              )}
              <Matrix
                roles={shown.slice(0, SHOWN_MAX)}
                catalogue={catalogue.data ?? []}
                change={applyRole}
                remove={setDeleting}
              />
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}
