import { useRef, useState } from 'preact/hooks';
import { awaitsTokens, type Failure, type Propagation, serverNow, signedInAs } from '../api/client.ts';
import { Badge } from '../parts/badge.tsx';
import { saveFile } from '../parts/export.tsx';
import { Problem, useAction } from '../parts/loading.tsx';
import { duration } from '../parts/time.tsx';

/** A change of a key, a role or an identity, and how far it has come. */
export interface Change {
  /** Id of the key, the role or the identity. */
  readonly keyId: string;
  readonly headline: string;
  readonly propagation: Propagation;
  /** undefined = not complete yet. */
  readonly by: 'acks' | 'fence' | undefined;
  readonly tookMs: number;
  /** Time until completion by fence at the latest, milliseconds. */
  readonly leftMs: number;
  readonly followers: readonly Follower[];
  readonly failure?: Failure;
  /** Reverts the change; undefined = not offered. */
  readonly undo?: (() => Promise<unknown>) | undefined;
  /** Asks the API how far the change has come. */
  readonly progress: () => Promise<{ readonly propagation: Propagation }>;
}

/** A verifier that follows the API of a change, or the shared log. */
export interface Follower {
  /** Name of the registration, as in `laggards`. */
  readonly member: string;
  readonly name: string;
  /** undefined = it has not applied the change yet. */
  readonly appliedMs?: number;
}

/** The receipt of a change: which verifiers have applied it, which have not, and until when they matter. */
export function Fence({ change, onClose }: { change: Change; onClose: () => void }) {
  const { headline, propagation, by, tookMs, leftMs, followers, failure, undo } = change;
  const goesOn = !by && (failure?.passes ?? true);
  const panel = useRef<HTMLElement>(null);
  return (
    <section
      ref={panel}
      tabIndex={-1}
      class={`panel fence ${by ? 'done' : ''}`}
      aria-label="How far the change has come"
    >
      <div class="row">
        <span role="status">
          <strong>{headline}.</strong> {summary(change)}
        </span>
        {/* The button disappears once the change is undone. */}
        <span class="group">
          {undo && <Undo key={headline} undo={undo} onClick={() => panel.current?.focus()} />}
          {by && <Receipt change={change} />}
          {!goesOn && (
            <button type="button" class="small dots" aria-label="Close the receipt" onClick={onClose}>
              ×
            </button>
          )}
        </span>
      </div>
      {goesOn && (
        <p>
          <progress max={tookMs + leftMs} value={tookMs} aria-label="Time until complete by fence" />{' '}
          {Number.isFinite(leftMs) && <>at most {duration(leftMs)} more</>}
        </p>
      )}
      {followers.length > 0 && (
        <ul class="followers">
          {followers.map(({ member, name, appliedMs }) => (
            <li key={member}>
              <code>{name}</code>{' '}
              {appliedMs !== undefined ? (
                <Badge kind="good">applied within {duration(appliedMs)}</Badge>
              ) : by ? (
                <Badge kind="bad">shut out: its lease has ended</Badge>
              ) : (
                <Badge kind="warn">not yet</Badge>
              )}
            </li>
          ))}
        </ul>
      )}
      {propagation.overtakenBy !== undefined && <p role="alert">{overtaking(propagation.overtakenBy)}</p>}
      {!propagation.durable && (
        <p class="quiet">
          A crash or failover of Redis can lose this change: see <code>appendfsync</code> and{' '}
          <code>REDIS_REPLICAS</code>.
        </p>
      )}
      {failure && <Problem failure={failure} {...(failure.passes ? { retry: 'by itself' } : {})} />}
    </section>
  );
}

/** A button that copies what was done, when it was complete, and at which verifiers. */
function Receipt({ change }: { change: Change }) {
  const [notice, setNotice] = useState('');
  // The receipt says when the change became complete, not when it was copied.
  const [completedAt] = useState(() => new Date(serverNow()).toISOString());
  const copy = () =>
    navigator.clipboard.writeText(receiptOf(change, completedAt)).then(
      () => setNotice('Copied.'),
      () => setNotice('The browser does not allow copying.'),
    );
  const save = () => saveFile(`receipt-${change.keyId}.txt`, receiptOf(change, completedAt));
  return (
    <>
      <button type="button" class="small" onClick={() => void copy()}>
        Copy receipt
      </button>
      <button type="button" class="small" onClick={save}>
        Download receipt
      </button>
      <span role="status">{notice}</span>
    </>
  );
}

function receiptOf(change: Change, completedAt: string): string {
  const { headline, keyId, propagation, followers, by } = change;
  const { person, rootKeyId } = signedInAs();
  return [
    `${headline}: ${keyId}`,
    `By ${person?.name ?? person?.email ?? person?.subject ?? rootKeyId}, at ${location.origin}`,
    `Change ${propagation.sequence}, complete at ${completedAt}. ${summary(change)}`,
    ...followers.map(({ name, appliedMs }) =>
      appliedMs === undefined
        ? `- ${name}: shut out, its lease has ended`
        : `- ${name}: applied within ${duration(appliedMs)}`,
    ),
    `No verifier answers from the earlier state (${by === 'fence' ? 'by fence' : 'all acknowledged'}).`,
    ...(propagation.overtakenBy === undefined ? [] : [overtaking(propagation.overtakenBy)]),
  ].join('\n');
}

const overtaking = (sequence: number): string =>
  `Change ${sequence} came after it and set something else: look at it again before you rely on it.`;

function Undo({ undo, onClick }: { undo: () => Promise<unknown>; onClick: () => void }) {
  const { busy, run, problem } = useAction();
  const click = () => {
    onClick();
    void run(undo);
  };
  return (
    <>
      <button type="button" class="small" aria-disabled={busy} onClick={click}>
        Undo
      </button>
      {problem}
    </>
  );
}

/** The state of a change of which only tokens are left. */
export const AWAITS_TOKENS = 'Verifiers have applied it. Waiting until tokens from before have ended.';

function summary({ propagation, by, tookMs }: Change): string {
  const { verifiers, laggards } = propagation;
  const all = ['', 'the verifier', 'both verifiers'][verifiers] ?? `all ${verifiers} verifiers`;
  const late = laggards?.length ?? verifiers;
  if (by === 'fence') {
    return `Complete after ${duration(tookMs)}, by fence: ${late} of ${verifiers} did not answer and can no longer answer from the earlier state.`;
  }
  if (!by && awaitsTokens(propagation)) return AWAITS_TOKENS;
  if (by && verifiers === 0) return `Complete in ${duration(tookMs)}: no verifier has it in memory.`;
  if (by) return `Complete in ${duration(tookMs)}: applied by ${all}.`;
  return `Waiting for ${late} of ${verifiers} verifiers.`;
}
