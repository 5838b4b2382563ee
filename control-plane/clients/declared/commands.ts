import { readFileSync, writeFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { systemClock } from '#shared/process/clock.ts';
import { fileError } from '../cli/commands/checkpoint.ts';
import { CliError } from '../cli/exit.ts';
import { commandAt } from '../cli/from-operations.ts';
import type { Session } from '../cli/session.ts';
import { count, printable, time } from '../cli/terminal/output.ts';
import { confirm } from '../cli/terminal/print-change.ts';
import type { Change } from './compare.ts';
import { exported } from './export.ts';
import { type Declared, readDeclared } from './files.ts';
import { KIND_NAMES, type Kind } from './kinds.ts';
import { type Call, readPresent } from './present.ts';
import { bring, type Comparison, compare, type Outcome, type Wish } from './run.ts';
import { linesOf } from './words.ts';

interface Options {
  readonly file?: readonly string[];
  readonly managedBy: string;
  readonly prune?: true;
  readonly force?: true;
  readonly yes?: true;
  readonly output?: string;
}

/** Changes that were planned, and of what they were planned. */
interface Plan {
  readonly keyfencePlan: 1;
  readonly server: string;
  readonly managedBy: string;
  /** Absent: of an earlier command line. */
  readonly prune?: boolean;
  readonly declared: readonly Declared[];
  readonly changes: readonly Change[];
}

const SET_MAX = 128;

/** Adds `keyfence diff`, `plan`, `apply` and `export`. */
export function declaredCommands(program: Command, session: Session): void {
  const file = () => new Option('-f, --file <paths...>', 'files and folders that declare what shall be');
  const set = () =>
    new Option('--managed-by <set>', 'name of the set of files, which what they declare gets as managedBy')
      .makeOptionMandatory()
      .argParser((text) => {
        if (text.length >= 1 && text.length <= SET_MAX) return text;
        throw new CliError('USAGE', `--managed-by: give 1 to ${SET_MAX} characters`);
      });
  const prune = () => new Option('--prune', 'delete what the set has and its files no longer declare');
  const force = () => new Option('--force', 'also if that is much of a kind');
  const from = ' -f keyfence --managed-by shop';

  commandAt(program, 'diff', 'show what apply would change; the exit status is 2 if that is something', [
    `diff${from}`,
  ])
    .addOption(file().makeOptionMandatory())
    .addOption(set())
    .addOption(prune())
    .addOption(force())
    .action(async (options: Options) => {
      const plan = await planned(session, options);
      print(session, plan);
      if (plan.changes.length > 0) session.end('DIFFERS');
    });
  commandAt(program, 'plan', 'write what apply would change into a file, for apply', [
    `plan${from} -o plan.json`,
  ])
    .addOption(file().makeOptionMandatory())
    .addOption(set())
    .addOption(prune())
    .addOption(force())
    .requiredOption('-o, --output <file>', 'the file')
    .action(async (options: Options) => {
      const { keyfencePlan, server, managedBy, declared, changes, wish } = await planned(session, options);
      const plan: Plan = { keyfencePlan, server, managedBy, prune: wish.prune, declared, changes };
      try {
        writeFileSync(options.output ?? '', `${JSON.stringify(plan, null, 2)}\n`, { mode: 0o600 });
      } catch (error) {
        throw fileError(options.output ?? '', error);
      }
      print(session, plan);
      if (plan.changes.length > 0) session.end('DIFFERS');
    });
  const help =
    'bring Keyfence to what files declare; when this returns, no verifier answers from the earlier state';
  commandAt(program, 'apply [plan]', help, ['apply plan.json --yes', `apply${from} --prune --yes`])
    .addOption(file())
    .addOption(set().makeOptionMandatory(false))
    .addOption(prune())
    .addOption(force())
    .option('--yes', 'do not ask')
    .action((plan: string | undefined, options: Options) =>
      plan === undefined ? applyFiles(session, options) : applyPlan(session, plan, options),
    );
  commandAt(program, 'export', 'write what a set declares as a file for apply, without secrets', [
    'export --managed-by shop',
  ])
    .addOption(new Option('--managed-by <set>', 'only what this set declares; without it, all but keys'))
    .addOption(new Option('--kind <kinds...>', 'only these kinds').choices(KIND_NAMES))
    .action((options: { managedBy?: string; kind?: readonly Kind[] }) => exportFiles(session, options));
}

/** Calls that may be repeated are, for about as long as a person waits. */
async function callOf(session: Session): Promise<{ readonly call: Call; readonly server: string }> {
  const client = await session.controlPlane();
  const call: Call = (operation, input = {}) => session.callPatiently(client, operation, input);
  return { call, server: client.place };
}

async function planned(session: Session, options: Options): Promise<Plan & Comparison & { wish: Wish }> {
  const declared = readDeclared(options.file ?? []);
  const { call, server } = await callOf(session);
  const { managedBy, prune = false, force = false } = options;
  const wish = { declared, set: managedBy, prune, force };
  const comparison = await compare(call, wish);
  for (const kind of comparison.unread)
    session.note(
      `--prune deletes nothing of the kind ${kind}: this root key may not read it, and no file has one.`,
    );
  return { keyfencePlan: 1, server, managedBy, declared, wish, ...comparison };
}

async function applyFiles(session: Session, options: Options): Promise<void> {
  if (!options.file || options.managedBy === undefined)
    throw new CliError('USAGE', 'give a plan, or -f and --managed-by');
  const plan = await planned(session, options);
  if (plan.changes.length === 0 || !session.json) print(session, plan);
  if (plan.changes.length > 0) await agree(session, plan.changes, options);
  const { call, server } = await callOf(session);
  let agreed = plan.changes;
  const outcome = await bring(call, plan.wish, plan, systemClock, async (changes) => {
    session.note('Somebody else changed some of it meanwhile; planned again.');
    const isMore = changes.some(
      ({ id, action }) => !agreed.some((each) => each.id === id && each.action === action),
    );
    if (!isMore) return;
    agreed = changes;
    session.note(`Compared with ${server}:\n${planText(changes)}`);
    await agree(session, changes, options);
  });
  report(session, outcome, plan.changes.length > 0);
}

async function applyPlan(session: Session, file: string, options: Options): Promise<void> {
  if (options.file) throw new CliError('USAGE', 'give either a plan or -f');
  const plan = readPlan(file);
  const { server, managedBy, declared, changes } = plan;
  const { call, server: place } = await callOf(session);
  if (server !== place)
    throw new CliError('USAGE', `${file} was planned for ${server}, and this is ${place}; plan again`);
  const prune = plan.prune ?? changes.some(({ action }) => action === 'delete');
  const { present } = await readPresent(call, declared, managedBy, prune);
  const moved = changes.filter(({ id, version }) => present.get(id)?.version !== version);
  if (moved.length > 0) {
    const names = moved
      .slice(0, 5)
      .map(({ id }) => id)
      .join(', ');
    throw new CliError(
      'NO',
      `nothing was done: since ${file} was planned, somebody changed ${names}; plan again`,
      { code: 'CONFLICT' },
    );
  }
  if (changes.length === 0 || !session.json) print(session, plan);
  if (changes.length > 0) await agree(session, changes, options);
  const wish = { declared, set: managedBy, prune, force: false };
  report(session, await bring(call, wish, { changes, present }, systemClock, undefined), changes.length > 0);
}

function readPlan(file: string): Plan {
  try {
    const plan = JSON.parse(readFileSync(file, 'utf8'));
    if (plan?.keyfencePlan === 1) return plan;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw fileError(file, error);
  }
  throw new CliError('USAGE', `${file} is no plan; write one with keyfence plan`);
}

async function agree(session: Session, changes: readonly Change[], { yes }: Options): Promise<void> {
  await confirm(
    session,
    `make ${count(changes.length)} ${changes.length === 1 ? 'change' : 'changes'}`,
    yes === true,
  );
}

const MARKS = { create: '+', change: '~', delete: '-' } as const;

function print(session: Session, { changes, server }: Pick<Plan, 'changes' | 'server'>): void {
  session.note(`Compared with ${server}:`);
  session.print({ server, changes: changes.map(({ action, id, fields }) => ({ action, id, fields })) }, () =>
    planText(changes),
  );
}

function planText(changes: readonly Change[]): string {
  const lines: string[] = [];
  for (const { action, id, fields, driftedAt } of changes) {
    const drift = driftedAt === undefined ? '' : `  (changed by others since ${time(driftedAt)})`;
    lines.push(`${MARKS[action]} ${printable(id)}${drift}`);
    if (action === 'change')
      for (const change of fields) for (const line of linesOf(change)) lines.push(`    ${line}`);
  }
  const of = (action: Change['action']) => count(changes.filter((change) => change.action === action).length);
  const sum = `${of('create')} to create, ${of('change')} to change, ${of('delete')} to delete`;
  return [...lines, `${changes.length === 0 ? 'Nothing to change' : sum}.`].join('\n');
}

const NAMED_MAX = 20;

function report(session: Session, outcome: Outcome, hasChanges: boolean): void {
  const { done, failed, remainder, propagation } = outcome;
  for (const { change, error } of failed)
    session.report(
      { error: { code: error.code, id: change.id, message: error.message } },
      `keyfence: ${change.id}: ${error.message}`,
    );
  const rest = remainder + failed.length;
  const isPending = propagation.state === 'pending';
  const sum = `${count(done.length)} ${done.length === 1 ? 'change' : 'changes'} made${rest > 0 ? `, ${count(rest)} not` : ''}`;
  const laggards = propagation.laggards.join(', ') || 'its replicas';
  const state = isPending
    ? `; pending: ${propagation.fault ?? `not confirmed by ${laggards}`}`
    : `; complete everywhere after ${count(Math.round(propagation.tookMs))} ms`;
  // What was not answered may have been done.
  const isUnknown = failed.some(({ error }) => error.exit === 'UNAVAILABLE');
  const isStop = ({ action, stop }: Change) => action === 'delete' || stop !== undefined;
  const stops = failed.flatMap(({ change }) =>
    isStop(change) && !outcome.stopped.has(change) ? [change.id] : [],
  );
  const accepted = [...new Set([...stops, ...propagation.accepted])];
  const { tookMs, ...about } = propagation;
  if (!hasChanges && done.length === 0 && rest === 0 && !isPending) return;
  session.print(
    {
      done: done.map(({ id, action }) => ({ id, action })),
      ...{ failed: failed.length, remainder, tookMs, ...about, accepted },
    },
    () => `${sum}${isUnknown ? '' : state}.${acceptedText(accepted)}`,
  );
  if (failed.length > 0) session.end(failed[0]?.error.exit ?? 'NO');
  else if (isPending) session.end('PENDING');
}

/** Says what verifiers still accept as before, in the last line. */
function acceptedText(accepted: readonly string[]): string {
  if (accepted.length === 0) return '';
  const more = accepted.length > NAMED_MAX ? ` and ${count(accepted.length - NAMED_MAX)} more` : '';
  return `\nStill as before for verifiers: ${accepted.slice(0, NAMED_MAX).map(printable).join(', ')}${more}.`;
}

async function exportFiles(
  session: Session,
  { managedBy, kind }: { managedBy?: string; kind?: readonly Kind[] },
): Promise<void> {
  const { call } = await callOf(session);
  const kinds = kind ?? KIND_NAMES.filter((each) => each !== 'Key' || managedBy !== undefined);
  process.stdout.write(await exported(call, kinds, managedBy));
}
