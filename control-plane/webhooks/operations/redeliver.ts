import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { EndpointId, endpointIdExample, endpointNotFound } from './endpoint.ts';

export const redeliver = operation({
  name: 'webhooks.redeliver',
  summary: 'Deliver an event once more',
  description:
    'Queues it behind the events that wait, with its `webhook-id`. It may come after later events of the same key.',
  permissions: ['root.*.update_webhook'],
  request: Fields({
    endpointId: EndpointId,
    deliveryId: Type.String({
      pattern: '^[ad][1-9][0-9]{0,14}-[0-9]{1,15}$',
      description: 'From listDeliveries.',
    }),
  }),
  response: Type.Object({}),
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { endpointId: endpointIdExample, deliveryId: 'd1790000000000-0' },
  async handle(call, { deliveries, endpoints }) {
    const { endpointId, deliveryId } = call.request;
    if (!(await endpoints.get(endpointId))) throw endpointNotFound(endpointId);
    const result = await deliveries.repeat(endpointId, deliveryId);
    if (result === 'NOT_FOUND')
      throw new ApiError('NOT_FOUND', `deliveryId: ${deliveryId} is not, or no longer, among the deliveries`);
    if (result === 'FULL') throw new ApiError('CONFLICT', 'the queue of the endpoint is full');
    call.note({}, { after: { deliveryId } });
    return {};
  },
});
