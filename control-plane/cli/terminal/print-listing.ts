import type { Command } from 'commander';
import { whole } from '../arguments.ts';
import { collect } from '../pages.ts';
import type { Session } from '../session.ts';
import { count, printable, table } from './output.ts';

/** Adds the options of a listing. */
export const addPageOptions = (command: Command, items: string): Command =>
  command
    .option(`--limit <${items}>`, 'maximum number', whole(1, 1_000_000), 100)
    .option('--cursor <cursor>', 'continue an earlier listing');

/**
 * Prints up to `limit` items of a listing as a table of `columns`, and how to continue.
 * @param field the response's field with the items
 */
export async function printListing<T>(
  session: Session,
  operation: string,
  field: string,
  { limit, ...query }: { limit: number; cursor?: string },
  columns: Parameters<typeof table<T>>[1],
): Promise<void> {
  const { items, total, cursor } = await collect<T>(
    await session.controlPlane(),
    operation,
    query,
    field,
    limit,
  );
  session.print({ [field]: items, total, ...(cursor ? { cursor } : {}) }, () => table(items, columns));
  if (total !== undefined) session.note(`${count(items.length)} shown; the API has ${count(total)}.`);
  if (cursor) session.note(`More: --cursor ${printable(cursor)}`);
}
