import { USAGE_COLUMNS, type UsageField } from '#shared/contract/usage.ts';
import type { Session } from '../session.ts';
import { count, table, time } from '../terminal/output.ts';

/** Verdicts of an hour or a day, or with one tag or all other tags. */
interface Row extends Readonly<Record<UsageField, number>> {
  readonly time?: number;
  readonly tag?: string;
}

/** Prints how often something was verified, leaving out periods without verdicts. */
export async function printUsage(session: Session, operation: string, query: object): Promise<void> {
  const response = await session.call<{ verifications: Row[] }>(operation, query);
  const byTag = response.verifications.some(({ time: at }) => at === undefined);
  session.print(response, () =>
    table(
      response.verifications.filter((row) => USAGE_COLUMNS.some(({ field }) => row[field] > 0)),
      {
        ...(byTag ? { tag: ({ tag }: Row) => tag ?? '(others)' } : { from: ({ time: at }: Row) => time(at) }),
        ...Object.fromEntries(
          USAGE_COLUMNS.map(({ field }) => [
            field === 'success' ? 'accepted' : field,
            (row: Row) => count(row[field]),
          ]),
        ),
      },
    ),
  );
}
