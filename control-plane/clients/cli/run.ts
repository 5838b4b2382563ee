import { CommanderError } from 'commander';
import { ConfigError } from '#shared/process/load-config.ts';
import { isWellFormed } from '#shared/rules/key-format.ts';
import { CliError } from './exit.ts';
import { createProgram } from './program.ts';
import type { Session } from './session.ts';
import { printable } from './terminal/output.ts';

const NEXT = `Next: keyfence login       sign in at your control plane
      keyfence apis list   see what there is
      keyfence doctor      ask if all is well
      keyfence tail        follow refusals\n`;

/** Runs the command in this process's arguments. Never rejects; the session sets the exit status. */
export async function run(session: Session): Promise<void> {
  try {
    if (process.argv.some((argument) => argument.split('=').some(isWellFormed))) {
      const advice = 'others can see command lines, so treat that key as exposed; give its keyId instead';
      throw new CliError('USAGE', `a key must not be among the arguments: ${advice}`);
    }
    if (process.argv.length === 2) session.note(NEXT);
    await createProgram(session, undefined, process.argv[2]).parseAsync();
  } catch (error) {
    end(session, error);
  }
}

/** Reports an error on standard error and sets the exit status. */
export function end(session: Session, error: unknown): void {
  if (error instanceof CommanderError) {
    if (error.exitCode !== 0) session.end('USAGE'); // commander has already reported the error
    return;
  }
  const { exit, code, message, requestId } =
    error instanceof CliError
      ? error
      : error instanceof ConfigError
        ? new CliError('CONFIG', error.message)
        : new CliError('BUG', (error as Error).stack ?? String(error));
  session.report(
    { error: { code, message, ...(requestId ? { requestId } : {}) } },
    `keyfence: ${message}${requestId ? ` (request ${printable(requestId)})` : ''}`,
  );
  session.end(exit);
}
