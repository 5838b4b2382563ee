import { Command } from 'commander';
import { VERSION } from '#shared/version.ts';
import { declaredCommands } from '../declared/commands.ts';
import { doctorCommand } from './commands/doctor.ts';
import { exportCommand } from './commands/export.ts';
import { fleetCommand } from './commands/fleet.ts';
import { deleteIdentityCommand, disableIdentityCommand } from './commands/identities.ts';
import { importCommand } from './commands/import.ts';
import {
  apiUsageCommand,
  keyUsageCommand,
  listCommands,
  questionCommands,
  refusalsCommand,
} from './commands/keys.ts';
import { loginCommands } from './commands/login.ts';
import { manyKeysCommands } from './commands/many-keys.ts';
import { tailCommand } from './commands/tail.ts';
import { GROUPS, WORDS } from './commands/words.ts';
import { completionCommand } from './completion.ts';
import { addOperation } from './from-operations.ts';
import { type OperationRow, operationRows } from './operations.ts';
import { Session } from './session.ts';
import { TimeOption, zonedTime } from './times.ts';

type Add = (program: Command, session: Session) => void;

/** Commands that are more than a call, in the place of their operations; null = another command makes the calls. */
const BY_HAND: Readonly<Record<string, Add | null>> = {
  'keys.getVerifications': keyUsageCommand,
  'keys.explain': questionCommands,
  'keys.listRefusals': refusalsCommand,
  'verdicts.find': null,
  'keys.deleteKey': manyKeysCommands,
  'keys.importKeys'(program, session) {
    importCommand(program, session);
    exportCommand(program, session);
  },
  'keys.updateKeys': null,
  'keys.deleteKeys': null,
  'keys.addPermissions': listCommands,
  'keys.setPermissions': null,
  'keys.removePermissions': null,
  'keys.addRoles': null,
  'keys.setRoles': null,
  'keys.removeRoles': null,
  'apis.getVerifications': apiUsageCommand,
  'apis.listRefusals': tailCommand,
  'identities.deleteIdentity'(program, session) {
    disableIdentityCommand(program, session);
    deleteIdentityCommand(program, session);
  },
  'fleet.listFindings': doctorCommand,
  'fleet.listVerifiers': fleetCommand,
};

/**
 * Creates the command line. Parsing throws CommanderError or CliError, and never ends the process.
 * @param word the first word that is typed, if only the commands that begin with it are needed
 */
export function createProgram(session = new Session(), operations?: readonly OperationRow[], word?: string) {
  const program = new Command('keyfence')
    .description(
      'Manages Keyfence: keys, roles, identities, APIs, root keys, webhooks and the fleet of verifiers.',
    )
    .version(VERSION)
    .option('--json', 'print the result as one line of JSON, and errors as JSON on standard error')
    .exitOverride()
    .showSuggestionAfterError()
    .configureOutput({
      outputError(text) {
        // A value after `=`, or a superfluous argument, may be a secret.
        const message = text.replace(/=\S*|(?<=but got \d+): .*/g, '…').trimEnd();
        session.json ||= process.argv.includes('--json');
        const error = { code: 'USAGE', message: message.replace(/^error: /, '') };
        session.report({ error }, `keyfence: ${message}`);
      },
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
  for (const [name, help] of Object.entries(GROUPS)) {
    const group = program.command(name).description(help);
    if (name === 'identities') group.alias('customers');
  }
  const rows = operations ?? operationRows();
  const isWord = rows.some((row) => firstOf(row) === word);
  for (const row of rows) {
    const byHand = BY_HAND[row.name];
    if (isWord && firstOf(row) !== word) continue;
    if (byHand === undefined) addOperation(program, session, row, WORDS[row.name] ?? {});
    else byHand?.(program, session);
  }
  if (!isWord) {
    loginCommands(program, session);
    declaredCommands(program, session);
    completionCommand(program, session);
  }
  return program;
}

/** The first word of the command of an operation. */
const firstOf = ({ name, words }: OperationRow) =>
  name === 'fleet.listFindings' ? 'doctor' : ((WORDS[name]?.as ?? words).split(' ')[0] ?? '');
