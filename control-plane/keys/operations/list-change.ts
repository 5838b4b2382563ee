import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { KEY_FIELDS, storedFields } from '#shared/contract/key-record.ts';
import { SLUGS_MAX, slugsOf } from '#shared/contract/slugs.ts';
import { recordNotFound } from '../../serve/authorization.ts';
import type { Call } from '../../serve/call.ts';
import type { Services } from '../../services.ts';
import type { LogEntry } from '../../writer/change-log-port.ts';
import type { Propagation } from '../../writer/writer.ts';

/** Maximum number of attempts while other control planes change the same key first. */
const TRIES = 20;

/** A key's list after the change. */
interface ChangedList {
  readonly values: readonly string[];
  readonly propagation: Propagation;
}

/**
 * Changes a key's list, on the condition that the key has not changed in between; calls of one control plane take
 * turns until they have written. Rejects like `ChangeWriter.apply`.
 */
export async function changeList(
  call: Call<{ readonly keyId: string; readonly waitMs?: number }>,
  { keys, changeWriter, listTurns }: Pick<Services, 'keys' | 'changeWriter' | 'listTurns'>,
  field: 'permissions' | 'roles',
  become: (present: readonly string[]) => readonly string[] | Promise<readonly string[]>,
): Promise<ChangedList> {
  const endTurn = await listTurns.take(call.request.keyId);
  if (!endTurn) throw unavailable('too many changes of the lists of this key are waiting; try again');
  try {
    return await changeInTurn(call, { keys, changeWriter }, field, become, endTurn);
  } finally {
    endTurn();
  }
}

async function changeInTurn(
  call: Call<{ readonly keyId: string; readonly waitMs?: number }>,
  { keys, changeWriter }: Pick<Services, 'keys' | 'changeWriter'>,
  field: 'permissions' | 'roles',
  become: (present: readonly string[]) => readonly string[] | Promise<readonly string[]>,
  onWritten: () => void,
): Promise<ChangedList> {
  const { apiId } = call;
  const { keyId, waitMs } = call.request;
  for (let tries = 1; ; tries++) {
    const present = await keys.listOf(apiId, keyId, field);
    if (!present) throw await recordNotFound(keys, apiId, keyId);
    const fields = storedFields({ [field]: await become(present.values) });
    const values = slugsOf(fields[KEY_FIELDS[field].letter] ?? '');
    if (values.length > SLUGS_MAX)
      throw new ApiError('BAD_REQUEST', `${field}: a key has at most ${SLUGS_MAX}`);
    const write = { apiId, operation: 'update', keyId, fields, condition: present.version } as const;
    const record = call.recordChange(fields);
    const written = (entry: LogEntry) => {
      onWritten();
      record(entry);
    };
    try {
      const propagation = await changeWriter.apply(write, waitMs, written);
      if (!propagation) throw await recordNotFound(keys, apiId, keyId);
      return { values, propagation };
    } catch (error) {
      const cameLate = error instanceof ApiError && error.code === 'CONFLICT';
      if (!cameLate || tries === TRIES) throw error;
    }
  }
}

/**
 * Returns the list once its change is complete. The response has no room for a propagation, so the change
 * must be complete before it is sent.
 */
export function withDefaults({ values, propagation: { state, sequence } }: ChangedList): readonly string[] {
  if (state === 'complete') return values;
  throw unavailable(
    `the change is written as ${sequence} but not complete yet; send the call again to wait for it`,
  );
}
