import { useEffect, useRef, useState } from 'preact/hooks';
import { call, Failure, type Identity, listVerifiers, type Propagation, serverNow } from '../api/client.ts';
import { type Change, Fence, type Follower } from './fence.tsx';

/** Time for which the API may hold its answer, in which verifiers that can be reached apply the change. */
const QUICK_MS = 100;
const POLL_MS = 200;
const NAMES_EVERY = 10;
const LAGGARDS_NAMED_MAX = 100;
const HISTORY_MAX = 60;
const SHOWN_MAX = 5;
/** Assumed difference between the control plane's clock and that of a proxy, which may have dated the answer. */
const SKEW_MS = 500;

/**
 * Makes a change of a key. Resolves when it was written; rejects with a Failure where it was not, or may not have been.
 * @param undo the patch that takes it back; absent where that is not offered
 */
export type Apply = (
  key: { keyId: string; apiId: string },
  what: string,
  patch: object,
  undo?: object,
) => Promise<void>;

/** The same for several keys of an API at once: one change to watch, that of the last. `undo` takes it back. */
type ApplyAll = (
  apiId: string,
  keyIds: readonly string[],
  what: string,
  patch: object,
  undo?: () => Promise<void>,
) => Promise<void>;

/** A change that was written, and the key by whose id it can be asked for. */
interface Sent extends Pick<Change, 'keyId' | 'what' | 'undo' | 'isOfMany' | 'progress'> {
  readonly propagation: Propagation;
}

/** The changes made since the page was loaded, for the chart: the API keeps no such history. */
export const history: { readonly at: number; readonly tookMs: number; readonly by: 'acks' | 'fence' }[] = [];

/**
 * Makes changes of keys and watches them until they are complete; the latest of each key is shown.
 * @param onWritten told when a change was written, and again when it is complete
 */
export function useChange(onWritten: () => void) {
  const [changes, setChanges] = useState<readonly Change[]>([]);
  const gone = useRef(false);
  const leave = () => {
    gone.current = true;
  };
  useEffect(() => leave, []);
  const show = (seen: Change) =>
    setChanges((before) => {
      const known = before.find(({ keyId }) => keyId === seen.keyId);
      if ((known?.propagation.sequence ?? 0) > seen.propagation.sequence) return before;
      return known
        ? before.map((change) => (change === known ? seen : change))
        : [seen, ...before].slice(0, SHOWN_MAX);
    });
  const begin = async (apiId: string | undefined, send: () => Promise<Sent>) => {
    const steps = follow(apiId, send);
    const first = await steps.next();
    if (first.done) return;
    show(first.value);
    onWritten();
    void watch(steps);
  };
  const watch = async (steps: AsyncGenerator<Change>) => {
    for await (const seen of steps) {
      if (gone.current) return;
      show(seen);
      if (seen.by) onWritten();
    }
  };
  const apply: Apply = (key, what, patch, undo) =>
    begin(key.apiId, async () => {
      const { keyId } = key;
      const { propagation } = await call('keys.updateKey', { keyId, ...patch, waitMs: QUICK_MS });
      return {
        ...{ keyId, what, propagation, progress: progressOf(keyId, propagation) },
        undo: undo && (() => apply(key, `Undone: ${what}`, undo)),
      };
    });
  const applyAll: ApplyAll = (apiId, keyIds, what, patch, undo) =>
    begin(apiId, async () => {
      const input = { apiId, keyIds, ...patch, waitMs: QUICK_MS };
      const { results, propagation } = await call('keys.updateKeys', input);
      const refused = results.filter(({ result }) => result === 'refused').length;
      const last = results.find((each) => 'sequence' in each && each.sequence === propagation?.sequence);
      if (!propagation || !last) throw new Failure('NOT_FOUND', 'none of these keys is there any more');
      const missing = refused === 0 ? '' : `, but for ${refused} that could not be changed`;
      const { keyId } = last;
      const progress = progressOf(keyId, propagation);
      return { keyId, what: `${what}${missing}`, propagation, undo, isOfMany: true, progress };
    });
  /** Says all that the keys of a role may do, and offers to say again what they might `before`. */
  const applyRole = (
    roleId: string,
    what: string,
    permissions: readonly string[],
    before?: readonly string[],
  ): Promise<void> =>
    begin(undefined, async () => {
      const input = { roleId, permissions, waitMs: QUICK_MS };
      const { propagation } = await call('permissions.setRolePermissions', input);
      const { sequence } = propagation;
      return {
        ...{ keyId: roleId, what, propagation },
        progress: () => call('permissions.getRolePropagation', { roleId, sequence }),
        undo: before && (() => applyRole(roleId, `Undone: ${what}`, before)),
      };
    });
  /** Stops a customer, or accepts their keys again. @param undo whether that is offered to be taken back */
  const applyIdentity = (identity: Identity, what: string, enabled: boolean, undo: boolean): Promise<void> =>
    begin(undefined, async () => {
      const { id: identityId } = identity;
      const input = { identityId, enabled, waitMs: QUICK_MS };
      const { propagation } = await call('identities.updateIdentity', input);
      const { sequence } = propagation;
      return {
        ...{ keyId: identityId, what, propagation },
        progress: () => call('identities.getIdentityPropagation', { identityId, sequence }),
        undo: undo ? () => applyIdentity(identity, `Undone: ${what}`, !enabled, false) : undefined,
      };
    });
  /** The panel of a key's change, for a place beside the key. */
  const panelOf = (keyId: string) => {
    const change = changes.find((each) => each.keyId === keyId && !each.isOfMany);
    return change && <Fence key={change.keyId} change={change} />;
  };
  /** The panels of the changes that have no place beside one of these keys. */
  const panelsBeside = (keyIds: readonly string[]) =>
    changes
      .filter(({ keyId, isOfMany }) => isOfMany || !keyIds.includes(keyId))
      .map((change) => <Fence key={change.keyId} change={change} />);
  return { apply, applyAll, applyRole, applyIdentity, panelOf, panelsBeside };
}

