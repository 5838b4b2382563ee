import { EVENT_TYPES } from '../../control-plane/core/webhooks/event-types.ts';
import { operations } from '../../control-plane/http/operations/index.ts';
import type { Operation } from '../../control-plane/http/operations/operation.ts';
import { operationsV2 } from '../../control-plane/unkey-v2/index.ts';

/** Returns the types of events that webhooks send, with the operations after which they are sent. */
export function eventsTable(): string {
  const rows = Object.entries(EVENT_TYPES).map(([type, sentence]) => {
    const causes = (operations as readonly Operation[]).filter(({ event }) => event === type);
    return `| \`${type}\` | ${sentence} | ${causes.map(({ name }) => `\`${name}\``).join(' ')} |`;
  });
  return ['| type | when | after the operations |', '|---|---|---|', ...rows].join('\n');
}

/** Returns the operations of version 2 of the interface, by their names in both. */
export function namesTable(): string {
  const inV1: readonly Operation[] = operations;
  const rows = operationsV2.map(({ name, path = '' }) => {
    const isInV1 = inV1.some((operation) => operation.name === name);
    return `| ${isInV1 ? `\`${name}\`` : '–'} | \`${path.slice('/v2/'.length)}\` |`;
  });
  return ['| v1 | v2 |', '|---|---|', ...rows].join('\n');
}
