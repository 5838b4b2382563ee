import {
  EVENT_TYPES,
  type EventType,
  eventTypes,
  type OperationEvent,
  typesIn,
} from '../../core/schema/event-types.ts';
import { eventSchema } from './events-of.ts';

const header = (name: string, description: string) => ({
  ...{ in: 'header', name, description, required: true },
  schema: { type: 'string' },
});
const PARAMETERS = [
  header('webhook-id', 'Id of the event, the same in each attempt: an event may come more than once.'),
  header('webhook-timestamp', 'Unix seconds of the attempt. Refuse what is much older than your clock.'),
  header('webhook-signature', '`v1,` and an HMAC-SHA-256 (Standard Webhooks); one for each signing secret.'),
];
const RESPONSES = {
  '2XX': { description: 'The event arrived.' },
  410: { description: 'The endpoint wants no more events, and is disabled.' },
  default: { description: 'The event is sent again, for up to three days.' },
};

const nameOf = (type: EventType) =>
  `${type
    .split(/[._]/)
    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1))
    .join('')}Event`;

/** Returns the schemas of all events by name, for `components`. */
export const eventSchemas = (): Record<string, object> =>
  Object.fromEntries(eventTypes.map((type) => [nameOf(type), eventSchema(type)]));

/** Returns the section `webhooks` of the OpenAPI document: an entry for each type of event. */
export function webhookSection(
  operations: readonly { readonly name: string; readonly event?: OperationEvent }[],
): Record<string, object> {
  const entries = eventTypes.map((type) => {
    const causes = operations
      .filter(({ event }) => typesIn(event).includes(type))
      .map(({ name }) => `\`${name}\``);
    const cause = causes.length === 0 ? '' : ` Sent after ${causes.join(', ')}.`;
    const post = {
      ...{ tags: ['events'], operationId: `event.${type}`, summary: type },
      ...{ description: `${EVENT_TYPES[type]}${cause}`, security: [], parameters: PARAMETERS },
      requestBody: {
        required: true,
        content: { 'application/json': { schema: { $ref: `#/components/schemas/${nameOf(type)}` } } },
      },
      responses: RESPONSES,
    };
    return [type, { post }];
  });
  return Object.fromEntries(entries);
}
