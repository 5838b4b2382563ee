import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { awaitsTokens, type Propagation } from '../api/client.ts';
import { canEncrypt, linkTo } from '../api/one-time-links.ts';
import { useAction } from './loading.tsx';
import { Time } from './time.tsx';

/**
 * A modal dialog. `onClose` also runs if the user presses Escape, unless `mustAnswer` is set; a form with entries that
 * were not saved is left only by who confirms it.
 */
export function Dialog(props: {
  title: string;
  onClose: () => void;
  mustAnswer?: boolean;
  /** True if nothing of the page may be seen behind it. */
  isOpaque?: boolean;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [asks, setAsks] = useState(false);
  const id = useId();
  const leave = () => {
    if (dialog.current?.querySelector('form[data-edited]')) setAsks(true);
    else props.onClose();
  };
  // At once, so that what is typed next is for it.
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    // Closing restores the focus.
    return () => element?.close();
  }, []);
  return (
    <>
      <dialog
        ref={dialog}
        class={props.isOpaque ? 'opaque' : ''}
        aria-labelledby={id}
        // A click on its text focuses it, so that it hears Escape, which browsers would obey without asking.
        tabIndex={-1}
        closedby="none"
        onCancel={(event) => event.preventDefault()}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          // It may be within another.
          event.stopPropagation();
          if (!props.mustAnswer) leave();
        }}
      >
        <h2 id={id}>{props.title}</h2>
        {props.children}
        {/* Last, so that the focus goes to what the dialog is for. */}
        {!props.mustAnswer && (
          <button type="button" class="close" aria-label="Dismiss" onClick={leave}>
            ×
          </button>
        )}
      </dialog>
      {asks && <LeaveQuestion onLeave={props.onClose} onStay={() => setAsks(false)} />}
    </>
  );
}

/** Asks before entries that were not saved, or what is shown only once, are lost. */
export function LeaveQuestion({ onLeave, onStay }: { onLeave: () => void; onStay: () => void }) {
  return (
    <Dialog title="Leave without saving?" onClose={onStay}>
      <p>What you entered, or what is shown only once, is lost.</p>
      <div class="row">
        <button type="button" class="danger" onClick={onLeave}>
          Leave
        </button>
        <button type="button" onClick={onStay}>
          Stay
        </button>
      </div>
    </Dialog>
  );
}

/** Longest name that somebody has to type. */
const WORD_LENGTH_MAX = 24;

/**
 * Asks for confirmation before a permanent deletion, waits until the deletion is complete, and says by when
 * if it is not.
 * @param props.word a word that the user must type first; undefined = none
 */
export function Confirm(props: {
  title: string;
  word?: string;
  action: string;
  busyText?: string;
  run: () => Promise<{ propagation?: Propagation }>;
  onDone: () => void;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const { busy, run, problem } = useAction();
  const [text, setText] = useState('');
  const [pending, setPending] = useState<Propagation>();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const { propagation } = await props.run();
      if (propagation?.state !== 'pending') props.onDone();
      else setPending(propagation);
    });
  };
  // Nobody types a long name, and whoever copies it thinks no more than who types a word.
  const word = (props.word?.length ?? 0) > WORD_LENGTH_MAX ? 'delete' : props.word;
  if (pending)
    return (
      <Dialog title="Deleted, but not everywhere yet" onClose={props.onDone}>
        <p role="status">
          {awaitsTokens(pending)
            ? 'A token from before may be valid'
            : 'A verifier that cannot be reached may accept it'}{' '}
          until <Time at={pending.completeBy} exact />, and no longer.
        </p>
        <button type="button" onClick={props.onDone}>
          Close
        </button>
      </Dialog>
    );
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form onSubmit={submit}>
        <p>{props.children}</p>
        {word !== undefined && <Word word={word} text={text} onInput={setText} />}
        {problem}
        {busy && <p role="status">{props.busyText ?? 'Waiting until no verifier accepts it any more…'}</p>}
        <div class="row">
          <button type="submit" class="danger" disabled={busy || (word !== undefined && text !== word)}>
            {props.action}
          </button>
          <button type="button" onClick={props.onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Word(props: { word: string; text: string; onInput: (text: string) => void }) {
  return (
    <label>
      Type <code>{props.word}</code> to confirm
      <input
        autocomplete="off"
        value={props.text}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
    </label>
  );
}

/** A dialog that shows a secret once. */
export function SecretDialog(props: {
  title: string;
  secret: string;
  onClose: () => void;
  /** True if the secret can be given to somebody by a link. */
  canHandOver?: boolean;
  children?: ComponentChildren;
}) {
  const [notice, setNotice] = useState('');
  const field = useRef<HTMLInputElement>(null);
  const finish = () => {
    field.current?.closest('label')?.removeAttribute('data-unanswered');
    props.onClose();
  };
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.secret);
      setNotice('Copied.');
    } catch {
      // The clipboard needs HTTPS and permission.
      field.current?.select();
      setNotice('Selected: copy it with your keyboard.');
    }
  };
  return (
    <Dialog title={props.title} onClose={props.onClose} mustAnswer>
      <p>This is the only time it is shown, so store it now.</p>
      {props.children}
      <label data-unanswered="">
        Secret
        <input
          ref={field}
          class="code"
          readOnly
          value={props.secret}
          onFocus={() => field.current?.select()}
        />
      </label>
      <p role="status">{notice}</p>
      {props.canHandOver && <HandoverLink secret={props.secret} />}
      <div class="row">
        <button type="button" onClick={() => void copy()}>
          Copy
        </button>
        <button type="button" onClick={finish}>
          I have stored it
        </button>
      </div>
    </Dialog>
  );
}

/** A button that makes a link which shows the secret once, for the person who needs it. */
function HandoverLink({ secret }: { secret: string }) {
  const { busy, run, problem } = useAction();
  const [link, setLink] = useState<string>();
  if (!canEncrypt())
    return <p class="quiet">Over HTTPS, you could give it to somebody by a one-time link.</p>;
  if (link === undefined)
    return (
      <p>
        <button
          type="button"
          class="small"
          aria-disabled={busy}
          onClick={() => void run(async () => setLink(await linkTo(secret)))}
        >
          Make a one-time link
        </button>{' '}
        <span class="quiet">to give it to somebody; this server cannot read it</span>
        {problem}
      </p>
    );
  return (
    <>
      <label>
        One-time link <small>works once, within an hour</small>
        <input class="code" readOnly value={link} onFocus={(event) => event.currentTarget.select()} />
      </label>
      <p>
        <button
          type="button"
          class="main"
          onClick={() => void run(() => navigator.clipboard.writeText(link))}
        >
          Copy link
        </button>{' '}
        <span class="quiet">Give this to the person, not the secret.</span>
      </p>
      {problem}
    </>
  );
}
