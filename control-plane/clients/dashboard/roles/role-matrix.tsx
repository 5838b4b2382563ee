import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { isConflict, may, type Role } from '../api/client.ts';
import { slugsOf } from '../forms/entered-values.ts';
import { Field, fieldsOf } from '../forms/forms.tsx';
import { CopyButton } from '../parts/copy-id.tsx';
import { counted } from '../parts/counted.ts';
import { useAction } from '../parts/loading.tsx';

/** Ticks by role that differ from its permissions, and the `sequence` that it had at the first of them. */
type Edits = Readonly<
  Record<
    string,
    { readonly ticks: Readonly<Record<string, boolean>>; readonly sequence: number | undefined } | undefined
  >
>;

type Ticks = ReturnType<typeof useTicks>;
type ChangeRole = (
  roleId: string,
  headline: string,
  permissions: readonly string[],
  ifSequence: number | undefined,
  before: readonly string[],
) => Promise<unknown>;

const namesOf = ({ permissions }: Role) => permissions.map(({ name }) => name);

/** Holds the ticks of the matrix, by role, until they are saved. */
function useTicks(change: ChangeRole) {
  const [edits, setEdits] = useState<Edits>({});
  const of = (role: Role) => {
    const ticks = Object.entries(edits[role.id]?.ticks ?? {});
    const own = namesOf(role).filter((slug) => !ticks.some(([ticked]) => ticked === slug));
    return [...own, ...ticks.flatMap(([slug, isOn]) => (isOn ? [slug] : []))];
  };
  const set = (role: Role, slug: string, isOn: boolean) =>
    setEdits(({ [role.id]: edit, ...others }) => {
      const { [slug]: _, ...rest } = edit?.ticks ?? {};
      const ticks = namesOf(role).includes(slug) === isOn ? rest : { ...rest, [slug]: isOn };
      if (Object.keys(ticks).length === 0) return others;
      return { ...others, [role.id]: { ticks, sequence: edit?.sequence ?? role.sequence } };
    });
  const save = async (role: Role) => {
    const edit = edits[role.id];
    try {
      await change(role.id, `Changed ${role.name}`, of(role), edit?.sequence ?? role.sequence, namesOf(role));
    } catch (error) {
      // What somebody else saved is shown now, so that saving again is a decision.
      if (edit && isConflict(error))
        setEdits((all) => ({ ...all, [role.id]: { ...edit, sequence: undefined } }));
      throw error;
    }
    setEdits(({ [role.id]: _, ...others }) => others);
  };
  return { of, set, save, isChanged: (role: Role) => edits[role.id] !== undefined };
}

/**
 * A table with a line for each permission and a column for each role. The ticks are saved role by role, each
 * as one change.
 * @param props.catalogue permissions that always have a line, with their descriptions
 * @param props.change sets all permissions of a role, given also the previous ones
 */
export function Matrix(props: {
  roles: readonly Role[];
  catalogue: readonly { readonly slug: string; readonly description?: string }[];
  change: ChangeRole;
  remove: (role: Role) => void;
}) {
  const { roles, catalogue, change, remove } = props;
  const ticks = useTicks(change);
  const [newSlugs, setNewSlugs] = useState<readonly string[]>([]);
  const descriptions = new Map(catalogue.map(({ slug, description }) => [slug, description]));
  const slugs = [
    ...new Set([
      ...descriptions.keys(),
      ...roles.flatMap((role) => [...namesOf(role), ...ticks.of(role)]),
      ...newSlugs,
    ]),
  ].sort();
  return (
    <>
      {useNarrow() ? (
        roles.map((role) => <RoleCard key={role.id} {...{ role, slugs, ticks, remove }} />)
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it is scrolled with the keyboard
        <section class="scroll" aria-label="Roles and permissions" tabIndex={0}>
          <table class="matrix">
            <Head roles={roles} />
            <tbody>
              {slugs.map((slug) => (
                <Line key={slug} {...{ slug, roles, ticks }} description={descriptions.get(slug)} />
              ))}
            </tbody>
            <tfoot>
              <tr>
                <th scope="row">
                  <span class="unseen">Changes</span>
                </th>
                {roles.map((role) => (
                  <td key={role.id}>
                    <Ending role={role} ticks={ticks} remove={remove} />
                  </td>
                ))}
              </tr>
            </tfoot>
          </table>
        </section>
      )}
      {may('root.*.update_role') && (
        <NewLine onAdd={(more) => setNewSlugs((before) => [...before, ...more])} />
      )}
    </>
  );
}

