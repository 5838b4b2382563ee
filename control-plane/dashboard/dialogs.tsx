import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { call, type Key, type Propagation } from './api.ts';
import { useAction } from './loading.tsx';
import { Time } from './parts.tsx';

/** A modal dialog. `onClose` also where somebody presses Escape, unless it must be answered. */
function Dialog(props: {
  title: string;
  onClose: () => void;
  mustAnswer?: boolean;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // Gives the focus back to where it was.
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      {...(props.mustAnswer ? { closedby: 'none' } : {})}
      onCancel={(event) => props.mustAnswer && event.preventDefault()}
      onClose={props.onClose}
    >
      <h2 id={id}>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/**
 * Asks before something is deleted for good, waits until it is complete, and says until when it may not be.
 * @param props.word has to be typed, where it is given
 */
export function Confirm(props: {
  title: string;
  word?: string;
  action: string;
  run: () => Promise<{ propagation?: Propagation }>;
  onDone: () => void;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const { busy, run, problem } = useAction();
  const [typed, setTyped] = useState('');
  const [pending, setPending] = useState<Propagation>();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const { propagation } = await props.run();
      if (propagation?.state !== 'pending') props.onDone();
      else setPending(propagation);
    });
  };
  if (pending) {
    return (
      <Dialog title="Deleted, but not everywhere yet" onClose={props.onDone}>
        <p role="status">
          A verifier that cannot be reached may accept it until <Time at={pending.completeBy} exact />, and no
          longer.
        </p>
        <button type="button" onClick={props.onDone}>
          Close
        </button>
      </Dialog>
    );
  }
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form onSubmit={submit}>
        <p>{props.children}</p>
        {props.word !== undefined && (
          <label>
            Type <code>{props.word}</code> to confirm
            <input
              autocomplete="off"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        {problem}
        {busy && <p role="status">Waiting until no verifier accepts it any more…</p>}
        <div class="row">
          <button
            type="submit"
            class="danger"
            disabled={busy || (props.word !== undefined && typed !== props.word)}
          >
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

const MINUTE_MS = 60_000;
const GRACES: Readonly<Record<string, number>> = {
  'not any more': 0,
  'for an hour': 60 * MINUTE_MS,
  'for a day': 1440 * MINUTE_MS,
  'for a week': 7 * 1440 * MINUTE_MS,
  'for 30 days': 30 * 1440 * MINUTE_MS,
};

/** Gives a key a successor, whose secret it shows once, and says when the key itself ends. */
export function Reroll({ of, onClose }: { of: Key; onClose: () => void }) {
  const { busy, run, problem } = useAction();
  const [expiration, setExpiration] = useState(0);
  // The same for all tries: one whose answer was lost leaves no key behind that nobody has.
  const [operationId] = useState(() => crypto.getRandomValues(new Uint32Array(5)).join('-'));
  const [made, setMade] = useState<Awaited<ReturnType<typeof reroll>>>();
  // The dialog that asks closes when the other one takes its place.
  const isDone = useRef(false);
  const reroll = () => call('keys.rerollKey', { keyId: of.keyId, expiration, operationId });
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const answer = await reroll();
      isDone.current = true;
      setMade(answer);
    });
  };
  if (made) {
    const { endsAt, propagation } = made;
    const stored = () => {
      location.hash = `#/keys/${made.keyId}`;
    };
    return (
      <SecretDialog title="The new key" secret={made.key} onClose={stored}>
        <p>
          The old key{' '}
          {endsAt === undefined ? (
            'is refused from now on'
          ) : (
            <>
              is accepted until <Time at={endsAt} exact />
            </>
          )}
          {propagation.state === 'pending' && (
            <>
              ; a verifier that cannot be reached hears of it by <Time at={propagation.completeBy} exact />
            </>
          )}
          .
        </p>
      </SecretDialog>
    );
  }
  return (
    <Dialog title="Reroll this key?" onClose={() => isDone.current || onClose()}>
      <form onSubmit={submit}>
        <p>
          A new key takes the place of <code>{of.start}…</code> {of.name}, with all that it has. Both draw on
          the same credits.
        </p>
        <label>
          The old key is accepted
          <select onChange={(event) => setExpiration(Number(event.currentTarget.value))}>
            {Object.entries(GRACES).map(([text, ms]) => (
              <option key={ms} value={ms} selected={ms === expiration}>
                {text}
              </option>
            ))}
          </select>
        </label>
        {problem}
        {busy && <p role="status">Waiting until every verifier knows it…</p>}
        <div class="row">
          <button type="submit" class="main" aria-disabled={busy}>
            Reroll
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A secret, this once. */
export function SecretDialog(props: {
  title: string;
  secret: string;
  onClose: () => void;
  children?: ComponentChildren;
}) {
  const [said, setSaid] = useState('');
  const field = useRef<HTMLInputElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.secret);
      setSaid('Copied.');
    } catch {
      // No clipboard without HTTPS, or without permission.
      field.current?.select();
      setSaid('Selected: copy it with your keyboard.');
    }
  };
  return (
    <Dialog title={props.title} onClose={props.onClose} mustAnswer>
      <p>This is the only time it is shown. It is kept nowhere, so store it now.</p>
      {props.children}
      <label>
        Secret
        <input
          ref={field}
          class="code"
          readOnly
          value={props.secret}
          onFocus={() => field.current?.select()}
        />
      </label>
      <p role="status">{said}</p>
      <div class="row">
        <button type="button" class="main" onClick={() => void copy()}>
          Copy
        </button>
        <button type="button" onClick={props.onClose}>
          I have stored it
        </button>
      </div>
    </Dialog>
  );
}
