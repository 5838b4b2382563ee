import { CliError } from './exit.ts';
import { end, run } from './run.ts';
import { Session } from './session.ts';

const session = new Session();
// The reader of the output may stop early: `keyfence keys export shop | head`. A change is finished unheard.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') {
    end(session, new CliError('USAGE', `standard output cannot be written: ${error.code}`));
  }
  if (!session.isChanging) process.exit();
});
process.stderr.on('error', () => undefined);
await run(session);