/** Tells whether columns have no room, as in the style. */
function useNarrow(): boolean {
  const [media] = useState(() => matchMedia('(max-width: 46rem)'));
  const [isNarrow, setNarrow] = useState(media.matches);
  useEffect(() => {
    const change = () => setNarrow(media.matches);
    media.addEventListener('change', change);
    return () => media.removeEventListener('change', change);
  }, []);
  return isNarrow;
}

/** A role where columns have no room: its permissions fold out. */
function RoleCard(props: {
  role: Role;
  slugs: readonly string[];
  ticks: Ticks;
  remove: (role: Role) => void;
}) {
  const { role, slugs, ticks, remove } = props;
  return (
    <details class="panel">
      <summary>
        <strong>
          <bdi>{role.name}</bdi>
        </strong>{' '}
        <small>{counted(ticks.of(role).length, 'permission')}</small>
      </summary>
      <ul class="plain">
        {slugs.map((slug) => (
          <li key={slug}>
            <Tick {...{ slug, role, ticks }} kind="check">
              <code>{slug}</code>
            </Tick>
          </li>
        ))}
      </ul>
      <Ending {...{ role, ticks, remove }} />
    </details>
  );
}

/** The checkbox of a permission of a role. */
function Tick(props: {
  slug: string;
  role: Role;
  ticks: Ticks;
  kind: 'box' | 'check';
  children?: ComponentChildren;
}) {
  const { slug, role, ticks, kind, children } = props;
  return (
    <label class={kind}>
      <input
        type="checkbox"
        aria-label={`${role.name} may ${slug}`}
        checked={ticks.of(role).includes(slug)}
        disabled={!may('root.*.update_role')}
        onChange={(event) => ticks.set(role, slug, event.currentTarget.checked)}
      />
      {children}
    </label>
  );
}

/** The end of a role: its change is saved, or the role deleted. */
function Ending({ role, ticks, remove }: { role: Role; ticks: Ticks; remove: (role: Role) => void }) {
  if (ticks.isChanged(role)) return <Save role={role} save={() => ticks.save(role)} />;
  if (!may('root.*.delete_role')) return null;
  return (
    <button type="button" class="small" aria-label={`Delete ${role.name}`} onClick={() => remove(role)}>
      Delete
    </button>
  );
}

function Head({ roles }: { roles: readonly Role[] }) {
  return (
    <thead>
      <tr>
        <th scope="col">Permission</th>
        {roles.map((role) => (
          <th scope="col" key={role.id} title={[role.name, role.description].filter(Boolean).join(': ')}>
            <bdi>{role.name}</bdi>
            <CopyButton class="copy" text={role.id} label={`Copy the id of ${role.name}`}>
              id
            </CopyButton>
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Line(props: {
  slug: string;
  description: string | undefined;
  roles: readonly Role[];
  ticks: Ticks;
}) {
  const { slug, description, roles, ticks } = props;
  return (
    <tr>
      <th scope="row">
        <code>{slug}</code>
        {description && <small class="quiet"> {description}</small>}
      </th>
      {roles.map((role) => (
        <td key={role.id}>
          <Tick {...{ slug, role, ticks }} kind="box" />
        </td>
      ))}
    </tr>
  );
}

function NewLine({ onAdd }: { onAdd: (slugs: readonly string[]) => void }) {
  const add = (event: Event) => {
    const slug = fieldsOf(event)('slug');
    onAdd(slugsOf(slug));
    (event.currentTarget as HTMLFormElement).reset();
  };
  return (
    <form class="row" onSubmit={add} aria-label="Add a line">
      <Field label="Another permission" name="slug" pattern="[A-Za-z0-9_:.*\-, ]{1,1000}" required />
      <button type="submit">Add a line</button>
    </form>
  );
}

function Save({ role, save }: { role: Role; save: () => Promise<unknown> }) {
  const { busy, run, problem } = useAction();
  return (
    <>
      <button
        type="button"
        class="main small"
        aria-disabled={busy}
        aria-label={`Save ${role.name}`}
        onClick={() => void run(save)}
      >
        Save
      </button>
      {problem}
    </>
  );
}
