import { Command } from 'commander';
import { VERSION } from '#shared/version.ts';
import { apiCommands } from './commands/apis.ts';
import { auditCommand } from './commands/audit.ts';
import { catalogueCommands } from './commands/catalogue.ts';
import { doctorCommand } from './commands/doctor.ts';
import { fleetCommand } from './commands/fleet.ts';
import { identityCommands } from './commands/identities.ts';
import { keyCommands } from './commands/keys/keys.ts';
import { roleCommands } from './commands/roles.ts';
import { rootKeyCommands } from './commands/root-keys.ts';
import { webhookCommands } from './commands/webhooks.ts';
import { completionCommand } from './completion.ts';
import { addExamples } from './examples.ts';
import { Session } from './session.ts';
import { TimeOption, zonedTime } from './times.ts';

/** Creates the whole command line. Parsing throws CommanderError or CliError, and never ends the process. */
export function createProgram(session = new Session()): Command {
  const program = new Command('keyfence')
    .description(
      'Manages Keyfence: keys, roles, identities, APIs, root keys, webhooks and the fleet of verifiers.',
    )
    .version(VERSION)
    .option('--json', 'print the result as one line of JSON, and errors as JSON on standard error')
    .exitOverride()
    .showSuggestionAfterError()
    // A value after `=`, or a superfluous argument, may be a secret.
    .configureOutput({
      outputError: (text, write) => write(`keyfence: ${text.replace(/=\S*|(?<=but got \d+): .*/g, '…')}`),
    })
    .configureHelp({ showGlobalOptions: true });
  program.hook('preAction', (_program, command) => {
    session.json = program.opts<{ json?: boolean }>().json === true;
    for (const option of command.options) {
      const ms: unknown = command.getOptionValue(option.attributeName());
      if (option instanceof TimeOption && typeof ms === 'number')
        session.note(`${option.long}: ${zonedTime(ms)}`);
    }
  });
  keyCommands(program, session);
  apiCommands(program, session);
  catalogueCommands(program, session);
  identityCommands(program, session);
  roleCommands(program, session);
  rootKeyCommands(program, session);
  webhookCommands(program, session);
  fleetCommand(program, session);
  auditCommand(program, session);
  doctorCommand(program, session);
  completionCommand(program, session);
  addExamples(program);
  return program;
}