const progressOf =
  (keyId: string, { sequence }: Propagation) =>
  () =>
    call('keys.getPropagation', { keyId, sequence });

/** Yields the state of a change until it is complete. */
async function* follow(apiId: string | undefined, send: () => Promise<Sent>): AsyncGenerator<Change> {
  const startedAt = performance.now();
  const tookMs = () => Math.round(performance.now() - startedAt);
  const [names, { propagation, closesAt, ...sent }] = await Promise.all([
    namesOf(apiId),
    send().then((written) => {
      // Told by the server's clock, then counted on ours that does not jump.
      const { completeBy } = written.propagation;
      const fenceMs =
        completeBy === undefined ? Number.POSITIVE_INFINITY : completeBy - serverNow() + SKEW_MS;
      return { ...written, closesAt: performance.now() + fenceMs };
    }),
  ]);
  const applied = new Map<string, number>();
  const seen = (now: Propagation, known: typeof names, by: Change['by'], ms: number): Change => {
    const late = new Set(now.state === 'complete' ? [] : (now.laggards ?? known.map(([member]) => member)));
    const allNamed = late.size < LAGGARDS_NAMED_MAX;
    const strangers = [...late].filter((member) => !known.some(([name]) => name === member));
    const followers = [
      ...known,
      ...strangers.map((member) => [member, `registration ${member}`] as const),
    ].map(([member, name]): Follower => {
      if (!late.has(member) && allNamed && !applied.has(member)) applied.set(member, ms);
      const appliedMs = applied.get(member);
      return { member, name, ...(appliedMs === undefined ? {} : { appliedMs }) };
    });
    const leftMs = by ? 0 : Math.max(0, closesAt - performance.now());
    return { ...sent, propagation: now, by, tookMs: ms, leftMs, followers };
  };
  const finish = (by: 'acks' | 'fence', ms: number) => {
    history.push({ at: Date.now(), tookMs: ms, by });
    if (history.length > HISTORY_MAX) history.shift();
    return by;
  };

  if (propagation.state === 'complete') {
    const by = propagation.by ?? 'acks';
    yield seen(propagation, names, finish(by, propagation.waitedMs), propagation.waitedMs);
    return;
  }
  let now = propagation;
  let known = names;
  yield seen(now, known, undefined, tookMs());
  for (let round = 0; ; round++) {
    if (round > 0) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    try {
      ({ propagation: now } = await sent.progress());
      if (round % NAMES_EVERY === NAMES_EVERY - 1) known = await namesOf(apiId);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      yield { ...seen(now, known, undefined, tookMs()), failure: error };
      if (error.passes) continue;
      return;
    }
    // The history still holds it, and every lease from before it has ended: nobody answers by what was before.
    const fenced = performance.now() >= closesAt ? 'fence' : undefined;
    const by = now.state === 'complete' ? 'acks' : fenced;
    yield seen(now, known, by && finish(by, tookMs()), tookMs());
    if (by) return;
  }
}

/** The verifiers that follow an API, or roles and identities where there is none; nobody where this root key may not see the fleet. */
async function namesOf(apiId: string | undefined): Promise<(readonly [member: string, name: string])[]> {
  const verifiers = await listVerifiers().catch(() => []);
  return verifiers.flatMap(({ id, host, apis, workspace }) => {
    const followed = apiId === undefined ? workspace : apis.find((each) => each.apiId === apiId);
    return followed?.member ? [[followed.member, `${host} ${id.slice(-6)}`] as const] : [];
  });
}
