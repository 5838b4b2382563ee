import { styleText } from 'node:util';
import type { Command } from 'commander';
import type { Finding } from '../../../subjects/examine/examination.ts';
import { commandAt } from '../from-operations.ts';
import type { Session } from '../session.ts';
import { printable } from '../terminal/output.ts';

/**
 * Adds `keyfence doctor`. Its modules are loaded only when it runs, because no other command needs a Redis
 * client.
 */
export function doctorCommand(program: Command, session: Session): void {
  const help =
    "check the control plane, the verifier, the clocks and Redis (reached through the control plane's REDIS_… variables), and say what to change";
  commandAt(program, 'doctor', help, ['doctor']).action(async () => {
    const { examine } = await import('../doctor/examine.ts');
    const findings = await examine(session);
    const toChange = findings.filter(({ change }) => change !== undefined).length;
    session.print({ healthy: toChange === 0, findings }, () => findings.map(line).join('\n'));
    session.note(toChange === 0 ? 'Nothing to change.' : `${toChange} to change.`);
    if (toChange > 0) session.end('NO');
  });
}

function line({ check, found: result, change }: Finding): string {
  const symbol = change === undefined ? styleText('green', '✓') : styleText('red', '✗');
  const advice = change === undefined ? '' : `\n    ${styleText('bold', '→')} ${printable(change)}`;
  return `${symbol} ${check}: ${printable(result)}${advice}`;
}
