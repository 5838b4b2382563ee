import { randomUUID } from 'node:crypto';
import { Argument, type Command, Option } from 'commander';
import { KEY_FIELDS } from '#shared/protocol/records/key-record.ts';
import type { ChangeStatus } from '#shared/protocol/writer/writer.ts';
import { jsonList, jsonObject, names, rateLimit, whole } from './arguments.ts';
import type { Client } from './client.ts';
import { CliError } from './exit.ts';
import { apiIdOf, keyIdOf } from './key-reference.ts';
import type { Field, OperationRow } from './operations.ts';
import { collect, type Page } from './pages.ts';
import type { Session } from './session.ts';
import { openPage } from './terminal/browser.ts';
import { type Columns, count, lineWidth, list, printable, table } from './terminal/output.ts';
import { afterTokens, confirm, printChange, waitOption } from './terminal/print-change.ts';
import { givenSecret } from './terminal/prompt.ts';
import { TimeOption } from './times.ts';

type Answer = Readonly<Record<string, unknown>> & { readonly propagation?: ChangeStatus };
/** The values of a command's options, by their names. */
type Values = Record<string, unknown> & { yes?: boolean; clear?: readonly string[]; wait?: number };

/** The flags of a field's option, such as `--id <apiId>`, or the name of its argument, where its schema does not do. */
export type FieldWords = readonly [as: string, help?: string, parse?: (text: string) => unknown];

/** The ways in which a command differs from what its operation tells. */
export interface Words {
  /** The words of the command, if they are not the group and the verb of the operation. */
  readonly as?: string;
  /** Its description; by default that of the operation. */
  readonly help?: string;
  /** Lines without the word `keyfence`; by default the example of the operation. */
  readonly examples?: readonly string[];
  /** Fields that are arguments; by default those that a call needs. */
  readonly args?: readonly string[];
  /** The words of fields; null = the field cannot be given. */
  readonly fields?: Readonly<Record<string, FieldWords | null>>;
  /** Further options, from which `input` makes fields. */
  readonly options?: () => readonly Option[];
  readonly input?: (values: never) => object;
  /** The columns of an answer or of a listed item; by default all fields. */
  readonly show?: Columns<never>;
  /** The columns of a list on a terminal, where nobody asks for all: what people know things by comes first, the id last. */
  readonly people?: Columns<never>;
  /** Lists what is meant by an argument that names nothing. */
  readonly elsewhere?: (client: Client, input: never, limit: number) => Promise<Page<unknown>>;
  /** The sentence about a change; it may ask for what the answer does not tell. */
  readonly subject?: (answer: never, input: never, client: Client) => string | Promise<string>;
  /** The question before a deletion. */
  readonly question?: (id: string) => string;
  /** A remark that follows what is shown. */
  readonly note?: string;
  /** Helps of the commands that set `enabled`; by default there are both. */
  readonly switches?: Readonly<Partial<Record<'enable' | 'disable', string>>>;
  /** The page of the dashboard that shows the same, after its `#/`. */
  readonly web?: (input: never) => string;
  /** Tells whether the answer is a no, which is an exit status of its own. */
  readonly isNo?: (answer: never) => boolean;
}

