import { CliError } from './exit.ts';
import { end, run } from './run.ts';
import { Session } from './session.ts';

const session = new Session();
// The reader of the output may stop early: `keyfence keys export shop | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') {
    end(session, new CliError('USAGE', `standard output cannot be written: ${error.code}`));
  }
  process.exit();
});
await run(session);
