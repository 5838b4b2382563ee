import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import type { Command } from 'commander';
import { foreignDigests } from '#shared/rules/foreign-digests.ts';
import { parseExactly } from '#shared/rules/json.ts';
import {
  canBeSecret,
  hashSecret,
  isWellFormed,
  SECRET_LENGTH_MAX,
  startOf,
} from '#shared/rules/key-format.ts';
import { callPatiently } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt } from '../from-operations.ts';
import { apiIdOf } from '../key-reference.ts';
import { type InputLine, LINE_BYTES_MAX, readLines } from '../read-lines.ts';
import type { Session } from '../session.ts';
import { count } from '../terminal/output.ts';
import { Progress } from '../terminal/progress.ts';
import { Checkpoint, fileError, stopOnInterrupt } from './checkpoint.ts';

const KEYS_PER_CALL = 500;
/** Below the server's limit of 1 MiB per call. */
const BYTES_PER_CALL = 900_000;
const CALLS_AT_ONCE = 4;
/** Bytes of the file before the resumption point that must be unchanged. */
const DIGEST_BYTES = 4096;

type Result = { result: 'created' | 'exists' } | { result: 'refused'; code: string; message: string };

/** Progress of an import. */
interface ImportProgress {
  /** The last line that is done, and the offset of the next. */
  readonly number: number;
  readonly end: number;
  /** SHA-256 of the DIGEST_BYTES before `end`. */
  readonly mark: string;
  readonly counts: { created: number; exists: number; refused: number; foreign: number };
}

interface Batch {
  readonly last: InputLine;
  readonly keys: readonly Candidate[];
  readonly refusals: readonly Refusal[];
}

/** Adds `keyfence keys import`. */
export function importCommand(program: Command, session: Session): void {
  const help = 'import keys that were made elsewhere, from NDJSON; - is standard input';
  commandAt(program, 'keys import <apiId> <file>', help, ['keys import shop keys.ndjson'])
    .option(
      '--progress-file <file>',
      'file for the progress; default: the name of the imported file with .progress appended',
    )
    .action((apiId: string, file: string, { progressFile }) =>
      importKeys(session, apiId, file, progressFile),
    );
}

/**
 * Runs `keyfence keys import`: sends the hashes of the keys in a file, 500 per call, and continues after an
 * interruption. Every line up to the checkpoint is done; later lines that were sent are sent again, and their
 * keys exist by then. Standard input cannot be read twice, so it has no checkpoint.
 */
async function importKeys(session: Session, api: string, file: string, progressFile?: string) {
  const source = file === '-' ? undefined : await openFile(file);
  const client = await session.controlPlane();
  const apiId = await apiIdOf(client, api);
  const checkpoint =
    source &&
    new Checkpoint<ImportProgress>(progressFile ?? `${file}.progress`, ['import', apiId, client.base.href]);
  const size = (await source?.stat())?.size;
  const start = await whereToGoOn(session, source, checkpoint);
  const { counts } = start;
  let { number, end } = start;
  const stop = stopOnInterrupt();
  const progress = new Progress(session.json);
  const send = async (keys: readonly Candidate[]): Promise<Result[]> => {
    const input = { apiId, keys: keys.map(({ body }) => body) };
    if (keys.length === 0) return [];
    return (await callPatiently<{ results: Result[] }>(client, 'keys.importKeys', input, stop, progress.say))
      .results;
  };
  try {
    const chunks = source?.createReadStream({ start: end, autoClose: false }) ?? process.stdin;
    for await (const round of rounds(readLines(chunks, start))) {
      const outcomes = await Promise.all(round.map(({ keys }) => send(keys)));
      for (const [i, batch] of round.entries()) {
        const refusals = tally(counts, batch, outcomes[i] ?? []);
        if (refusals.length > 0) progress.clear();
        for (const refusal of refusals)
          session.report(refusal, `line ${refusal.line}: ${refusal.message} (${refusal.code})`);
        ({ number, end } = batch.last);
      }
      if (source) checkpoint?.write({ number, end, mark: await digestBefore(source, end), counts });
      progress.show(size && end / size, number - start.number, `line ${count(number)}`);
      if (stop.aborted)
        throw new CliError('INTERRUPTED', `stopped after line ${number}; run the command again to continue`);
    }
  } finally {
    progress.clear();
    await source?.close();
  }
  checkpoint?.remove();
  const { created, exists, refused, foreign } = counts;
  const summary = `${count(created)} created, ${count(exists)} already there, ${count(refused)} refused`;
  session.print({ lines: number, created, exists, refused }, () => `${count(number)} lines: ${summary}`);
  if (foreign > 0)
    session.note(
      'Some keys have a foreign format: only verifiers with FOREIGN_KEYS=true accept them. If they were imported by other digests than sha256, FOREIGN_DIGESTS must name these.',
    );
  if (refused > 0) session.end('DATA');
}

/** Opens a regular file for reading. Rejects with USAGE if that fails. */
export async function openFile(file: string): Promise<FileHandle> {
  const source = await open(file, 'r').catch((error: unknown) => {
    throw fileError(file, error);
  });
  if ((await source.stat()).isFile()) return source;
  await source.close();
  throw new CliError('USAGE', `${file} is not a regular file; - reads standard input`);
}

