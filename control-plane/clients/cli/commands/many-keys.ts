import { type Command, Option } from 'commander';
import type { ChangeStatus, Propagation } from '#shared/protocol/writer/writer.ts';
import type { Key } from '../answers.ts';
import { callPatiently } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt, waitMsOf } from '../from-operations.ts';
import { apiIdOf, keyIdOf } from '../key-reference.ts';
import { readLines } from '../read-lines.ts';
import type { Session } from '../session.ts';
import { count } from '../terminal/output.ts';
import { afterTokens, confirm, describe, printChange, waitOption } from '../terminal/print-change.ts';
import { Progress } from '../terminal/progress.ts';
import { givenSecret } from '../terminal/prompt.ts';
import { stopOnInterrupt } from './checkpoint.ts';
import { openFile } from './import.ts';

const KEYS_PER_CALL = 1000;
/** Number of calls at once if the keys are named by their ids. The pages of an identity follow each other. */
const CALLS_AT_ONCE = 4;

/** The options that choose keys. */
interface Choice {
  readonly secret?: true;
  readonly api?: string;
  readonly owner?: string;
  readonly file?: string;
}

/** A change of a key or of many: the operation, its fields besides those that choose keys, and its past tense. */
interface Change {
  readonly operation: 'keys.updateKey' | 'keys.deleteKey';
  readonly fields: object;
  readonly pastTense: string;
}

type Result =
  | { result: 'updated' | 'deleted'; keyId: string; sequence: number }
  | { result: 'refused'; keyId: string; code: string; message: string };

interface ManyResponse {
  readonly results: readonly Result[];
  readonly propagation?: Propagation;
  readonly cursor?: string;
}

const ID = 'key_0mzc9k4q8r2wfXa1Bc2d';
const EVERYWHERE = 'when this returns, no verifier accepts them any more';
const update = (enabled: boolean, pastTense: string): Change => ({
  ...{ operation: 'keys.updateKey', fields: { enabled }, pastTense },
});
/** The commands by their verbs: what each does, its examples and its change. */
const COMMANDS: Readonly<Record<string, readonly [help: string, examples: string[], change: Change]>> = {
  enable: [
    'accept a key or many keys again',
    [`keys enable ${ID}`, 'keys enable --api shop --owner ada'],
    update(true, 'enabled'),
  ],
  disable: [
    `refuse a key or many keys; ${EVERYWHERE}`,
    [`keys disable ${ID}`, 'keys disable --api shop --owner ada --wait 10'],
    update(false, 'disabled'),
  ],
  delete: [
    `delete a key or many keys; ${EVERYWHERE}`,
    [`keys delete ${ID} --yes`],
    { operation: 'keys.deleteKey', fields: {}, pastTense: 'deleted' },
  ],
};

/** Adds the commands of `keyfence keys …` that change a key or many keys. */
export function manyKeysCommands(program: Command, session: Session): void {
  for (const [verb, [help, examples, change]] of Object.entries(COMMANDS)) {
    const command = commandAt(program, `keys ${verb} [key]`, help, examples)
      .option('--api <apiId>', 'API of the keys, with --owner or --file')
      .addOption(
        new Option('--owner <id>', 'all keys of this identity, by its external id').conflicts('file'),
      )
      .option('--file <file>', 'keys whose ids are in this file, one per line; - is standard input')
      .option('--secret', 'the key whose secret is in KEYFENCE_KEY, on standard input or typed at a prompt');
    if (verb === 'delete') command.option('--yes', 'do not ask');
    command.addOption(waitOption()).action(async (key: string | undefined, { yes, wait, ...selection }) => {
      const isOfMany = choiceOf(key, selection) === 'many';
      const { api, owner, file, secret } = selection;
      const keyId = secret
        ? (await session.call<Key>('keys.whoami', { key: await givenSecret(session.config.KEYFENCE_KEY) }))
            .keyId
        : key && (await keyIdOf(session, key));
      const keys = owner === undefined ? `the keys in ${file}` : `all keys of ${owner} in ${api}`;
      if (verb === 'delete') await confirm(session, `delete ${isOfMany ? keys : keyId}`, yes === true);
      if (isOfMany) return changeMany(session, selection, change, waitMsOf(wait));
      const { operation, fields, pastTense } = change;
      const input = { keyId, ...fields, ...waitMsOf(wait) };
      const answer = await session.call<{ propagation: ChangeStatus }>(operation, input);
      const propagation = await afterTokens(session, input, answer.propagation);
      printChange(session, `${pastTense} ${keyId}`, { ...{ keyId }, propagation });
    });
  }
}

/** Reads the choice of one key, or of an API with an identity or a file. Throws USAGE for any other. */
function choiceOf(key: string | undefined, { api, owner, file, secret }: Choice): 'one' | 'many' {
  const chooses = owner !== undefined || file !== undefined;
  const named = [key, secret].filter((each) => each !== undefined).length;
  if (named === 1 && !chooses && api === undefined) return 'one';
  if (named === 0 && chooses && api !== undefined) return 'many';
  throw new CliError('USAGE', 'give a key, --secret, or --api with --owner or --file');
}

/**
 * Changes many keys, 1,000 per call; each call returns when its changes are complete everywhere. Repetition
 * is harmless: after a failure or an interruption, the same command finishes the work.
 */
