import { useState } from 'preact/hooks';
import { limitInWords } from '#shared/protocol/records/limit.ts';
import { may, type Role } from '../api/client.ts';
import { limitsOf } from '../forms/entered-values.ts';
import { ActionForm, type FormEntry } from '../forms/forms.tsx';
import { LimitRows } from '../forms/limit-rows.tsx';
import { Dialog } from '../parts/dialogs.tsx';
import { Table } from '../parts/table.tsx';

type Limits = Pick<Role, 'ratelimits' | 'concurrency'>;
type ChangeLimits = (role: Role, limits: Limits, ifSequence: number | undefined) => Promise<unknown>;

/** The limits of roles, which make plans of them. */
export function Plans({ roles, change }: { roles: readonly Role[]; change: ChangeLimits }) {
  const [edited, setEdited] = useState<Role>();
  return (
    <>
      <h2>Plans</h2>
      <Table
        label="Plans"
        rows={roles}
        id={({ id }) => id}
        empty=""
        columns={[
          { title: 'Role', narrow: 'first', cell: ({ name, id }) => <bdi title={id}>{name}</bdi> },
          { title: 'Limits of its keys', grows: true, cell: (role) => <LimitList of={role} isPer /> },
          {
            title: 'Actions',
            narrow: 'menu',
            cell: (role) =>
              may('root.*.update_role') && (
                <button
                  type="button"
                  class="small"
                  aria-label={`Limits… of ${role.name}`}
                  onClick={() => setEdited(role)}
                >
                  Limits…
                </button>
              ),
          },
        ]}
      />
      {edited && (
        <Dialog title={`Limits of ${edited.name}`} onClose={() => setEdited(undefined)}>
          <Edit of={edited} change={change} onDone={() => setEdited(undefined)} />
        </Dialog>
      )}
    </>
  );
}

/** Limits in words. @param props.isPer true if each counts per key or per customer */
export function LimitList({ of, isPer = false }: { of: Limits; isPer?: boolean }) {
  const { ratelimits, concurrency } = of;
  const perText = (per = 'key') => (isPer ? ` per ${per === 'identity' ? 'customer' : per}` : '');
  if (ratelimits.length + concurrency.length === 0) return <span class="quiet none">none</span>;
  return (
    <ul class="plain">
      {ratelimits.map((limit) => (
        <li key={limit.name}>
          <strong>{limit.name}</strong> {limitInWords(limit)}
          {perText(limit.per)}
          {limit.autoApply && ', by each request'}
        </li>
      ))}
      {concurrency.map(({ name, limit, per }) => (
        <li key={name}>
          <strong>{name}</strong> {limit.toLocaleString()} at the same time{perText(per)}
        </li>
      ))}
    </ul>
  );
}

function Edit({ of, change, onDone }: { of: Role; change: ChangeLimits; onDone: () => void }) {
  const save = async (entry: FormEntry, ifSequence?: number) => {
    const [ratelimits, concurrency] = [limitsOf(entry('ratelimits')), limitsOf(entry('concurrency'))];
    await change(of, { ratelimits, concurrency } as Limits, ifSequence);
    return undefined;
  };
  return (
    <ActionForm label="Limits" action="Save limits" run={save} onDone={onDone} sequence={of.sequence}>
      <LimitRows name="ratelimits" label="Rate limits" of={of.ratelimits} isRate hasScope />
      <LimitRows
        name="concurrency"
        label="Limits at the same time"
        of={of.concurrency}
        isRate={false}
        hasScope
      />
      <p class="quiet wide">Of several roles, the largest limit of a name applies.</p>
    </ActionForm>
  );
}
