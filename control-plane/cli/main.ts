import { CommanderError } from 'commander';
import { isWellFormed } from '#shared/key-format.ts';
import { CliError, EXITS } from './exit.ts';
import { json, printable } from './output.ts';
import { createProgram } from './program.ts';
import { Session } from './session.ts';

// Who reads the output may have seen enough: `keyfence keys export shop | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXITS.OK[0]);
  throw error;
});

const session = new Session();
try {
  if (process.argv.some((argument) => argument.split('=').some(isWellFormed))) {
    const advice = 'others can see a command line, so treat that key as known; give its keyId instead';
    throw new CliError('USAGE', `a key has no place among the arguments: ${advice}`);
  }
  await createProgram(session).parseAsync();
} catch (error) {
  end(error);
}

/** Says on standard error what went wrong, and ends with its status. */
function end(error: unknown): void {
  if (error instanceof CommanderError) {
    if (error.exitCode !== 0) session.end('USAGE'); // it has said itself what is wrong
    return;
  }
  const { exit, code, message, requestId } =
    error instanceof CliError ? error : new CliError('BUG', String(error), { cause: error });
  const text = session.json
    ? json({ error: { code, message, ...(requestId ? { requestId } : {}) } })
    : printable(`keyfence: ${message}${requestId ? ` (request ${requestId})` : ''}`);
  process.stderr.write(`${text}\n`);
  session.end(exit);
}
