import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { useState } from 'preact/hooks';
import { isConflict, may } from '../api/client.ts';
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

/** A text input with its label. */
export function Field({
  label,
  hint,
  wide = false,
  ...input
}: { label: string; hint?: string; wide?: boolean } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label class={wide ? 'wide' : ''}>
      {label} {hint && <small>{hint}</small>}
      <input autocomplete="off" {...input} />
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
      {props.label}
      <select
        name={props.name}
        value={props.value}
        onChange={(event) => event.currentTarget.form?.requestSubmit()}
      >
        {Object.entries(props.options).map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
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
      const result = await props.run(entry, base ?? latest).catch((error: unknown) => {
        if (!props.isQuestion) form.dataset['edited'] = '';
        // What somebody else saved is shown now, so that saving again is a decision.
        if (isConflict(error)) {
          setBase(undefined);
          setOwn(0);
        }
        throw error;
      });
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
      onSubmit={submit}
      onInput={({ currentTarget }) => {
        if (props.isQuestion) return;
        currentTarget.dataset['edited'] = '';
        setBase(base ?? latest);
      }}
      aria-label={props.label}
    >
      {props.children}
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
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
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