async function changeMany(
  session: Session,
  { api = '', owner, file }: Choice,
  change: Change,
  wait: { waitMs?: number },
): Promise<void> {
  const client = await session.controlPlane();
  const apiId = await apiIdOf(client, api);
  const { ids, wrong } = file === undefined ? { ids: undefined, wrong: [] } : await readIds(file);
  const stop = stopOnInterrupt();
  const progress = new Progress(session.json);
  const tally = new Tally(session, progress, apiId, change.pastTense, ids?.length);
  for (const line of wrong) tally.refuse({ keyId: '', code: 'BAD_REQUEST', message: line });
  const input = { apiId, ...change.fields, ...wait };
  const call = async (selection: object): Promise<string | undefined> => {
    const all = { ...input, ...selection };
    const operation = `${change.operation}s`;
    const response = await callPatiently<ManyResponse>(client, operation, all, stop, progress.say);
    tally.add(response);
    return response.cursor;
  };
  try {
    if (ids) await inParts(ids, stop, (keyIds) => call({ keyIds }));
    else {
      let cursor: string | undefined;
      do cursor = await call({ externalId: owner, cursor });
      while (cursor !== undefined && !stop.aborted);
      if (cursor !== undefined) throw interruption();
    }
  } catch (error) {
    progress.clear();
    session.note(`${tally.text} so far; run the command again to finish.`);
    throw error;
  }
  progress.clear();
  await tally.print(wait);
}

const interruption = () => new CliError('INTERRUPTED', 'stopped; run the command again to continue');

/** Sends the ids, several calls at a time, until all are done or `stop` aborts. */
async function inParts(
  ids: readonly string[],
  stop: AbortSignal,
  send: (keyIds: readonly string[]) => Promise<unknown>,
): Promise<void> {
  let at = 0;
  const caller = async () => {
    while (at < ids.length && !stop.aborted) {
      const part = ids.slice(at, at + KEYS_PER_CALL);
      at += part.length;
      await send(part);
    }
  };
  const ends = await Promise.allSettled(Array.from({ length: CALLS_AT_ONCE }, caller));
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
  if (at < ids.length) throw interruption();
}

/**
 * Reads the ids of a file in order, without duplicates and empty lines, and says which lines are no ids: a leaked key is
 * disabled in spite of a typing error beside it. Rejects with USAGE if there is no id.
 */
async function readIds(
  file: string,
): Promise<{ readonly ids: readonly string[]; readonly wrong: readonly string[] }> {
  const source = file === '-' ? undefined : await openFile(file);
  const ids = new Set<string>();
  const wrong: string[] = [];
  try {
    const chunks = source?.createReadStream({ autoClose: false }) ?? process.stdin;
    for await (const { number, text } of readLines(chunks, { number: 0, end: 0 })) {
      const id = text?.trim() ?? '-';
      if (id === '') continue;
      if (/^[A-Za-z0-9_-]{2,80}$/.test(id)) ids.add(id);
      else wrong.push(`line ${number} of ${file} is not the id of a key`);
    }
  } finally {
    await source?.close();
  }
  if (ids.size === 0) throw new CliError('USAGE', `${file} has no ids of keys; nothing was done`);
  return { ids: [...ids], wrong };
}

/** Counts outcomes, reports each refused key, and prints a summary. */
class Tally {
  readonly #session: Session;
  readonly #progress: Progress;
  readonly #apiId: string;
  readonly #pastTense: string;
  readonly #total: number | undefined;
  #changes = 0;
  #refusals = 0;
  #last: Propagation | undefined;
  #pending: Propagation | undefined;
  /** The key of the pending change. */
  #pendingId: string | undefined;

  /** @param total the expected number of keys, if known */
  constructor(
    session: Session,
    progress: Progress,
    apiId: string,
    pastTense: string,
    total: number | undefined,
  ) {
    this.#session = session;
    this.#progress = progress;
    this.#apiId = apiId;
    this.#pastTense = pastTense;
    this.#total = total;
  }

  add({ results, propagation }: ManyResponse): void {
    for (const each of results) {
      if (each.result !== 'refused') this.#changes++;
      else this.refuse(each);
    }
    if (propagation && propagation.sequence > (this.#last?.sequence ?? 0)) this.#last = propagation;
    if (propagation?.state === 'pending') {
      this.#pending = propagation;
      const isLast = (each: Result) => each.result !== 'refused' && each.sequence === propagation.sequence;
      this.#pendingId = results.find(isLast)?.keyId;
    }
    const total = this.#changes + this.#refusals;
    this.#progress.show(
      this.#total === undefined ? undefined : total / this.#total,
      total,
      `${count(total)} keys`,
    );
  }

  refuse({ keyId, code, message }: Omit<Extract<Result, { result: 'refused' }>, 'result'>): void {
    this.#refusals++;
    this.#progress.clear();
    const where = code === 'NOT_FOUND' ? ` in API ${this.#apiId}` : '';
    this.#session.report({ keyId, code, message }, `${message}${where}`);
  }

  get text(): string {
    return `${count(this.#changes)} ${this.#changes === 1 ? 'key' : 'keys'} ${this.#pastTense}`;
  }

  async print(wait: { waitMs?: number }): Promise<void> {
    const session = this.#session;
    const about = { keyId: this.#pendingId, ...wait };
    const propagation = this.#pending ? await afterTokens(session, about, this.#pending) : this.#last;
    const refusalsText = this.#refusals > 0 ? `, ${count(this.#refusals)} refused` : '';
    const state = propagation ? `: ${describe(propagation)}` : '.';
    const summary = { [this.#pastTense]: this.#changes, refused: this.#refusals };
    session.print(
      { ...summary, ...(propagation ? { propagation } : {}) },
      () => `${this.text}${refusalsText}${state}`,
    );
    if (this.#refusals > 0) session.end('DATA');
    if (propagation?.state === 'pending') session.end('PENDING');
  }
}
