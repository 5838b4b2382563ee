import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { EndpointId, EndpointView, endpointIdExample, endpointNotFound, withState } from './endpoint.ts';

export const getEndpoint = operation({
  name: 'webhooks.getEndpoint',
  summary: 'Show a webhook endpoint and its queue',
  description: 'Shows everything except the signing secret.',
  permissions: ['root.*.read_webhook'],
  request: Fields({ endpointId: EndpointId }),
  response: EndpointView,
  errors: ['NOT_FOUND'],
  example: { endpointId: endpointIdExample },
  async handle({ request: { endpointId } }, services) {
    const endpoint = await services.endpoints.get(endpointId);
    if (!endpoint) throw endpointNotFound(endpointId);
    return withState(endpoint, services);
  },
});
