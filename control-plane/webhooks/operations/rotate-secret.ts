import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Time } from '../../serve/schemas/field-schemas.ts';
import { SigningSecret } from './create-endpoint.ts';
import { EndpointId, endpointIdExample, endpointNotFound } from './endpoint.ts';

export const rotateSecret = operation({
  name: 'webhooks.rotateSecret',
  summary: 'Replace the signing secret of a webhook endpoint',
  description:
    'For a day events are signed with both secrets, so that the consumer can change its own meanwhile.',
  permissions: ['root.*.update_webhook'],
  request: Fields({ endpointId: EndpointId }),
  response: Type.Object({
    secret: SigningSecret,
    formerSecretEndsAt: Time('When the former secret signs no more'),
  }),
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { endpointId: endpointIdExample },
  async handle(call, { endpoints }) {
    const { endpointId } = call.request;
    const rotated = await endpoints.rotate(endpointId);
    if (!rotated) throw endpointNotFound(endpointId);
    const { formerSecretEndsAt } = rotated;
    call.note({}, { after: { formerSecretEndsAt } });
    return rotated;
  },
});
