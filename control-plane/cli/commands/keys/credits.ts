import { randomUUID } from 'node:crypto';
import { CREDITS_MAX } from '#shared/contract/credits.ts';
import type { ChangeStatus } from '../../../writer/writer.ts';
import { whole } from '../../arguments.ts';
import { CliError } from '../../exit.ts';
import type { Session } from '../../session.ts';
import { count } from '../../terminal/output.ts';
import { printChange } from '../../terminal/print-change.ts';

const OPERATIONS = ['set', 'increment', 'decrement'];
/** Parses an amount of credits. */
export const credits = whole(0, CREDITS_MAX);

/**
 * Runs `keyfence keys credits`. If no response comes, it repeats the call under the same operation id, so
 * that the change is made once.
 */
export async function changeCredits(
  session: Session,
  keyId: string,
  operation: string,
  amount: string,
  waitMs: number | undefined,
): Promise<void> {
  if (!OPERATIONS.includes(operation)) {
    throw new CliError('USAGE', `operation: give one of ${OPERATIONS.join(', ')}`);
  }
  const value = operation === 'set' && amount === 'unlimited' ? null : creditsOf(amount);
  const response = await session.callPatiently<{ remaining: number | null; propagation: ChangeStatus }>(
    await session.controlPlane(),
    'keys.updateRemaining',
    { keyId, op: operation, value, operationId: randomUUID(), waitMs },
  );
  const credits = response.remaining === null ? 'unlimited' : count(response.remaining);
  printChange(session, `${keyId}: ${credits} credits`, response);
}

function creditsOf(text: string): number {
  try {
    return credits(text);
  } catch (error) {
    throw new CliError('USAGE', `credits: ${(error as Error).message}`);
  }
}
