import { useEffect, useRef, useState } from 'preact/hooks';
import { call, Failure, type Identity, isConflict, type Propagation, type Role } from '../api/client.ts';
import { type Change, Fence } from './fence.tsx';
import { follow, type WrittenChange } from './follow.ts';

/**
 * Time for which the API may wait before it answers; verifiers that can be reached apply the change within
 * it.
 */
const QUICK_MS = 100;
const RECEIPTS_MAX = 5;

/**
 * Changes a key. Resolves with the change's sequence when it is written; rejects with a Failure if it was not written, or may
 * not have been.
 * @param undo the patch that reverts the change; absent if undoing is not offered
 */
export type Apply = (
  key: { keyId: string; apiId: string },
  headline: string,
  patch: object,
  undo?: object,
) => Promise<number | undefined>;

/** A key with its part of a change of several. */
export interface Patched {
  readonly keyId: string;
  readonly patch: object;
}

/** The same for several keys of an API together; only the last change is watched. `undo` reverts all. */
type ApplyAll = (
  apiId: string,
  keys: readonly Patched[],
  headline: string,
  undo?: () => Promise<unknown>,
) => Promise<unknown>;

/**
 * Changes keys and follows the changes until they are complete. The page shows `receipts` in its dock.
 * @param onWritten is called when a change is written, and again when it is complete
 */
export function useChange(onWritten: () => void) {
  const { begin, receipts } = useWatch(onWritten);
  const apply: Apply = (key, headline, patch, undo) =>
    begin(key.apiId, async () => {
      const { keyId } = key;
      const { propagation } = await call('keys.updateKey', { keyId, ...patch, waitMs: QUICK_MS });
      return {
        ...{ keyId, headline, propagation, progress: progressOf(keyId, propagation) },
        undo: undo && (() => apply(key, `Undone: ${headline}`, undo)),
      };
    });
  const applyAll: ApplyAll = (apiId, keys, headline, undo) =>
    begin(apiId, async () => ({ ...(await sendAll(apiId, keys, headline)), undo }));
  /** Sets all permissions of a role, and offers to restore those `before`. */
  const applyRole = (
    roleId: string,
    headline: string,
    permissions: readonly string[],
    ifSequence: number | undefined,
    before?: readonly string[],
  ): Promise<unknown> =>
    begin(undefined, async () => {
      const input = { roleId, permissions, ifSequence, waitMs: QUICK_MS };
      const { propagation } = await call('permissions.setRolePermissions', input);
      const { sequence } = propagation;
      return {
        ...{ keyId: roleId, headline, propagation },
        progress: () => call('permissions.getRolePropagation', { roleId, sequence }),
        undo: before && (() => applyRole(roleId, `Undone: ${headline}`, before, sequence)),
      };
    });
  /** Sets all limits of a role. */
  const applyRoleLimits = (
    role: Pick<Role, 'id' | 'name' | 'ratelimits' | 'concurrency'>,
    limits: Pick<Role, 'ratelimits' | 'concurrency'>,
    ifSequence: number | undefined,
    headline = `Changed the limits of ${role.name}`,
  ): Promise<unknown> =>
    begin(undefined, async () => {
      const { id: roleId, ratelimits, concurrency } = role;
      const { propagation } = await call('permissions.setRoleLimits', {
        ...{ roleId, ...limits, ifSequence, waitMs: QUICK_MS },
      });
      const { sequence } = propagation;
      const isUndo = headline.startsWith('Undone');
      return {
        ...{ keyId: roleId, headline, propagation },
        progress: () => call('permissions.getRolePropagation', { roleId, sequence }),
        undo: isUndo
          ? undefined
          : () => applyRoleLimits(role, { ratelimits, concurrency }, sequence, `Undone: ${headline}`),
      };
    });
  /** Changes an identity. @param undo the patch that reverts the change; absent if undoing is not offered */
  const applyIdentity = (
    identity: Pick<Identity, 'id'>,
    headline: string,
    patch: object,
    undo?: object,
  ): Promise<unknown> =>
    begin(undefined, async () => {
      const { id: identityId } = identity;
      const input = { identityId, ...patch, waitMs: QUICK_MS };
      const { propagation } = await call('identities.updateIdentity', input);
      const { sequence } = propagation;
      // A list is restored only if nobody changed it since.
      const before = { ...undo, ...('ifSequence' in patch ? { ifSequence: sequence } : {}) };
      return {
        ...{ keyId: identityId, headline, propagation },
        progress: () => call('identities.getIdentityPropagation', { identityId, sequence }),
        undo: undo && (() => applyIdentity(identity, `Undone: ${headline}`, before)),
      };
    });
  /** Adds credits to what is left, or takes them back. */
  const addCredits = (
    of: { keyId: string; apiId: string } | { identityId: string },
    headline: string,
    value: number,
  ): Promise<unknown> => {
    const op = value < 0 ? 'decrement' : 'increment';
    const change = { op, value: Math.abs(value), waitMs: QUICK_MS };
    const undo = value < 0 ? undefined : () => addCredits(of, `Undone: ${headline}`, -value);
    return begin('apiId' in of ? of.apiId : undefined, async () => {
      if ('identityId' in of) {
        const { identityId } = of;
        const { propagation } = await call('identities.updateCredits', { identityId, ...change });
        const { sequence } = propagation;
        const progress = () => call('identities.getIdentityPropagation', { identityId, sequence });
        return { keyId: identityId, headline, propagation, progress, undo };
      }
      const { keyId } = of;
      const { propagation } = await call('keys.updateRemaining', { keyId, ...change });
      return { keyId, headline, propagation, progress: progressOf(keyId, propagation), undo };
    });
  };
  return { apply, applyAll, applyRole, applyRoleLimits, applyIdentity, addCredits, receipts };
}

