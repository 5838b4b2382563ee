import { useState } from 'preact/hooks';
import { awaitsTokens, call, type Key } from '../api/client.ts';
import { Dialog, SecretDialog } from '../parts/dialogs.tsx';
import { useAction } from '../parts/loading.tsx';
import { Time } from '../parts/time.tsx';

const MINUTE_MS = 60_000;
const DAY_MS = 1440 * MINUTE_MS;
/** Times for which the old secret works: by default long enough to replace it at the customer's. */
const GRACES: Readonly<Record<string, number>> = {
  'for a day': DAY_MS,
  'for an hour': 60 * MINUTE_MS,
  'for a week': 7 * DAY_MS,
  'for 30 days': 30 * DAY_MS,
  'until now': 0,
};

/** Says why neither the key nor its successor is accepted; undefined = they are. */
function refusalOf({ enabled, identity }: Key): string | undefined {
  if (!enabled) return 'This key is disabled; the new one is disabled, too.';
  return identity?.enabled === false
    ? 'Its customer is disabled; so the new key is refused, too.'
    : undefined;
}

type Successor = Awaited<ReturnType<typeof call<'keys.rerollKey'>>>;

/** A dialog that creates a successor of a key, shows its secret once, and says when the key itself ends. */
export function RotateDialog({ of, onClose }: { of: Key; onClose: () => void }) {
  const { busy, run, problem } = useAction();
  const [expiration, setExpiration] = useState(DAY_MS);
  // Keep the same name for all tries with the same expiration: if a response is lost, the next try replaces
  // the key that nobody has.
  const [name] = useState(() => crypto.getRandomValues(new Uint32Array(4)).join('-'));
  const [successor, setSuccessor] = useState<Successor>();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const operationId = `${name}-${expiration}`;
      const answer = await call('keys.rerollKey', { keyId: of.keyId, expiration, operationId });
      setSuccessor(answer);
    });
  };
  if (successor) return <SuccessorSecret of={successor} isRefused={refusalOf(of) !== undefined} />;
  return (
    <Dialog title="Rotate this key?" onClose={onClose}>
      <form onSubmit={submit}>
        <p>
          A new key takes the place of <code>{of.start}…</code> {of.name}, with all that it has. Both draw on
          the same credits.
        </p>
        {refusalOf(of) && <p>{refusalOf(of)}</p>}
        <label>
          The old secret works
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
            Rotate
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function SuccessorSecret(props: { of: Successor; isRefused: boolean }) {
  const { key, keyId, endsAt, propagation } = props.of;
  const leave = () => {
    location.hash = `#/keys/${keyId}`;
  };
  return (
    <SecretDialog title="The new key" secret={key} onClose={leave} canHandOver>
      <p>
        The old key{' '}
        {endsAt === undefined ? (
          'is refused from now on'
        ) : (
          <>
            {props.isRefused
              ? 'is refused now, as the new one is, and ends at the latest'
              : 'is accepted until'}{' '}
            <Time at={endsAt} exact />
          </>
        )}
        {propagation.state === 'pending' && (
          <>
            ;{' '}
            {awaitsTokens(propagation)
              ? 'tokens from before end'
              : 'a verifier that cannot be reached learns of it'}{' '}
            by <Time at={propagation.completeBy} exact />
          </>
        )}
        .
      </p>
    </SecretDialog>
  );
}
