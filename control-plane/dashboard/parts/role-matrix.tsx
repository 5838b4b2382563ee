import { useState } from 'preact/hooks';
import type { Role } from '../api/client.ts';
import { CopyId } from './copy-id.tsx';
import { Field, fieldsOf } from './forms.tsx';
import { useAction } from './loading.tsx';
import { slugsOf } from './slugs.ts';

/** Permissions that are ticked by role, where they are not those that the role has. */
type Ticked = Readonly<Record<string, readonly string[]>>;

const namesOf = ({ permissions }: Role) => permissions.map(({ name }) => name);
const isSame = (a: readonly string[], b: readonly string[]) => [...a].sort().join() === [...b].sort().join();

/**
 * A line for each permission, a column for each role. What is ticked is sent role by role, each as one change.
 * @param props.catalogue permissions that have lines in any case, with what they are for
 * @param props.change says all that the keys of a role may do, and what they might before
 */
export function Matrix(props: {
  roles: readonly Role[];
  catalogue: readonly { readonly slug: string; readonly description?: string }[];
  change: (
    roleId: string,
    what: string,
    permissions: readonly string[],
    before: readonly string[],
  ) => Promise<void>;
  remove: (role: Role) => void;
}) {
  const { roles, catalogue, change, remove } = props;
  const [ticked, setTicked] = useState<Ticked>({});
  const [added, setAdded] = useState<readonly string[]>([]);
  const of = (role: Role) => ticked[role.id] ?? namesOf(role);
  const tick = (role: Role, slug: string, isOn: boolean) => {
    const next = isOn ? [...of(role), slug] : of(role).filter((each) => each !== slug);
    setTicked(({ [role.id]: _, ...others }) =>
      isSame(next, namesOf(role)) ? others : { ...others, [role.id]: next },
    );
  };
  const save = async (role: Role) => {
    await change(role.id, `Changed ${role.name}`, of(role), namesOf(role));
    setTicked(({ [role.id]: _, ...others }) => others);
  };
  const described = new Map(catalogue.map(({ slug, description }) => [slug, description]));
  const slugs = [
    ...new Set([...described.keys(), ...roles.flatMap((role) => [...namesOf(role), ...of(role)]), ...added]),
  ].sort();
  const add = (event: Event) => {
    const entered = fieldsOf(event)('slug');
    setAdded((before) => [...before, ...slugsOf(entered)]);
    (event.currentTarget as HTMLFormElement).reset();
  };
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it is scrolled with the keyboard */}
      <section class="scroll" aria-label="Roles and permissions" tabIndex={0}>
        <table class="matrix">
          <thead>
            <tr>
              <th scope="col">Permission</th>
              {roles.map((role) => (
                <th scope="col" key={role.id} title={role.description}>
                  <bdi>{role.name}</bdi>
                  <CopyId id={role.id} of={role.name} unseen />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {slugs.map((slug) => (
              <tr key={slug}>
                <th scope="row">
                  <code>{slug}</code>
                  {described.get(slug) && <small class="quiet"> {described.get(slug)}</small>}
                </th>
                {roles.map((role) => (
                  <td key={role.id}>
                    <label class="box">
                      <input
                        type="checkbox"
                        aria-label={`${role.name} may ${slug}`}
                        checked={of(role).includes(slug)}
                        onChange={(event) => tick(role, slug, event.currentTarget.checked)}
                      />
                    </label>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">
                <span class="unseen">Changes</span>
              </th>
              {roles.map((role) => (
                <td key={role.id}>
                  {ticked[role.id] ? (
                    <Save role={role} save={() => save(role)} />
                  ) : (
                    <button
                      type="button"
                      class="small"
                      aria-label={`Delete ${role.name}`}
                      onClick={() => remove(role)}
                    >
                      Delete
                    </button>
                  )}
                </td>
              ))}
            </tr>
          </tfoot>
        </table>
      </section>
      <form class="row" onSubmit={add} aria-label="Add a line">
        <Field label="Another permission" name="slug" pattern="[A-Za-z0-9_:.*\-, ]{1,1000}" required />
        <button type="submit">Add a line</button>
      </form>
    </>
  );
}

function Save({ role, save }: { role: Role; save: () => Promise<void> }) {
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
