import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import {
  auditedEndpoint,
  checkUrl,
  ENDPOINT_FIELDS,
  EndpointId,
  EndpointView,
  endpointIdExample,
  endpointNotFound,
  withState,
} from './endpoint.ts';

export const updateEndpoint = operation({
  name: 'webhooks.updateEndpoint',
  summary: 'Change a webhook endpoint, or disable it',
  description:
    'Absent fields stay unchanged; null clears a field. A disabled endpoint gets nothing, not even later. What was queued before waits until it is enabled. Whoever changes the URL or the events decides who learns what the audit log has.',
  permissions: ['root.*.update_webhook'],
  request: Fields({
    endpointId: EndpointId,
    url: Type.Optional(ENDPOINT_FIELDS.url),
    name: Type.Optional(Type.Union([ENDPOINT_FIELDS.name, Type.Null()])),
    events: Type.Optional(ENDPOINT_FIELDS.events),
    apiIds: Type.Optional(Type.Union([ENDPOINT_FIELDS.apiIds, Type.Null()])),
    enabled: Type.Optional(Type.Boolean()),
  }),
  response: EndpointView,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { endpointId: endpointIdExample, enabled: false },
  neverShed: true,
  async handle(call, services) {
    const { endpointId, ...patch } = call.request;
    if (Object.keys(patch).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    if (patch.url !== undefined) checkUrl(patch.url, services);
    const changed = await services.endpoints.update(endpointId, patch);
    if (!changed) throw endpointNotFound(endpointId);
    const previous = Object.keys(patch).map((name) => [name, Object(changed.before)[name] ?? null]);
    call.note({}, { before: auditedEndpoint(Object.fromEntries(previous)), after: auditedEndpoint(patch) });
    return withState(changed.after, services);
  },
});