/** Adds the command of an operation, and the commands that enable and disable what it changes. */
export function addOperation(program: Command, session: Session, row: OperationRow, words: Words): void {
  const { verb, noun } = partsOf(row);
  const path = words.as ?? row.words;
  const fields = row.fields.filter(
    ({ name, kind }) => words.fields?.[name] !== null && name !== 'operationId' && kind !== 'secret',
  );
  const isArgument = ({ name, kind, required }: Field) =>
    words.args?.includes(name) ??
    (required === true && kind !== 'flag' && !words.fields?.[name]?.[0].startsWith('-'));
  const args = fields.filter(isArgument);
  const isSwitch = verb === 'update' && fields.some(({ name }) => name === 'enabled');
  const options = fields.filter((field) => !args.includes(field) && !(isSwitch && field.name === 'enabled'));
  const mayChange = options.some(({ name }) => name !== 'waitMs');
  const act = (command: Command, does: (input: object, options: Values) => Promise<void>) => {
    for (const field of args) addArgument(command, field, words);
    command.action((...values) =>
      does(Object.fromEntries(args.map(({ name }, i) => [name, values[i]])), values[args.length]),
    );
  };

  if (mayChange || !isSwitch) {
    const examples = words.examples ?? [exampleOf(row, path, args, options)];
    const command = commandAt(program, path, words.help ?? lower(row.summary), examples);
    if (words.help === undefined && !row.list?.paged)
      command.description(`${lower(row.summary)}. ${row.description}`);
    const entries = new Map(options.flatMap((field) => addOption(command, field, words, row.list?.field)));
    for (const option of words.options?.() ?? []) command.addOption(option);
    const clearable = options.filter((field) => field.clearable).map(({ name }) => name);
    if (clearable.length > 0)
      command.addOption(new Option('--clear <field...>', 'clear a field').choices(clearable));
    if (row.list?.paged) {
      command.option(`--limit <${row.list.field}>`, 'maximum number', whole(1, 1_000_000), 100);
      command.option('--cursor <cursor>', 'continue an earlier listing');
    }
    if (words.web) command.option('--web', WEB_HELP);
    if (words.people) command.option('--wide', 'all columns, on a terminal too');
    if (verb === 'delete') command.option('--yes', 'do not ask');
    act(command, async (input, { yes, clear = [], ...values }) => {
      const id = firstOf(input);
      if (verb === 'delete') await confirm(session, words.question?.(id) ?? `delete ${id}`, yes === true);
      const patch = Object.fromEntries([
        ...Object.entries(values).map(([name, value]) => entries.get(name)?.(value) ?? [name, value]),
        ...clear.map((name) => [name, null]),
      ]);
      if (verb === 'update' && mayChange && Object.keys(patch).every((name) => name === 'waitMs'))
        throw new CliError('USAGE', 'nothing to change: give at least one field');
      await run(session, row, words, { ...input, ...patch });
    });
  }

  const thing = lower(noun).replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const both = { enable: `enable a ${thing} again`, disable: `disable a ${thing}` };
  for (const [name, help] of Object.entries(isSwitch ? (words.switches ?? both) : {})) {
    const at = path.replace(/\S+$/, name);
    const command = commandAt(program, at, help, [exampleOf(row, at, args, [])]);
    if (options.some(({ name }) => name === 'waitMs')) command.addOption(waitOption());
    const subject: Words['subject'] = (_, input) => `${name}d ${firstOf(input)}`;
    act(command, (input, { wait }) =>
      run(session, row, { subject }, { ...input, enabled: name === 'enable', ...waitMsOf(wait) }),
    );
  }
}

const firstOf = (input: object) => String(Object.values(input)[0]);

