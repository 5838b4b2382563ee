import { scheduler } from 'node:timers/promises';
import { styleText } from 'node:util';
import { Option } from 'commander';
import type { ChangeStatus, Propagation } from '#shared/protocol/writer/writer.ts';
import { type Changed, PROGRESS, receiptOf } from '../../client/receipt.ts';
import { whole } from '../arguments.ts';
import { CliError } from '../exit.ts';
import type { Session } from '../session.ts';
import { count, printable, time } from './output.ts';
import { canPrompt, prompt } from './prompt.ts';

/** The option for the maximum time that the control plane waits before it answers. */
export const waitOption = () =>
  new Option(
    '--wait <seconds>',
    'maximum wait for all verifiers; default: the limit of the server',
  ).argParser(whole(0, 60));

/** Prints the status of a change; the exit status is PENDING if it is not complete, and NO if a later change set something else. */
export function printChange(
  session: Session,
  subject: string,
  response: { propagation: ChangeStatus },
): void {
  const { propagation } = response;
  session.print(response, () => `${subject}: ${describe(propagation)}`);
  if (propagation.overtakenBy !== undefined)
    session.note(
      styleText(
        'yellow',
        `Change ${propagation.overtakenBy} came after it and set something else: look at it again before you rely on it.`,
        { stream: process.stderr },
      ),
    );
  if (!propagation.durable) {
    session.note(
      styleText('yellow', 'A crash or failover of Redis can lose this change; see `keyfence doctor`.', {
        stream: process.stderr,
      }),
    );
  }
  if (propagation.overtakenBy !== undefined) session.end('NO');
  else if (propagation.state === 'pending') session.end('PENDING');
}

const ASK_AGAIN_MS = 2000;

/**
 * Asks on while only tokens from before a change are left, and tells for how long; returns how far it has come then. Who gave a
 * time waits no longer.
 * @param about what changed, by the names in PROGRESS, and `waitMs` of the call
 */
export async function afterTokens(
  session: Session,
  about: Readonly<Record<string, unknown>>,
  first: ChangeStatus,
): Promise<ChangeStatus> {
  if (about['waitMs'] !== undefined) return first;
  const name = Object.keys(PROGRESS).find((each) => typeof about[each] === 'string');
  let propagation = first;
  while (name && propagation.state === 'pending' && propagation.tokens === 'pending' && propagation.by) {
    const { completeBy = 0, sequence } = propagation;
    session.note(
      `Verifiers have applied change ${sequence}. Waiting until ${time(completeBy)} for tokens from before.`,
    );
    await scheduler.wait(ASK_AGAIN_MS);
    const ask = (operation: string, input: object) => session.call<unknown>(operation, input);
    const receipt = await receiptOf(ask, { [name]: about[name] } as Changed, sequence);
    propagation = receipt ?? { ...propagation, state: 'complete', tokens: 'complete' };
  }
  return propagation;
}

/** Asks for confirmation of something that cannot be undone; without a terminal, requires `--yes`. */
export async function confirm(session: Session, action: string, yes: boolean): Promise<void> {
  if (yes) return;
  const place = `at ${(await session.url()).origin}`;
  if (!canPrompt()) throw new CliError('USAGE', `${action} ${place} cannot be undone: confirm with --yes`);
  if ((await prompt(`${action} ${place}? This cannot be undone. Type yes: `)) !== 'yes') {
    throw new CliError('INTERRUPTED', 'nothing was done');
  }
}

/** Describes how far a change has come. */
export function describe({
  state,
  tokens,
  by,
  sequence,
  verifiers,
  waitedMs,
  completeBy,
  laggards,
}: Propagation & ChangeStatus): string {
  const verifiersText = `${count(verifiers)} ${verifiers === 1 ? 'verifier' : 'verifiers'}`;
  if (state === 'pending') {
    const late = laggards ? ` Not confirmed by ${laggards.join(', ') || 'its replicas'}.` : '';
    const end = completeBy === undefined ? '' : ` Complete by ${time(completeBy)} at the latest.`;
    const rest =
      tokens === 'pending' && by
        ? 'verifiers are complete, but a token from before may be valid.'
        : `written, but some of ${verifiersText} may still answer from the earlier state.`;
    const text = `pending, change ${sequence}: ${rest}`;
    return styleText('yellow', printable(`${text}${end}${late}`));
  }
  const reasons = {
    acks: `${verifiersText} confirmed it, in ${count(waitedMs)} ms`,
    fence: `waited ${count(waitedMs)} ms for the leases of those that did not confirm it; none can answer from the earlier state`,
    none: 'no verifier can answer from the earlier state',
  };
  const reason = reasons[verifiers > 0 && by ? by : 'none'];
  return styleText('green', 'complete') + printable(`, change ${sequence}: ${reason}.`);
}
