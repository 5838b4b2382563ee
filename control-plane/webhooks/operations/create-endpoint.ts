import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import {
  auditedEndpoint,
  checkUrl,
  ENDPOINT_FIELDS,
  EndpointView,
  endpointIdExample,
  withState,
} from './endpoint.ts';

/** A signing secret in responses. */
export const SigningSecret = Type.String({
  description: 'The secret that signs events (Standard Webhooks); shown only once.',
});

export const createEndpoint = operation({
  name: 'webhooks.createEndpoint',
  summary: 'Create a webhook endpoint',
  description:
    'From then on, events are posted to the URL, each at least once, and those of one key in their order. The endpoint learns what the audit log has, of all APIs.',
  permissions: ['root.*.create_webhook'],
  request: Fields({
    url: ENDPOINT_FIELDS.url,
    name: Type.Optional(ENDPOINT_FIELDS.name),
    events: Type.Optional(ENDPOINT_FIELDS.events),
    apiIds: Type.Optional(ENDPOINT_FIELDS.apiIds),
  }),
  response: Type.Object(
    { ...EndpointView.properties, secret: SigningSecret },
    {
      examples: [
        {
          ...{ endpointId: endpointIdExample, url: 'https://hooks.example.com/keyfence', events: ['key.*'] },
          ...{ enabled: true, createdAt: 1_790_000_000_000, state: 'active' },
          ...{ waiting: 0, failures: 0, dropped: 0, dead: 0 },
          secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=',
        },
      ],
    },
  ),
  errors: ['CONFLICT'],
  example: { url: 'https://hooks.example.com/keyfence', events: ['key.*'] },
  async handle(call, services) {
    const { url, events = ['*'], ...fields } = call.request;
    checkUrl(url, services);
    const { endpoint, secret } = await services.endpoints.create({ url, events, ...fields });
    const { endpointId } = endpoint;
    call.note({ endpointId }, { after: auditedEndpoint({ url, events, ...fields }) });
    return { ...(await withState(endpoint, services)), secret };
  },
});
