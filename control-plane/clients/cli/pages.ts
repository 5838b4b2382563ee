import type { Client } from './client.ts';

const PAGE_MAX = 100;

export interface Page<T> {
  readonly items: readonly T[];
  /** Cursor of the next page; undefined on the last page. */
  readonly cursor: string | undefined;
  readonly total: number | undefined;
}

/** Yields the pages of a listing as they arrive, until `limit` items or the end. */
export async function* pages<T>(
  call: Client['call'],
  operation: string,
  input: { readonly cursor?: string | undefined },
  field: string,
  limit = Number.POSITIVE_INFINITY,
): AsyncGenerator<Page<T>> {
  let { cursor } = input;
  let remainder = limit;
  do {
    const query = { ...input, cursor, limit: Math.min(PAGE_MAX, remainder) };
    const page = await call<Record<string, unknown>>(operation, query);
    const items = page[field] as readonly T[];
    remainder -= items.length;
    cursor = page['cursor'] as string | undefined;
    yield { items, cursor, total: page['total'] as number | undefined };
  } while (cursor !== undefined && remainder > 0);
}

/** Returns up to `limit` items of a listing, with the cursor for more. */
export async function collect<T>(
  client: Client,
  operation: string,
  input: { readonly cursor?: string | undefined },
  field: string,
  limit: number,
): Promise<Page<T>> {
  const items: T[] = [];
  let last: Page<T> | undefined;
  const call: Client['call'] = (...request) => client.call(...request);
  for await (const page of pages<T>(call, operation, input, field, limit)) {
    items.push(...page.items);
    last = page;
  }
  return { items, cursor: last?.cursor, total: last?.total };
}
