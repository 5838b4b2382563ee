import { type Static, Type } from 'typebox';
import { API_ID } from '#shared/contract/api-id.ts';
import { ApiError } from '#shared/contract/errors.ts';
import { Name } from '../../serve/request-parts.ts';
import { Count } from '../../serve/response-parts.ts';
import { Id, List, Time } from '../../serve/schemas/field-schemas.ts';
import type { Services } from '../../services.ts';
import type { QueueState } from '../deliveries.ts';
import type { WebhookEndpoint } from '../endpoints.ts';
import { EVENT_FILTERS } from '../event-types.ts';

export const endpointIdExample = 'endpoint_0mzc9k4q8r2wfXa1Bc2d';

export const EndpointId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "An endpoint's id, as createEndpoint returned it.",
});

/** The fields of an endpoint in requests. */
export const ENDPOINT_FIELDS = {
  url: Type.String({
    ...{ minLength: 8, maxLength: 2048 },
    description:
      'Where events are posted: https://, at a public address unless WEBHOOK_NETWORKS allows others.',
  }),
  name: Name,
  events: Type.Array(Type.String({ enum: EVENT_FILTERS }), {
    ...{ minItems: 1, maxItems: EVENT_FILTERS.length, uniqueItems: true },
    description: 'Types of events, groups such as `key.*`, or `*` for all.',
  }),
  apiIds: Type.Array(Type.String({ pattern: API_ID.source }), {
    ...{ minItems: 1, maxItems: 100, uniqueItems: true },
    description: 'Only events of these APIs are sent, and none that belong to no API. Absent: all.',
  }),
};

const view = {
  endpointId: Id('the endpoint'),
  url: Type.String(),
  name: Type.Optional(Type.String()),
  events: List(Type.String()),
  apiIds: Type.Optional(List(Type.String())),
  enabled: Type.Boolean({ description: 'false: nothing is sent or queued; what was queued waits.' }),
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  formerSecretEndsAt: Type.Optional(Time('When the former signing secret ends, if it still signs')),
};
export const EndpointView = Type.Object({
  ...view,
  state: Type.Union([Type.Literal('active'), Type.Literal('failing'), Type.Literal('disabled')], {
    description:
      'failing: many attempts failed one after the other, so only one event is tried at a time, at most every 5 minutes.',
  }),
  waiting: Count('Number of events that wait for delivery.'),
  oldestAt: Type.Optional(Time('When the oldest of them was queued')),
  failures: Count('Number of failed attempts since the last success.'),
  pausedUntil: Type.Optional(Time('When the next attempt is due, if the endpoint is failing')),
  dropped: Count('Number of events lost because WEBHOOK_QUEUE_MAX events waited already.'),
  dead: Count('Number of events given up after three days; redeliver sends one again.'),
});

/** Returns an endpoint with the state of its queue. */
export async function withState(
  endpoint: WebhookEndpoint,
  { deliveries }: Pick<Services, 'deliveries'>,
): Promise<Static<typeof EndpointView>> {
  const queue = await deliveries.state(endpoint.endpointId);
  return { ...endpoint, state: stateOf(endpoint, queue), ...queue };
}

function stateOf({ enabled }: WebhookEndpoint, { pausedUntil }: QueueState) {
  if (!enabled) return 'disabled';
  return pausedUntil === undefined ? 'active' : 'failing';
}

/** Throws BAD_REQUEST that names the rule which a URL breaks. */
export function checkUrl(url: string, { urlFault }: Pick<Services, 'urlFault'>): void {
  const fault = urlFault(url);
  if (fault !== undefined) throw new ApiError('BAD_REQUEST', `url: ${fault}`);
}

/** Returns what the audit log keeps of an endpoint's fields: of the URL, whose path may be secret, the origin. */
export const auditedEndpoint = <Fields extends { readonly url?: string }>({ url, ...fields }: Fields) => ({
  ...(url === undefined ? {} : { origin: new URL(url).origin }),
  ...fields,
});

/** The error for an endpoint that does not exist. */
export const endpointNotFound = (endpointId: string) =>
  new ApiError('NOT_FOUND', `endpoint ${endpointId} not found`);