/** Makes the call, and shows what it answers. */
async function run(session: Session, row: OperationRow, words: Words, values: object): Promise<void> {
  const { limit, wide, web, ...input } = { ...(words.input?.(values as never) ?? values) } as Record<
    string,
    unknown
  >;
  const { name, fields, list: listing } = row;
  // Others can see the arguments of a process.
  if (fields.some(({ kind, required }) => kind === 'secret' && required === true))
    input['key'] = await givenSecret(session.config.KEYFENCE_KEY);
  const columns =
    words.show ?? Object.fromEntries((listing?.columns ?? []).map((column) => [column, column]));
  const { keyId } = input;
  if (typeof keyId === 'string') input['keyId'] = await keyIdOf(session, keyId);
  if (web && words.web) return openPage(session, words.web(input as never));
  const client = await session.controlPlane();
  const { apiId, roleId, endpointId } = input;
  // A text that is searched for need not be an API.
  if (typeof apiId === 'string' && name !== 'apis.createApi')
    input['apiId'] = await apiIdOf(client, apiId).catch((error: unknown) => {
      if (!words.elsewhere) throw error;
      return apiId;
    });
  if (typeof roleId === 'string')
    input['roleId'] = await idOf(roleId, 'role', () => client.call<Named[]>('permissions.listRoles'));
  if (typeof endpointId === 'string')
    input['endpointId'] = await idOf(endpointId, 'endpoint', async () => {
      const { endpoints } = await client.call<{ endpoints: Endpoint[] }>('webhooks.listEndpoints');
      return endpoints.map(({ endpointId: id, name }) => ({ id, name }));
    });
  const people = process.stdout.isTTY && wide === undefined ? words.people : undefined;
  const printItems = (response: object, items: readonly never[]) => {
    session.print(response, () =>
      people
        ? table(items, people, lineWidth(), true)
        : table(items, columns, wide ? Number.POSITIVE_INFINITY : lineWidth()),
    );
    const hidden = Object.keys(columns).length - Object.keys(people ?? columns).length;
    if (hidden > 0 && items.length > 0)
      session.note(`${hidden} ${hidden === 1 ? 'column' : 'columns'} hidden: --wide`);
  };
  if (listing?.paged) {
    const page = collect<never>(client, name, input, listing.field, Number(limit));
    const { items, total, cursor } = await page.catch((error: unknown) => {
      // A text need not have the form of an id.
      const isNowhere =
        error instanceof CliError && (error.code === 'NOT_FOUND' || /^\w+Id: must match/.test(error.message));
      if (!isNowhere || !words.elsewhere) throw error;
      return words.elsewhere(client, input as never, Number(limit)) as typeof page;
    });
    printItems({ [listing.field]: items, total, ...(cursor ? { cursor } : {}) }, items);
    const noun = name === 'apis.listKeys' ? `keys of ${printable(String(input['apiId']))}` : listing.field;
    const amount = items.length === 0 && total !== 0 ? 'None' : count(items.length);
    if (total !== undefined) session.note(`${amount} of ${count(total)} ${noun}.`);
    if (cursor) session.note(`More: --cursor ${printable(cursor)}`);
    return;
  }
  const answer = await (row.adds
    ? session.callPatiently<Answer>(client, name, input, randomUUID())
    : client.call<Answer>(name, input));
  const isSaid = words.subject ?? (answer.propagation || /\.(?:update|delete|end)/.test(name));
  const isShown = words.show ?? answer.key ?? answer.secret ?? !isSaid;
  const items = (listing?.field ? answer[listing.field] : answer) as readonly never[];
  if (listing) printItems(answer, items);
  else if (isShown && !words.subject) session.print(answer, () => list(answer as never, words.show));
  else {
    const subject =
      (await words.subject?.(answer as never, input as never, client)) ?? subjectOf(row, answer, input);
    const propagation =
      answer.propagation && !name.endsWith('Propagation')
        ? await afterTokens(session, { ...input, ...answer }, answer.propagation)
        : answer.propagation;
    const about = typeof keyId === 'string' ? { keyId: input['keyId'] } : {};
    if (propagation) printChange(session, subject, { ...about, ...answer, propagation });
    else session.print(answer, () => subject);
  }
  if (words.note) session.note(words.note);
  if (words.isNo?.(answer as never)) session.end('NO');
}

type Named = { readonly id: string; readonly name?: string | undefined };
type Endpoint = { readonly endpointId: string; readonly name?: string };

/** The id of a role or an endpoint that is given by its id, or by a name that no other has. */
async function idOf(reference: string, noun: string, all: () => Promise<Named[]>): Promise<string> {
  if (reference.startsWith(`${noun}_`)) return reference;
  const [match, ...others] = (await all()).filter(({ name }) => name === reference);
  const label = printable(reference);
  if (others.length > 0) throw new CliError('USAGE', `several ${noun}s have the name ${label}: give an id`);
  if (match === undefined) throw new CliError('NO', `there is no ${noun} ${label}`, { code: 'NOT_FOUND' });
  return match.id;
}

