import type { Operations } from './interface.ts';

/** The progress of a change. */
export type Receipt = Operations['keys.getPropagation']['output']['propagation'];

/** The record or API that was changed, by the one id that names it. */
export type Changed =
  | { readonly keyId: string; readonly apiId?: string }
  | { readonly roleId: string }
  | { readonly identityId: string }
  | { readonly apiId: string };

/** Calls one operation by its name. */
type Ask = (operation: string, input: object) => Promise<unknown>;

/** The operations that tell how far a change has come, by what it changed, and the one that shows the present sequence. */
export const PROGRESS = {
  keyId: { ask: 'keys.getPropagation', read: 'keys.getKey' },
  roleId: { ask: 'permissions.getRolePropagation', read: 'permissions.getRole' },
  identityId: { ask: 'identities.getIdentityPropagation', read: 'identities.getIdentity' },
  apiId: { ask: 'apis.getApiPropagation', read: 'apis.getApi' },
} as const;
type Name = keyof typeof PROGRESS;

/** A record may change as often as this between two questions. */
const READS_MAX = 3;

const nameOf = (changed: Changed): Name =>
  (Object.keys(PROGRESS) as Name[]).find((name) => Object.hasOwn(changed, name)) ?? 'apiId';

/**
 * Tells how far a change has come, and of one that a later change replaced, how far that has: what comes later in a log is not
 * complete before what came earlier. Resolves with undefined where nothing is left that a verifier could answer about.
 */
export async function receiptOf(
  ask: Ask,
  changed: Changed,
  sequence: number | undefined,
): Promise<Receipt | undefined> {
  const name = nameOf(changed);
  const about = sequence === undefined ? changed : { ...changed, sequence: String(sequence) };
  for (let reads = 0; ; reads++) {
    try {
      const answer = await ask(PROGRESS[name].ask, { ...about });
      return (answer as { readonly propagation: Receipt }).propagation;
    } catch (error) {
      const code: unknown = Object(error).code;
      // An API is gone two fences after its deletion was complete, and its keys and their log with it.
      if (code === 'NOT_FOUND' && name === 'apiId') return undefined;
      if (code !== 'CONFLICT' || name === 'apiId' || reads === READS_MAX) throw error;
      // The log does not reach back to it, or a failover lost it: then the present state is what counts.
      const present = (await ask(PROGRESS[name].read, without(changed))) as { readonly sequence: number };
      Object.assign(about, { sequence: String(present.sequence) });
      if (present.sequence === 0) return undefined;
    }
  }
}

/** The operations that read a key or a record take its id alone. */
const without = (changed: Changed): object =>
  'keyId' in changed ? { keyId: changed.keyId } : { ...changed };
