import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { EndpointId, endpointIdExample, endpointNotFound } from './endpoint.ts';

export const testEndpoint = operation({
  name: 'webhooks.test',
  summary: 'Send a test event to a webhook endpoint',
  description:
    'Sends `webhook.test` at once, also to a disabled endpoint, and says what came back. It is not repeated.',
  permissions: ['root.*.update_webhook'],
  request: Fields({ endpointId: EndpointId }),
  response: Type.Object({
    delivered: Type.Boolean({ description: 'true: the response had a status of 200 to 299.' }),
    eventId: Type.String({ description: 'The `webhook-id`.' }),
    durationMs: Type.Integer({ minimum: 0 }),
    status: Type.Optional(Type.Integer({ description: 'Status of the response; absent = there was none.' })),
    response: Type.Optional(Type.String({ description: 'The first 1,000 characters of the response.' })),
    error: Type.Optional(Type.String({ description: 'Why there was no response.' })),
  }),
  errors: ['NOT_FOUND'],
  example: { endpointId: endpointIdExample },
  async handle(call, { testEndpoint: test }) {
    const { endpointId } = call.request;
    const result = await test(endpointId);
    if (!result) throw endpointNotFound(endpointId);
    const { delivered, status } = result;
    call.note({}, { after: { delivered, ...(status === undefined ? {} : { status }) } });
    return result;
  },
});