/** The sentence about a change: `created identity_…`. */
function subjectOf(row: OperationRow, answer: object, input: object): string {
  const { verb } = partsOf(row);
  const newId = Object.entries(answer).find(([name]) => name.endsWith('Id'))?.[1];
  if (verb === 'get') return firstOf(input);
  return `${verb}${verb.endsWith('e') ? 'd' : 'ed'} ${verb === 'create' ? newId : firstOf(input)}`;
}

export const WEB_HELP = 'open it in the dashboard, or print the address where there is no display';
const kebab = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
const lower = (text: string) => text.replace(/^[A-Z](?![A-Z])/, (letter) => letter.toLowerCase());

/** The verb and the noun of an operation, as in `createRootKey`. */
function partsOf({ name }: OperationRow): { verb: string; noun: string } {
  const [, verb = '', noun = ''] = /\.([a-z]+)(.*)$/.exec(name) ?? [];
  return { verb, noun };
}

/** Returns a new command at the end of its group, which is made if it is the first. */
export function commandAt(
  program: Command,
  path: string,
  help: string,
  examples: readonly string[],
): Command {
  const [, groups = '', usage = path] = /^((?:[\w-]+ )*?)([\w-]+(?: [<[].*)?)$/.exec(path) ?? [];
  const group = (groups.match(/\S+/g) ?? []).reduce<Command>(
    (at, word) => at.commands.find((child) => child.name() === word) ?? at.command(word),
    program,
  );
  const lines = examples.map((example) => `  keyfence ${example}`);
  const command = group.command(usage);
  for (const argument of command.registeredArguments)
    if (argument.name() === 'key') argument.description = KEY_REFERENCE;
  const alias = ALIASES[command.name()];
  if (alias) command.alias(alias);
  const { outputError } = command.configureOutput();
  return command
    .configureOutput({
      outputError(text, write) {
        const isMissing = /^error: (?:required option|missing required argument) /.test(text);
        outputError?.(isMissing ? `${text.trimEnd()}, as in: keyfence ${examples[0]}` : text, write);
      },
    })
    .summary(help)
    .description(help)
    .addHelpText('after', `\n${[lines.length > 1 ? 'Examples:' : 'Example:', ...lines].join('\n')}`);
}

/** Further names of commands. */
const ALIASES: Readonly<Record<string, string>> = { list: 'ls', reroll: 'rotate' };

/** The help of an argument that `keyIdOf` reads. */
const KEY_REFERENCE = 'its id, its name if no other key has it, or the start of its secret as lists show it';

function addArgument(command: Command, field: Field, { fields = {} }: Words): void {
  const isKey = field.name === 'keyId';
  const [as = isKey ? 'key' : field.name, , parse = parserOf(field)] = fields[field.name] ?? [];
  const argument = new Argument(`<${as}>`, isKey ? KEY_REFERENCE : '').argParser(parse);
  command.addArgument(field.choices ? argument.choices(field.choices) : argument);
}

/** The names of what an option takes, where it is not that of the field. */
const VALUES: Readonly<Partial<Record<Field['kind'], string>>> = {
  ...{ whole: 'number', time: 'time', names: 'names', list: 'json', object: 'json' },
};
/** Times of a search are over. */
const PAST: Readonly<Record<string, ConstructorParameters<typeof TimeOption>[2]>> = {
  ...{ since: { sign: '-', date: 'first' }, start: { sign: '-', date: 'first' } },
  lastUsedBefore: { sign: '-', date: 'first' },
  ...{ until: { sign: '-', date: 'last' }, end: { sign: '-', date: 'last' } },
};

/** Adds the options of a field. Returns their names, each with the field that a value sets. */
function addOption(
  command: Command,
  field: Field,
  { fields = {}, options }: Words,
  items = '',
): [name: string, entry: (value: unknown) => readonly [string, unknown]][] {
  const { name, kind, choices, required, byDefault, bounds } = field;
  // Further options may stand for it, and `input` finds out.
  const hasOthers = options !== undefined;
  const [as, ownHelp, parse = parserOf(field)] = fields[name] ?? wordsOfKeys(field);
  const form = bounds
    ? `${count(bounds[0])} to ${count(bounds[1])}`
    : kind === 'names'
      ? 'separated by commas'
      : '';
  const help =
    ownHelp ?? lower(field.help.replace(/^Unix milliseconds; |`|\.$/g, '')) + (form && ` (${form})`);
  const add = (option: Option, entry?: (value: unknown) => unknown): ReturnType<typeof addOption> => {
    command.addOption(option.makeOptionMandatory(required === true && !hasOthers));
    return [[option.attributeName(), (value) => [name, entry ? entry(value) : value]]];
  };
  if (name === 'waitMs') return add(waitOption(), (seconds) => Number(seconds) * 1000);
  if (name === 'enabled' && items)
    return [
      ...add(new Option('--enabled', `only enabled ${items}`).conflicts('disabled')),
      ...add(new Option('--disabled', `only disabled ${items}`), () => false),
    ];
  if (name === 'enabled') return add(new Option('--disabled', help.replace(/^false: /, '')), () => false);
  if (kind === 'flag')
    return add(
      new Option(`--${byDefault ? 'no-' : ''}${kebab(name)}`, help.replace(/^true: ([^.]*).*/, '$1')),
    );
  const flags =
    as ??
    `--${kebab(name)} <${VALUES[kind] ?? (name.endsWith('Id') ? name : lower(name.replace(/^[a-z]+(?=[A-Z])/, '')))}>`;
  if (kind === 'time') return add(new TimeOption(flags, help, PAST[name] ?? { sign: '+', date: 'after' }));
  const option = new Option(flags, help);
  if (choices) return add(option.choices(choices));
  return add(option.variadic ? option : option.argParser(parse));
}

/** The words of a field of keys, wherever an operation has that field. */
function wordsOfKeys({ name, help }: Field): FieldWords | [] {
  const row = Object.entries(KEY_FIELDS).find(([key]) => key === name)?.[1];
  if (row?.description !== help || !('option' in row)) return [];
  const flags = `--${kebab(name)} ${row.option[0]}`;
  return row.kind === 'limit' ? [flags, row.option[1], rateLimit] : [flags, row.option[1]];
}

function parserOf({ kind, bounds = [0, Number.MAX_SAFE_INTEGER] }: Field): (text: string) => unknown {
  if (kind === 'whole') return whole(...bounds);
  return kind === 'names' ? names : kind === 'list' ? jsonList : kind === 'object' ? jsonObject : String;
}

export const waitMsOf = (seconds: number | undefined) =>
  seconds === undefined ? {} : { waitMs: seconds * 1000 };

/** Returns the operation's example as a line. */
function exampleOf(
  { example, list: listing }: OperationRow,
  path: string,
  args: readonly Field[],
  options: readonly Pick<Field, 'name' | 'kind'>[],
): string {
  const all = [...options, ...(listing?.paged ? [{ name: 'limit', kind: 'whole' } as const] : [])];
  const flags = all.flatMap(({ name, kind }) =>
    name in example && kind !== 'flag' ? [`--${kebab(name)} ${textOf(example[name])}`] : [],
  );
  const confirmation = / delete\b/.test(path) ? ['--yes'] : [];
  return [path, ...args.map(({ name }) => textOf(example[name])), ...flags, ...confirmation].join(' ');
}

/** Formats a value as a word of a shell. */
function textOf(value: unknown): string {
  const isList = Array.isArray(value) && value.every((item) => typeof item === 'string');
  const text = isList ? value.join(',') : typeof value === 'object' ? JSON.stringify(value) : String(value);
  // zsh expands a `*`, and finds no file.
  return /^[\w.,:/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
