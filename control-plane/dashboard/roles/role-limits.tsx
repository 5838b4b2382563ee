import { useState } from 'preact/hooks';
import { limitInWords, limitText } from '#shared/protocol/records/limit.ts';
import { may, type Role } from '../api/client.ts';
import { concurrencyOf, concurrencyText, limitsOf } from '../forms/entered-values.ts';
import { ActionForm, FieldError, type FormEntry } from '../forms/forms.tsx';
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
                  aria-label={`Limits of ${role.name}…`}
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

/** Limits in words. @param props.isPer true if each counts per key or per identity */
export function LimitList({ of, isPer = false }: { of: Limits; isPer?: boolean }) {
  const { ratelimits, concurrency } = of;
  const perText = (per = 'key') => (isPer ? ` per ${per}` : '');
  if (ratelimits.length + concurrency.length === 0) return <span class="quiet none">none</span>;
  return (
    <ul class="plain">
      {ratelimits.map((limit) => (
        <li key={limit.name}>
          <strong>{limit.name}</strong> {limitInWords(limit)}
          {perText(limit.per)}
          {limit.autoApply && ', taken by each verification'}
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
    const limits = {
      ratelimits: linesOf(entry('ratelimits')).flatMap(({ line, per }) =>
        limitsOf('ratelimits', line).map((limit) => ({ ...limit, per })),
      ),
      concurrency: linesOf(entry('concurrency')).flatMap(({ line, per }) =>
        concurrencyOf('concurrency', line).map((limit) => ({ ...limit, per })),
      ),
    };
    await change(of, limits as Limits, ifSequence);
    return undefined;
  };
  return (
    <ActionForm label="Limits" action="Save limits" run={save} onDone={onDone} sequence={of.sequence}>
      <label class="field wide">
        Rate limits{' '}
        <small>one a line, such as “requests 1000/1m auto per identity” or “exports 20/month per key”</small>
        <textarea
          name="ratelimits"
          rows={4}
          spellcheck={false}
          defaultValue={of.ratelimits.map(lineOf).join('\n')}
        />
        <FieldError name="ratelimits" />
      </label>
      <label class="field wide">
        Concurrency limits <small>one a line, such as “jobs 3 per identity”</small>
        <textarea
          name="concurrency"
          rows={2}
          spellcheck={false}
          defaultValue={of.concurrency
            .map((each) => `${concurrencyText([each])} per ${each.per ?? 'key'}`)
            .join('\n')}
        />
        <FieldError name="concurrency" />
      </label>
      <p class="quiet wide">
        <code>auto</code>: each verification takes one, without naming the limit. Of several roles, the
        largest limit of a name applies.
      </p>
    </ActionForm>
  );
}

const lineOf = (limit: Role['ratelimits'][number]): string =>
  `${limit.name} ${limitText(limit)} per ${limit.per ?? 'key'}`;

/** Takes apart the lines that `lineOf` writes: what all limits have, and what only those of roles have. */
function linesOf(text: string) {
  return text.split('\n').map((whole) => {
    const [, line = '', per = 'key'] = /^(.*?)(?:\s+per\s+(key|identity))?\s*$/.exec(whole) ?? [];
    return { line, per };
  });
}