/** Follows changes until they are complete, and renders the latest, and those before it that are not complete. */
function useWatch(onWritten: () => void) {
  const [changes, setChanges] = useState<readonly Change[]>([]);
  const isGone = useRef(false);
  const leave = () => {
    isGone.current = true;
  };
  useEffect(() => leave, []);
  const show = (change: Change) =>
    setChanges((before) => {
      const last = before.find(({ keyId }) => keyId === change.keyId);
      if ((last?.propagation.sequence ?? 0) > change.propagation.sequence) return before;
      if (last?.propagation.sequence === change.propagation.sequence)
        return before.map((each) => (each === last ? change : each));
      return [change, ...before.filter(({ by }) => !by).filter((each) => each !== last)].slice(
        0,
        RECEIPTS_MAX,
      );
    });
  const close = (change: Change) => setChanges((before) => before.filter((each) => each !== change));
  const begin = async (apiId: string | undefined, send: () => Promise<WrittenChange>) => {
    const steps = follow(apiId, send);
    const first = await steps.next().catch((error: unknown) => {
      if (isConflict(error)) onWritten(); // by somebody else
      throw error;
    });
    if (first.done) return undefined;
    show(first.value);
    onWritten();
    void watch(steps);
    return first.value.propagation.sequence;
  };
  const watch = async (steps: AsyncGenerator<Change>) => {
    for await (const change of steps) {
      if (isGone.current) return;
      show(change);
      if (change.by) onWritten();
    }
  };
  // Newest last, where it stays while those before it go.
  const receipts = changes
    .toReversed()
    .map((change) => <Fence key={change.keyId} change={change} onClose={() => close(change)} />);
  return { begin, receipts };
}

/** Changes the keys with the same patch together. An API has one log, so that its last change is the last to be complete. */
async function sendAll(apiId: string, keys: readonly Patched[], headline: string): Promise<WrittenChange> {
  const results: Awaited<ReturnType<typeof call<'keys.updateKeys'>>>['results'][number][] = [];
  let propagation: Propagation | undefined;
  for (const [patch, alike] of Map.groupBy(keys, (key) => JSON.stringify(key.patch))) {
    const keyIds = alike.map(({ keyId }) => keyId);
    const answer = await call('keys.updateKeys', { apiId, keyIds, ...JSON.parse(patch), waitMs: QUICK_MS });
    results.push(...answer.results);
    propagation = answer.propagation ?? propagation;
  }
  const refusals = results.filter(({ result }) => result === 'refused').length;
  const last = results.find((each) => 'sequence' in each && each.sequence === propagation?.sequence);
  if (!propagation || !last) throw new Failure('NOT_FOUND', 'none of these keys is there any more');
  const missing = refusals === 0 ? '' : `, but for ${refusals} that could not be changed`;
  const { keyId } = last;
  const progress = progressOf(keyId, propagation);
  return { keyId, headline: `${headline}${missing}`, propagation, progress };
}

const progressOf =
  (keyId: string, { sequence }: Propagation) =>
  () =>
    call('keys.getPropagation', { keyId, sequence });
