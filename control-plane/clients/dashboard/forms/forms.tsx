import { type ComponentChildren, createContext, type InputHTMLAttributes } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { Failure, InvalidFields, isConflict, may } from '../api/client.ts';
import { partsOf } from '../parts/conditions.ts';
import { Dialog, SecretDialog } from '../parts/dialogs.tsx';
import { useAction } from '../parts/loading.tsx';

/** Returns the trimmed values of a submitted form. */
export function fieldsOf(event: Event): (name: string) => string {
  event.preventDefault();
  const data = new FormData(event.currentTarget as HTMLFormElement);
  return (name) => String(data.get(name) ?? '').trim();
}

/** The values of a form by field name, trimmed. */
export type FormEntry = ReturnType<typeof fieldsOf>;

/** Faults of the fields of a form, by their names. */
const FieldErrors = createContext<ReadonlyMap<string, string>>(new Map());

/** The fault of a field, below it. */
export function FieldError({ name = '' }: { name?: string | undefined }) {
  const error = useContext(FieldErrors).get(name);
  return error === undefined ? null : (
    <span class="error" role="alert">
      {error}
    </span>
  );
}

/** A text input with its label. */
export function Field({
  label,
  hint,
  wide = false,
  isBare = false,
  ...input
}: {
  label: string;
  hint?: string;
  wide?: boolean;
  /** True if its place and its placeholder say what it is for, and the label only to who cannot see them. */
  isBare?: boolean;
} & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label class={wide ? 'field wide' : 'field'}>
      {isBare ? <span class="unseen">{label}</span> : label} {hint && <small>{hint}</small>}
      <input autocomplete="off" {...input} />
      <FieldError name={input.name as string} />
    </label>
  );
}

/** A choice in a search form; changing it starts the search. */
export function Choice(props: {
  label: string;
  name: string;
  value: string;
  options: Readonly<Record<string, string>>;
}) {
  return (
    <label>
      <span>{props.label}</span>
      <select
        name={props.name}
        aria-label={props.label}
        onChange={(event) => event.currentTarget.form?.requestSubmit()}
      >
        <Options of={props.options} value={props.value} />
      </select>
    </label>
  );
}

/** The choices of a select: texts by their values. */
export function Options({ of, value }: { of: Readonly<Record<string, string>>; value: string }) {
  return Object.entries(of).map(([each, text]) => (
    <option key={each} value={each} selected={each === value}>
      {text}
    </option>
  ));
}

/**
 * A form that runs one action, shows its error, and shows once any secret that it returns.
 * @param props.onDone is called after the action, and after the user has stored the secret; a form that
 * creates something then closes
 */
