import { call } from '../api/client.ts';
import { useChange } from '../parts/change.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { ActionForm, type Entered, Field, fieldsOf, Opener } from '../parts/forms.tsx';
import { IdentityState, IdentitySwitch, identityPage } from '../parts/identity-state.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';

/** The identities, each a customer; finding one by its owner, making one, and stopping them. */
export function Identities() {
  const pages = usePages();
  const identities = useLoad(
    () => call('identities.listIdentities', { limit: '25', cursor: pages.cursor }),
    [pages.cursor],
  );
  const { applyIdentity, panelOf } = useChange(identities.again);
  const create = async (entered: Entered) => {
    const externalId = entered('externalId');
    await call('identities.createIdentity', { externalId });
    location.hash = identityPage(externalId);
    return undefined;
  };
  const find = (event: Event) => {
    location.hash = identityPage(fieldsOf(event)('owner'));
  };
  return (
    <Page title="Identities">
      <Opener
        action="New identity"
        beside={
          <form class="row" onSubmit={find} aria-label="Find an identity">
            <Field label="Owner" hint="its external id" name="owner" required maxLength={256} type="search" />
            <button type="submit">Find</button>
          </form>
        }
      >
        {(close) => (
          <ActionForm label="New identity" action="Create identity" run={create} onDone={close}>
            <Field
              label="External id"
              hint="of the customer, in your own system"
              wide
              name="externalId"
              required
              maxLength={256}
            />
          </ActionForm>
        )}
      </Opener>
      <Loaded of={identities}>
        {(page) => (
          <>
            <Table
              label="Identities"
              rows={page.identities}
              id={({ id }) => id}
              empty="No identities yet. One is a customer: all keys of theirs, in all APIs, which are stopped together."
              columns={[
                {
                  title: 'Owner',
                  narrow: 'first',
                  cell: ({ externalId }) => (
                    <a href={identityPage(externalId)}>
                      <bdi>{externalId}</bdi>
                    </a>
                  ),
                },
                {
                  title: 'Id',
                  narrow: 'none',
                  cell: ({ id, externalId }) => <CopyId id={id} of={externalId} />,
                },
                { title: 'State', narrow: 'beside', cell: (of) => <IdentityState of={of} /> },
                {
                  title: 'Change',
                  narrow: 'beside',
                  cell: (of) => <IdentitySwitch of={of} apply={applyIdentity} />,
                },
              ]}
              below={({ id }) => panelOf(id)}
            />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
  );
}
