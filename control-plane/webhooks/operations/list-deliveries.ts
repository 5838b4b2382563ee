import { Type } from 'typebox';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, Limit, PageCursor } from '../../serve/request-parts.ts';
import { Cursor, Id, List, Time } from '../../serve/schemas/field-schemas.ts';
import { EndpointId, endpointIdExample, endpointNotFound } from './endpoint.ts';

const DeliveryView = Type.Object({
  deliveryId: Id('the attempt'),
  eventId: Type.String({ description: 'The `webhook-id`, the same in all attempts.' }),
  type: Type.String(),
  time: Time('When the attempt ended'),
  attempt: Type.Integer({ minimum: 1, description: 'Number of the attempt.' }),
  result: Type.Union([Type.Literal('delivered'), Type.Literal('failed'), Type.Literal('dead')], {
    description: 'dead: the event was given up.',
  }),
  durationMs: Type.Integer({ minimum: 0 }),
  status: Type.Optional(Type.Integer({ description: 'Status of the response; absent = there was none.' })),
  response: Type.Optional(Type.String({ description: 'The first 1,000 characters of the response.' })),
  error: Type.Optional(Type.String({ description: 'Why there was no response.' })),
  nextAt: Type.Optional(Time('When the next attempt is due')),
  event: Type.Object({}, { additionalProperties: true, description: 'The body of the request.' }),
});

/** The attempt after which the page begins. */
const PLACE = /^([ad][1-9][0-9]{0,14}-[0-9]{1,15})$/;

export const listDeliveries = operation({
  name: 'webhooks.listDeliveries',
  summary: 'List attempts to deliver events to an endpoint',
  description:
    'Shows the latest 1,000 attempts, or the latest 10,000 events given up; the latest come first.',
  permissions: ['root.*.read_webhook'],
  request: Fields({
    endpointId: EndpointId,
    dead: Type.Union([Type.Literal('true'), Type.Literal('false')], {
      default: 'false',
      description: 'true: only events that were given up.',
    }),
    limit: Limit('Attempts'),
    cursor: PageCursor({ minLength: 1, maxLength: 64 }),
  }),
  response: Type.Object({ deliveries: List(DeliveryView), cursor: Cursor }),
  errors: ['NOT_FOUND'],
  example: { endpointId: endpointIdExample, limit: '25' },
  async handle({ request: { endpointId, dead, limit, cursor } }, { deliveries: store, endpoints }) {
    if (!(await endpoints.get(endpointId))) throw endpointNotFound(endpointId);
    const kind = dead === 'true' ? 'dead' : 'attempts';
    const listing = ['listDeliveries', endpointId, kind] as const;
    const [after] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { deliveries, next } = await store.list(endpointId, kind, Number(limit), after);
    return { deliveries, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});
