import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { auditedEndpoint, EndpointId, endpointIdExample, endpointNotFound } from './endpoint.ts';

export const deleteEndpoint = operation({
  name: 'webhooks.deleteEndpoint',
  summary: 'Delete a webhook endpoint',
  description: 'The events that wait for it, and its deliveries, are deleted too.',
  permissions: ['root.*.delete_webhook'],
  request: Fields({ endpointId: EndpointId }),
  response: Type.Object({}),
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { endpointId: endpointIdExample },
  neverShed: true,
  async handle(call, { endpoints }) {
    const { endpointId } = call.request;
    const endpoint = await endpoints.delete(endpointId);
    if (!endpoint) throw endpointNotFound(endpointId);
    call.note({}, { before: auditedEndpoint({ url: endpoint.url, events: endpoint.events }) });
    return {};
  },
});
