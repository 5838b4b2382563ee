import { once } from 'node:events';
import { type FileHandle, open } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Key } from '../answers.ts';
import { type Client, callPatiently } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt } from '../from-operations.ts';
import { apiIdOf } from '../key-reference.ts';
import { pages } from '../pages.ts';
import type { Session } from '../session.ts';
import { count, json } from '../terminal/output.ts';
import { Progress } from '../terminal/progress.ts';
import { Checkpoint, fileError, stopOnInterrupt } from './checkpoint.ts';

/** Progress of an export: the file is complete up to `bytes`. */
interface ExportProgress {
  readonly bytes: number;
  readonly keys: number;
  readonly cursor?: string;
}

/** Adds `keyfence keys export`. */
export function exportCommand(program: Command, session: Session): void {
  const help = 'write all keys of an API as NDJSON, without their secrets';
  commandAt(program, 'keys export <apiId>', help, ['keys export shop --output shop.ndjson'])
    .option('--output <file>', 'file to write; an interrupted export continues. Default: standard output')
    .action((apiId: string, { output }) => exportKeys(session, apiId, output));
}

/**
 * Runs `keyfence keys export`: writes every key of an API in order of creation, one JSON object per line,
 * page by page. An export into a file continues after an interruption, and contains each key once.
 */
async function exportKeys(session: Session, api: string, output?: string): Promise<void> {
  const client = await session.controlPlane();
  const apiId = await apiIdOf(client, api);
  const checkpoint =
    output === undefined
      ? undefined
      : new Checkpoint<ExportProgress>(`${output}.progress`, ['export', apiId, client.base.href]);
  const earlier = checkpoint?.read();
  if (earlier) session.note(`Continuing after ${count(earlier.keys)} keys.`);
  const file = output === undefined ? undefined : await openTarget(output, earlier?.bytes);
  if (!earlier) checkpoint?.write({ bytes: 0, keys: 0 });
  const stop = stopOnInterrupt();
  const progress = new Progress(session.json);
  let { bytes, keys } = earlier ?? { bytes: 0, keys: 0 };
  const before = keys;
  try {
    const call: Client['call'] = (operation, input = {}) =>
      callPatiently(client, operation, input, stop, progress.say);
    const query = { apiId, cursor: earlier?.cursor };
    for await (const { items, cursor, total } of pages<Key>(call, 'apis.listKeys', query, 'keys')) {
      const text = Buffer.from(items.map((key) => `${json(exportLine(key))}\n`).join(''));
      if (file) await file.write(text, 0, text.length, bytes);
      else if (!process.stdout.write(text)) await once(process.stdout, 'drain');
      bytes += text.length;
      keys += items.length;
      if (cursor) checkpoint?.write({ bytes, keys, cursor });
      progress.show(total ? Math.min(1, keys / total) : undefined, keys - before, `${count(keys)} keys`);
      if (stop.aborted && cursor) {
        const advice = file ? '; run the command again to continue' : '';
        throw new CliError('INTERRUPTED', `stopped after ${count(keys)} keys${advice}`);
      }
    }
  } finally {
    progress.clear();
    await file?.close();
  }
  checkpoint?.remove();
  if (file) session.print({ keys }, () => `${count(keys)} keys exported`);
}

/** A key as it is written: credits that several keys share appear once, with the latest of these keys. */
function exportLine(key: Key): object {
  if (key.rerolledTo === undefined || key.remaining === undefined) return key;
  const { refill: _refill, remainingHeld: _held, remainingLost: _lost, ...others } = key;
  return { ...others, remaining: 0 };
}

/** Opens the file, truncated to its complete part; a new file is readable only by its owner. */
async function openTarget(output: string, bytes: number | undefined): Promise<FileHandle> {
  try {
    const file = await open(output, bytes === undefined ? 'wx' : 'r+', 0o600);
    if (bytes !== undefined) await file.truncate(bytes);
    return file;
  } catch (error) {
    throw fileError(output, error);
  }
}