export function ActionForm(props: {
  label: string;
  action: string;
  /** @param ifSequence the `sequence` of what was shown when the user began to edit */
  run: (
    entry: FormEntry,
    ifSequence: number | undefined,
  ) => Promise<{ key: string } | { sequence: number } | undefined>;
  message?: string;
  /** True if it changes nothing, so that what was entered may be lost. */
  isQuestion?: boolean;
  /** The `sequence` of what the form shows. */
  sequence?: number;
  /** False if the page has another primary action. */
  isMain?: boolean;
  onDone?: () => void;
  children: ComponentChildren;
}) {
  const { busy, run, problem } = useAction();
  const [errors, setErrors] = useState<ReadonlyMap<string, string>>(new Map());
  const [secret, setSecret] = useState<string>();
  const [base, setBase] = useState<number>();
  /** That of the user's own last save, which may not be loaded yet. */
  const [own, setOwn] = useState(0);
  const latest = props.sequence === undefined ? undefined : Math.max(own, props.sequence);
  const submit = (event: Event) => {
    const entry = fieldsOf(event);
    const form = event.currentTarget as HTMLFormElement;
    delete form.dataset['edited'];
    void run(async () => {
      setErrors(new Map());
      const result = await entered(form, () => props.run(entry, base ?? latest)).catch((error: unknown) => {
        if (!props.isQuestion) form.dataset['edited'] = '';
        const fields = error instanceof Failure ? error.fields : new Map<string, string>();
        const [first] = [...fields.keys()].map((name) => form.elements.namedItem(name));
        // It is said at the fields, if this form has them.
        if (first) {
          setErrors(fields);
          show(first);
          return null;
        }
        // What somebody else saved is shown now, so that saving again is a decision.
        if (isConflict(error)) {
          setBase(undefined);
          setOwn(0);
        }
        throw error;
      });
      if (result === null) return;
      setBase(undefined);
      if (result && 'sequence' in result) setOwn(result.sequence);
      if (result && 'key' in result) setSecret(result.key);
      else props.onDone?.();
    });
  };
  const finish = () => {
    setSecret(undefined);
    props.onDone?.();
  };
  if (secret !== undefined)
    return <SecretDialog title={titleOf(props.label)} secret={secret} onClose={finish} canHandOver />;
  return (
    <form
      class="panel fields"
      noValidate
      onSubmit={submit}
      onInput={({ currentTarget }) => {
        if (props.isQuestion) return;
        currentTarget.dataset['edited'] = '';
        setBase(base ?? latest);
      }}
      aria-label={props.label}
    >
      <FieldErrors value={errors}>{props.children}</FieldErrors>
      {problem}
      <div class="row wide">
        <button type="submit" class={props.isMain === false ? '' : 'main'} aria-disabled={busy}>
          {props.action}
        </button>
        <span role="status">{props.message}</span>
      </div>
    </form>
  );
}

/** Runs what a form is for, if the browser finds no fault in its fields. Rejects with all faults. */
async function entered<T>(form: HTMLFormElement, run: () => Promise<T>): Promise<T> {
  const faults = [...form.elements].flatMap((field) =>
    field instanceof HTMLInputElement && !field.checkValidity()
      ? [[field.name, field.validationMessage] as const]
      : [],
  );
  if (faults.length > 0) throw new InvalidFields(new Map(faults));
  return run();
}

/** Brings a field into sight, which may be among those that are folded, and focuses it or what stands for it. */
function show(field: Element | RadioNodeList): void {
  if (!(field instanceof HTMLElement)) return;
  field.closest('details')?.setAttribute('open', '');
  const target = field.matches('[type=hidden]') ? field.parentElement?.querySelector('input') : field;
  target?.scrollIntoView({ block: 'center' });
  target?.focus();
}

const titleOf = (label: string) => `The ${label.toLowerCase()}`;

/**
 * The primary action of a page: a button that opens a form in a dialog, which closes when it is done. Without the
 * permission there is no such button.
 */
export function Opener(props: {
  action: string;
  permission: string;
  children: (close: () => void) => ComponentChildren;
}) {
  // The finder leads here, too.
  const [open, setOpen] = useState(partsOf(location.hash)[1].has('new'));
  const close = () => {
    setOpen(false);
    history.replaceState(history.state, '', location.hash.replace(/[?&]new=?$/, ''));
  };
  useEffect(() => {
    // From this page itself, which then stays.
    const follow = () => partsOf(location.hash)[1].has('new') && setOpen(true);
    addEventListener('hashchange', follow);
    return () => removeEventListener('hashchange', follow);
  }, []);
  if (!may(props.permission)) return null;
  return (
    <>
      <button type="button" class="main" onClick={() => setOpen(true)}>
        {props.action}
      </button>
      {open && (
        <Dialog title={props.action} onClose={close}>
          {props.children(close)}
        </Dialog>
      )}
    </>
  );
}

/**
 * Says why a list is empty, and leads to the page's form that makes its first row.
 * @param props.page the address of the page
 */
export function Empty(props: {
  page: string;
  action: string;
  permission: string;
  children: ComponentChildren;
}) {
  const { page, action, permission, children } = props;
  return (
    <>
      {children}
      {may(permission) && (
        <p>
          <a class="main" href={`${page}?new`}>
            {action}
          </a>
        </p>
      )}
    </>
  );
}
