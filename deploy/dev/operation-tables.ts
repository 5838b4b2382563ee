import { EVENT_TYPES } from '../../control-plane/core/webhooks/event-types.ts';
import { operations } from '../../control-plane/http/operations/index.ts';
import type { Operation } from '../../control-plane/http/operations/operation.ts';

/** Returns the types of events that webhooks send, with the operations after which they are sent. */
export function eventsTable(): string {
  const rows = Object.entries(EVENT_TYPES).map(([type, sentence]) => {
    const causes = (operations as readonly Operation[]).filter(({ event }) => event === type);
    return `| \`${type}\` | ${sentence} | ${causes.map(({ name }) => `\`${name}\``).join(' ')} |`;
  });
  return ['| type | when | after the operations |', '|---|---|---|', ...rows].join('\n');
}

/** Returns the operations that both interfaces have, by their names in each. */
export function namesTable(): string {
  const rows = (operations as readonly Operation[]).flatMap(({ name, onlyV2, v2 }) =>
    v2 ? [`| ${onlyV2 ? '–' : `\`${name}\``} | \`${v2.name ?? name}\` |`] : [],
  );
  return ['| v1 | v2 |', '|---|---|', ...rows].join('\n');
}
