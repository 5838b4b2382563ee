import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { events, Failure, isSignedIn } from '../api/client.ts';

const RETRY_MS = 2000;
/** Age of data that is loaded again when the reader comes back to the page. */
const FRESH_MS = 2000;

/** The state of something loaded from the API; `data` stays while it is reloaded. */
export interface Load<T> {
  readonly data: T | undefined;
  readonly failure: Failure | undefined;
  readonly busy: boolean;
  readonly reload: () => void;
}

/** Loads when `inputs` change, every `everyMs` if above 0, and repeatedly while the connection is lost. */
export function useLoad<T>(load: () => Promise<T>, inputs: readonly unknown[], everyMs = 0): Load<T> {
  const [state, setState] = useState<Omit<Load<T>, 'reload'>>({
    data: undefined,
    failure: undefined,
    busy: true,
  });
  const [round, setRound] = useState(0);
  const reload = () => setRound((n) => n + 1);
  // Before the page is drawn, so that outdated data never appears without the sign that it is being reloaded.
  useLayoutEffect(() => {
    let current = true;
    const startedAt = Date.now();
    let timer: number | undefined;
    const repeat = (ms: number) => {
      if (current && ms > 0) timer = window.setTimeout(() => (document.hidden ? repeat(ms) : reload()), ms);
    };
    setState((before) => ({ ...before, busy: true }));
    load().then(
      (data) => {
        if (current) setState({ data, failure: undefined, busy: false });
        repeat(everyMs);
      },
      (error: unknown) => {
        const failure = failureOf(error);
        const outcome = isOver(failure) ? {} : { failure };
        if (current) setState((before) => ({ ...before, ...outcome, busy: false }));
        repeat(failure.passes ? RETRY_MS : everyMs);
      },
    );
    // Another tab may have changed it meanwhile.
    const look = () => current && !document.hidden && Date.now() - startedAt > FRESH_MS && reload();
    addEventListener('focus', look);
    const again = () => current && isSignedIn() && reload();
    events.addEventListener('session', again);
    return () => {
      current = false;
      clearTimeout(timer);
      removeEventListener('focus', look);
      events.removeEventListener('session', again);
    };
  }, [...inputs, round]);
  return { ...state, reload };
}

const failureOf = (error: unknown) =>
  error instanceof Failure ? error : new Failure('INTERNAL', String(error));

/** Tells whether a call failed because the session is over, which a dialog over the page says. */
const isOver = ({ code }: Failure) => code === 'SESSION_OVER';

/** The same question gets the same refusal. */
function retryOf({ reload }: Load<unknown>, { code, passes }: Failure) {
  if (passes) return 'by itself';
  return code === 'BAD_REQUEST' ? undefined : reload;
}

/** Shows loaded data, or the reason why there is none. */
export function Loaded<T>({ of, children }: { of: Load<T>; children: (data: T) => ComponentChildren }) {
  const { data, failure, busy } = of;
  return (
    <div aria-busy={busy}>
      {failure && <Problem failure={failure} retry={retryOf(of, failure)} />}
      {data !== undefined && children(data)}
      {data === undefined && !failure && (
        <div class="skeleton" role="status">
          <span class="unseen">Loading…</span>
        </div>
      )}
    </div>
  );
}

const EXPLANATIONS: Readonly<Record<string, string>> = {
  UNREACHABLE: 'Connection lost',
  SERVICE_UNAVAILABLE: 'Not available right now',
  INSUFFICIENT_PERMISSIONS: 'Not permitted',
  NOT_FOUND: 'Not found',
  RATE_LIMITED: 'Too many calls',
  BAD_REQUEST: 'Not accepted',
  CONFLICT: 'Conflict',
  VERIFIERS_TOO_OLD: 'Verifiers are too old',
  UNAUTHORIZED: 'Root key not accepted',
};

/** Describes an error, with the request id under which logs have it. */
export function Problem({
  failure,
  retry,
}: {
  failure: Failure;
  retry?: (() => void) | 'by itself' | undefined;
}) {
  return (
    <div class="problem" role="alert">
      <strong>{EXPLANATIONS[failure.code] ?? failure.code}</strong>: {failure.message}.
      {retry === 'by itself' && ' Trying again…'}
      {failure.requestId && <small> Request {failure.requestId}</small>}
      {typeof retry === 'function' && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Runs one action at a time and keeps the error of the last. */
export function useAction() {
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  // A second click may come before the button is drawn as disabled.
  const running = useRef(false);
  const run = async (action: () => Promise<unknown>) => {
    if (running.current) return;
    running.current = true;
    setBusy(true);
    setFailure(undefined);
    try {
      await action();
    } catch (error) {
      const failure = failureOf(error);
      if (!isOver(failure)) setFailure(failure);
    } finally {
      running.current = false;
      setBusy(false);
    }
  };
  return { busy, run, problem: failure && <Problem failure={failure} /> };
}
