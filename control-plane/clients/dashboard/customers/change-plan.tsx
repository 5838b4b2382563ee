import { useState } from 'preact/hooks';
import { windowInWords, windowText } from '#shared/protocol/records/limit.ts';
import { appliedLimits } from '../../../subjects/rate-limits/applied-limits.ts';
import { call, type Identity, type Role } from '../api/client.ts';
import { counted } from '../parts/counted.ts';
import { Dialog } from '../parts/dialogs.tsx';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';

type Apply = (identity: Identity, headline: string, patch: object, undo: object) => Promise<unknown>;

/** Tells whether a role is a plan: it has limits. */
const isPlan = ({ ratelimits, concurrency }: Role): boolean => ratelimits.length + concurrency.length > 0;

/** A limit of a plan with its amount now and then; undefined = there is none. */
interface Compared {
  readonly name: string;
  readonly now: number | undefined;
  readonly later: number | undefined;
  readonly used: number | undefined;
}

/** Chooses another plan for a customer, and shows first what changes. */
export function ChangePlan({ of, apply, onClose }: { of: Identity; apply: Apply; onClose: () => void }) {
  const facts = useLoad(async () => {
    const [roles, allowances] = await Promise.all([
      call('permissions.listRoles'),
      call('identities.getAllowances', { identityId: of.id }),
    ]);
    return { roles, allowances, plans: roles.filter(isPlan) };
  }, []);
  const current = facts.data?.plans.filter(({ name }) => of.roles.includes(name)).map(({ name }) => name);
  const [selection, setSelection] = useState<string>();
  const { busy, run, problem } = useAction();
  const plan = selection ?? current?.[0] ?? '';
  const rolesThen = [...of.roles.filter((name) => !current?.includes(name)), ...(plan ? [plan] : [])];
  const isSame = rolesThen.toSorted().join() === of.roles.toSorted().join();
  const move = async () => {
    const headline = plan ? `Moved ${of.externalId} to ${plan}` : `Took the plan from ${of.externalId}`;
    await apply(of, headline, { roles: rolesThen, ifSequence: of.sequence }, { roles: of.roles });
    onClose();
  };
  return (
    <Dialog title={`Change the plan of ${of.externalId}`} onClose={onClose}>
      <Loaded of={facts}>
        {({ roles, plans, allowances }) => (
          <>
            <p class="quiet">
              Holds for {counted(allowances.keys, 'key')} once the change is complete. A limit that keeps its
              name and its time keeps what was used.
            </p>
            <fieldset class="choices">
              <legend class="unseen">Plan</legend>
              {[...plans.map(({ name }) => name), ''].map((name) => (
                <label key={name} class="choice">
                  <input
                    type="radio"
                    name="plan"
                    value={name}
                    checked={plan === name}
                    onChange={() => setSelection(name)}
                  />{' '}
                  <bdi>{name || 'no plan'}</bdi>
                  {(current?.includes(name) || (name === '' && current?.length === 0)) && <small> now</small>}
                </label>
              ))}
            </fieldset>
            {plans.length === 0 && (
              <p>
                A plan is a role with limits. <a href="#/roles">Give a role limits</a>
              </p>
            )}
            <Table
              label="What changes"
              rows={compared(of, roles, rolesThen, allowances)}
              id={({ name }) => name}
              empty="No limits, now and then."
              columns={[
                { title: 'Limit', narrow: 'first', cell: ({ name }) => name },
                { title: 'Now', number: true, cell: ({ now }) => amount(now) },
                {
                  title: 'Then',
                  number: true,
                  cell: ({ now, later }) => <span class={toneOf(now, later)}>{amount(later)}</span>,
                },
                {
                  title: 'Used',
                  number: true,
                  cell: ({ used, later }) => (
                    <span class={(used ?? 0) > (later ?? Infinity) ? 'lower' : ''}>
                      {used?.toLocaleString() ?? '–'}
                    </span>
                  ),
                },
              ]}
            />
            {problem}
            <div class="row">
              <button
                type="button"
                class="main"
                aria-disabled={busy}
                disabled={isSame}
                onClick={() => void run(move)}
              >
                {plan ? `Move to ${plan}` : 'Take the plan away'}
              </button>
              <button type="button" onClick={onClose}>
                Cancel
              </button>
            </div>
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

const amount = (limit: number | undefined) => limit?.toLocaleString() ?? 'none';
const toneOf = (now = Infinity, later = Infinity) => (later > now ? 'higher' : later < now ? 'lower' : '');

type Allowances = Awaited<ReturnType<typeof call<'identities.getAllowances'>>>;

/** The limits that apply to keys of the customer, with its roles of now and with those of then. */
function compared(
  of: Identity,
  all: readonly Role[],
  rolesThen: readonly string[],
  { limits, concurrency }: Allowances,
): readonly Compared[] {
  const limitsWith = (names: readonly string[]) =>
    new Map(
      appliedLimits({
        key: { apiId: '', ownerId: '' },
        identity: of,
        roles: all.filter(({ name }) => names.includes(name)),
      }).map((limit) => {
        const window = limit.duration === 0 ? 'at once' : windowInWords(limit);
        const isShared = limit.space === undefined;
        const use =
          limit.duration === 0
            ? concurrency.find(({ name }) => name === limit.name)?.inUse
            : limits.find(({ name, per }) => name === limit.name && per === windowText(limit))?.used;
        const name = `${limit.name} ${window}${isShared ? '' : ', each key'}`;
        return [name, { limit: limit.limit, used: isShared ? use : undefined }] as const;
      }),
    );
  const [now, later] = [limitsWith(of.roles), limitsWith(rolesThen)];
  return [...new Set([...now.keys(), ...later.keys()])].map((name) => ({
    ...{ name, now: now.get(name)?.limit, later: later.get(name)?.limit },
    used: (now.get(name) ?? later.get(name))?.used,
  }));
}
