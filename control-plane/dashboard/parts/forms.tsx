import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { SecretDialog } from './dialogs.tsx';
import { useAction } from './loading.tsx';

/** The values of a form, texts trimmed. */
export function fieldsOf(event: Event): (name: string) => string {
  event.preventDefault();
  const data = new FormData(event.currentTarget as HTMLFormElement);
  return (name) => String(data.get(name) ?? '').trim();
}

/** Values of a form by the names of its fields, texts trimmed. */
export type FormEntry = ReturnType<typeof fieldsOf>;

/** A text to enter, under its label. */
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

/** A choice in a search form, which searches at once. */
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
 * A form that does one thing, says what went wrong, and shows the secret once that comes of it.
 * @param props.onDone told when it was done, and a secret stored; a form that made something goes away then
 */
export function ActionForm(props: {
  label: string;
  action: string;
  run: (entry: FormEntry) => Promise<{ key: string } | undefined>;
  message?: string;
  onDone?: () => void;
  children: ComponentChildren;
}) {
  const { busy, run, problem } = useAction();
  const [secret, setSecret] = useState<string>();
  const submit = (event: Event) => {
    const entry = fieldsOf(event);
    void run(async () => {
      const result = await props.run(entry);
      if (result) setSecret(result.key);
      else props.onDone?.();
    });
  };
  if (secret !== undefined) {
    const onStored = () => {
      setSecret(undefined);
      props.onDone?.();
    };
    return <SecretDialog title={`The ${props.label.toLowerCase()}`} secret={secret} onClose={onStored} />;
  }
  return (
    <form class="panel fields" onSubmit={submit} aria-label={props.label}>
      {props.children}
      {problem}
      <div class="row wide">
        <button type="submit" class="main" aria-disabled={busy}>
          {props.action}
        </button>
        <span role="status">{props.message}</span>
      </div>
    </form>
  );
}

/** A row of buttons, the first of which opens a form; what it does closes it. */
export function Opener(props: {
  action: string;
  beside?: ComponentChildren;
  children: (close: () => void) => ComponentChildren;
}) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  return (
    <>
      <p class="row">
        <button ref={button} type="button" class="main" aria-expanded={open} onClick={() => setOpen(!open)}>
          {props.action}
        </button>
        {props.beside}
      </p>
      {open && props.children(close)}
    </>
  );
}

/** The button that disables something, or enables it: for what can be undone. */
export function Switch(props: {
  enabled: boolean;
  name: string;
  change: (enabled: boolean, headline: string) => Promise<unknown>;
}) {
  const { busy, run, problem } = useAction();
  const { enabled, name, change } = props;
  const verb = enabled ? 'Disable' : 'Enable';
  return (
    <>
      <button
        type="button"
        class="small"
        aria-disabled={busy}
        aria-label={`${verb} ${name}`}
        onClick={() => void run(() => change(!enabled, `${verb}d ${name}`))}
      >
        {verb}
      </button>
      {problem}
    </>
  );
}
