import { randomUUID } from 'node:crypto';
import type { Propagation } from '../../../writer/writer.ts';
import type { Session } from '../../session.ts';
import { list, time } from '../../terminal/output.ts';
import { printChange } from '../../terminal/print-change.ts';

interface Rotation {
  readonly keyId: string;
  readonly key: string;
  readonly endsAt?: number;
  readonly propagation: Propagation;
}

/**
 * Runs `keyfence keys reroll`. If no response comes, it repeats the call under the same operation id, so that
 * only one key is made.
 */
export async function rerollKey(
  session: Session,
  keyId: string,
  expiration: number,
  waitMs: number | undefined,
): Promise<void> {
  const response = await session.callPatiently<Rotation>(await session.controlPlane(), 'keys.rerollKey', {
    keyId,
    expiration,
    operationId: randomUUID(),
    waitMs,
  });
  const { keyId: newKeyId, key, endsAt } = response;
  const old = endsAt === undefined ? 'refused' : `accepted until ${time(endsAt)}`;
  printChange(session, `${list({ keyId: newKeyId, key, [keyId]: old })}\nrerolled ${keyId}`, response);
  session.note('The key is not stored anywhere and cannot be shown again.');
}
