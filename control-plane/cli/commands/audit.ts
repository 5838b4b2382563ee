import { type Command, Option } from 'commander';
import type { ListedEvent } from '../../core/audit-event.ts';
import { pastMoment, whole } from '../arguments.ts';
import { collect } from '../pages.ts';
import type { Session } from '../session.ts';
import { table, time } from '../terminal/output.ts';

/** `keyfence audit` */
export function auditCommand(program: Command, session: Session): void {
  program
    .command('audit')
    .description('who did what, the latest first')
    .option('--refused', 'what was refused, rather than what was done')
    .addOption(
      new Option('--since <time>', 'nothing older: Unix ms, ISO 8601, or -90m').argParser(pastMoment),
    )
    .option('--operation <operation>', 'only this one, such as keys.updateKey')
    .option('--api <apiId>', 'only what was done with this API')
    .option('--key <keyId>', 'only what was done with this key')
    .option('--by <rootKeyId>', 'only what this root key did')
    .option('--limit <events>', 'how many at most', whole(1, 1_000_000), 100)
    .option('--cursor <cursor>', 'go on after an earlier listing')
    .action(async ({ refused, api, key, by, limit, ...rest }) => {
      const query = { ...rest, apiId: api, keyId: key, rootKeyId: by, ...(refused ? { refused } : {}) };
      const found = await collect<ListedEvent>(
        await session.controlPlane(),
        'audit.listEvents',
        query,
        'events',
        limit,
      );
      const { items, cursor } = found;
      session.print({ events: items, ...(cursor ? { cursor } : {}) }, () =>
        table(items.map(row), ['time', 'by', 'from', 'operation', 'outcome', 'on', 'change']),
      );
      if (cursor) session.note(`More: --cursor ${cursor}`);
    });
}

function row({ time: at, by, operation, outcome, on, before, after }: ListedEvent) {
  const what = on.keyId ?? on.rootKeyId ?? on.apiId;
  const change = [before, after].filter((state) => state !== undefined).map((state) => JSON.stringify(state));
  return [time(at), by.rootKeyId, by.address, operation, outcome, what, change.join(' → ') || undefined];
}