async function whereToGoOn(
  session: Session,
  source: FileHandle | undefined,
  checkpoint: Checkpoint<ImportProgress> | undefined,
): Promise<ImportProgress> {
  const fresh = { number: 0, end: 0, mark: '', counts: { created: 0, exists: 0, refused: 0, foreign: 0 } };
  const earlier = checkpoint?.read();
  if (!source || !earlier) return fresh;
  if ((await digestBefore(source, earlier.end)) !== earlier.mark) {
    session.note('This is not the file of the interrupted run: starting from the beginning.');
    return fresh;
  }
  session.note(`Continuing after line ${count(earlier.number)}.`);
  return earlier;
}

async function digestBefore(source: FileHandle, end: number): Promise<string> {
  const start = Math.max(0, end - DIGEST_BYTES);
  const { buffer, bytesRead } = await source.read(Buffer.alloc(end - start), 0, end - start, start);
  return createHash('sha256').update(buffer.subarray(0, bytesRead)).digest('hex');
}

/**
 * Groups lines into batches that fit into one call, CALLS_AT_ONCE batches per round; they cover all lines
 * without a gap.
 */
async function* rounds(lines: AsyncIterable<InputLine>): AsyncGenerator<Batch[]> {
  let round: Batch[] = [];
  let keys: Candidate[] = [];
  let refusals: Refusal[] = [];
  let bytes = 0;
  let last: InputLine | undefined;
  const close = () => {
    if (last) round.push({ last, keys, refusals });
    keys = [];
    refusals = [];
    bytes = 0;
  };
  for await (const line of lines) {
    const read = readCandidate(line);
    const length = read && 'body' in read ? Buffer.byteLength(JSON.stringify(read.body)) + 1 : 0;
    if (keys.length + refusals.length === KEYS_PER_CALL || bytes + length > BYTES_PER_CALL) close();
    if (round.length === CALLS_AT_ONCE) {
      yield round;
      round = [];
    }
    bytes += length;
    last = line;
    if (read) 'body' in read ? keys.push(read) : refusals.push(read);
  }
  close();
  if (round.length > 0) yield round;
}

/** Counts the outcomes of a batch. @returns its refusals, by line */
function tally(
  counts: ImportProgress['counts'],
  { keys, refusals }: Batch,
  results: readonly Result[],
): Refusal[] {
  const list = [...refusals];
  for (const [i, { line, foreign }] of keys.entries()) {
    const result = results[i];
    if (!result) throw new CliError('BUG', 'the control plane answered for fewer keys than it was sent');
    if (result.result === 'refused') list.push({ line, code: result.code, message: result.message });
    else counts[result.result] += 1;
    if (result.result === 'created' && foreign) counts.foreign += 1;
  }
  counts.refused += list.length;
  return list.sort((a, b) => a.line - b.line);
}

/** A key to be sent, and its line. */
interface Candidate {
  readonly line: number;
  readonly foreign: boolean;
  readonly body: object;
}

/** The reason why a line was refused. Of the line it contains only names of fields. */
interface Refusal {
  readonly line: number;
  readonly code: string;
  readonly message: string;
}

const digestKinds = ['sha256', ...foreignDigests];

/**
 * Parses one line of an import: either `{"key"}`, which is hashed here and sent nowhere, or `{"sha256"}` or another
 * digest, with further fields, which the server validates.
 * @returns undefined for an empty line
 */
export function readCandidate({ number, text }: InputLine): Candidate | Refusal | undefined {
  const refuse = (message: string): Refusal => ({ line: number, code: 'BAD_REQUEST', message });
  if (text === undefined) return refuse(`longer than ${LINE_BYTES_MAX} bytes, or not UTF-8`);
  const json = text.replace(/^\ufeff/, '').trim();
  if (json === '') return undefined;
  const fields = parseObject(json);
  if (fields === 'rounded') return refuse('has a whole number of more than 53 bits; write it as a string');
  if (!fields) return refuse('not a JSON object');
  const { key, ...rest } = fields;
  const digest = digestKinds.find((kind) => fields[kind] !== undefined);
  if (key === undefined && digest === undefined)
    return refuse(`key or a digest (${digestKinds.join(', ')}): required`);
  if (key === undefined) return { line: number, foreign: fields['foreign'] !== false, body: rest };
  if (digest !== undefined) return refuse(`key and ${digest}: give only one of them`);
  if (typeof key !== 'string' || !canBeSecret(key))
    return refuse(`key: must be 1 to ${SECRET_LENGTH_MAX} printable ASCII characters`);
  const foreign = !isWellFormed(key);
  // Which part of a foreign key may be shown is unknown: it has a start only if the line gives one.
  const start = foreign ? {} : { start: startOf(key) };
  return { line: number, foreign, body: { ...start, ...rest, foreign, sha256: hashSecret(key) } };
}

function parseObject(json: string): Record<string, unknown> | 'rounded' | undefined {
  let isRounded = false;
  try {
    const value = parseExactly(json, () => {
      isRounded = true;
    });
    if (isRounded) return 'rounded';
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined; // reported by the caller; the parser's message would repeat the line
  }
}
