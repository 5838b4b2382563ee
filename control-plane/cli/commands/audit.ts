import { type Command, Option } from 'commander';
import type { ListedEvent } from '../../core/audit-event.ts';
import { personName } from '../../core/person.ts';
import { pastMoment } from '../arguments.ts';
import type { Session } from '../session.ts';
import { time } from '../terminal/output.ts';
import { addPageOptions, printListing } from '../terminal/print-listing.ts';

/** Adds `keyfence audit`. */
export function auditCommand(program: Command, session: Session): void {
  const audit = program
    .command('audit')
    .description('who did what, the latest first')
    .option('--refused', 'refused calls instead of changes')
    .addOption(
      new Option(
        '--since <time>',
        'leave out older events: yesterday, 2h, 7d, ISO 8601 or Unix ms',
      ).argParser(pastMoment),
    )
    .addOption(
      new Option('--until <time>', 'leave out later events; today leaves out those of today').argParser(
        pastMoment,
      ),
    )
    .option('--operation <operation>', 'only this operation, such as keys.updateKey')
    .option('--api <apiId>', 'only calls on this API')
    .option('--key <keyId>', 'only calls on this key')
    .option('--by <rootKeyId>', 'only calls by this root key, or by the person with this id');
  addPageOptions(audit, 'events').action(({ refused, api, key, by, ...rest }) => {
    const query = { ...rest, apiId: api, keyId: key, rootKeyId: by, ...(refused ? { refused } : {}) };
    return printListing<ListedEvent>(session, 'audit.listEvents', 'events', query, {
      time: (event) => time(event.time),
      by: ({ by }) => (by.person ? personName(by.person) : by.rootKeyId),
      from: ({ by }) => by.address,
      operation: ({ operation }) => operation,
      outcome: ({ outcome }) => outcome,
      on: ({ on }) => on.keyId ?? on.rootKeyId ?? on.roleId ?? on.identityId ?? on.apiId,
      change: ({ before, after }) =>
        [before, after]
          .flatMap((state) => (state === undefined ? [] : [JSON.stringify(state)]))
          .join(' → ') || undefined,
    });
  });
}
