import { type Static, Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import { EVENT_FILTERS } from '../../core/schema/event-types.ts';
import { Name } from '../../core/schema/key-fields.ts';
import { Cursor, Limit, makeCursor, openCursor, PageCursor } from '../../core/schema/lists.ts';
import {
  CHANGED_MANAGED,
  IF_MANAGED,
  isManagedBy,
  MANAGED_FILTER,
  MANAGED_VIEW,
  NEW_MANAGED,
} from '../../core/schema/managed.ts';
import { Count, Fields, Id, List, Time } from '../../core/schema/primitives.ts';
import { operation } from '../../core/serve/operation.ts';
import type { WebhookEndpoint, WebhookEndpoints } from './endpoints.ts';
import type { TestResult } from './event-poster.ts';
import type { Deliveries, QueueState } from './outbox.ts';

const endpointIdExample = 'endpoint_0mzc9k4q8r2wfXa1Bc2d';

const EndpointId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "An endpoint's id, as createEndpoint returned it.",
});

/** The fields of an endpoint in requests. */
const ENDPOINT_FIELDS = {
  url: Type.String({
    ...{ minLength: 8, maxLength: 2048 },
    description:
      'Address that gets the events: https://, at a public address unless WEBHOOK_NETWORKS allows others.',
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
  goneAt: Type.Optional(Time('When it was disabled because it answered 410 Gone')),
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  formerSecretEndsAt: Type.Optional(Time('When the former signing secret ends, if it still signs')),
  ...MANAGED_VIEW,
};
const EndpointView = Type.Object({
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
  passed: Count('Number of events that it did not get because it had answered 410 Gone.'),
});

/** The endpoints, and their queues. */
interface EndpointStores {
  readonly endpoints: WebhookEndpoints;
  readonly deliveries: Deliveries;
}

/** Returns the rule that the URL of an endpoint breaks; undefined = it may be used. */
type UrlFault = (url: string) => string | undefined;

/** Returns an endpoint with the state of its queue. */
async function withState(
  endpoint: WebhookEndpoint,
  { deliveries }: { deliveries: Deliveries },
): Promise<Static<typeof EndpointView>> {
  const queue = await deliveries.state(endpoint.endpointId);
  return { ...endpoint, state: stateOf(endpoint, queue), ...queue };
}

function stateOf({ enabled }: WebhookEndpoint, { pausedUntil }: QueueState) {
  if (!enabled) return 'disabled';
  return pausedUntil === undefined ? 'active' : 'failing';
}

/** Throws BAD_REQUEST that names the rule which a URL breaks. */
function checkUrl(url: string, urlFault: UrlFault): void {
  const fault = urlFault(url);
  if (fault !== undefined) throw new ApiError('BAD_REQUEST', `url: ${fault}`);
}

/** Returns what the audit log keeps of an endpoint's fields: of the URL, whose path may be secret, the origin. */
const auditedEndpoint = <Fields extends { readonly url?: string }>({ url, ...fields }: Fields) => ({
  ...(url === undefined ? {} : { origin: new URL(url).origin }),
  ...fields,
});

/** The error for an endpoint that does not exist. */
const endpointNotFound = (endpointId: string) =>
  new ApiError('NOT_FOUND', `endpoint ${endpointId} not found`);

/** A signing secret in responses. */
const SigningSecret = Type.String({
  description: 'The secret that signs events (Standard Webhooks); shown only once.',
});

const createEndpoint = operation({
  name: 'webhooks.createEndpoint',
  kind: 'change',
  adds: true,
  summary: 'Create a webhook endpoint',
  description:
    'From then on, events are posted to the URL, each at least once, and those of one key in their order. The endpoint learns what the audit log has, of all APIs. Of each name, a `managedBy` has one: a second one is 409 with the id of the first.',
  permissions: ['root.*.create_webhook'],
  request: Fields({
    url: ENDPOINT_FIELDS.url,
    name: Type.Optional(ENDPOINT_FIELDS.name),
    events: Type.Optional(ENDPOINT_FIELDS.events),
    apiIds: Type.Optional(ENDPOINT_FIELDS.apiIds),
    ...NEW_MANAGED,
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
  async handle(call, { urlFault, ...stores }: EndpointStores & { urlFault: UrlFault }) {
    const { url, events = ['*'], ...fields } = call.request;
    checkUrl(url, urlFault);
    const { endpoint, secret } = await stores.endpoints.create({ url, events, ...fields }, call.draw);
    const { endpointId } = endpoint;
    call.note({ endpointId }, { after: auditedEndpoint({ url, events, ...fields }) });
    return { ...(await withState(endpoint, stores)), secret };
  },
});

const updateEndpoint = operation({
  name: 'webhooks.updateEndpoint',
  kind: 'change',
  stops: 'if disabled',
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
    ...CHANGED_MANAGED,
  }),
  response: EndpointView,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { endpointId: endpointIdExample, enabled: false },
  neverShed: true,
  async handle(call, { urlFault, ...stores }: EndpointStores & { urlFault: UrlFault }) {
    const { endpointId, ...patch } = call.request;
    if (Object.keys(patch).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    if (patch.url !== undefined) checkUrl(patch.url, urlFault);
    const changed = await stores.endpoints.update(endpointId, patch);
    if (!changed) throw endpointNotFound(endpointId);
    const previous = Object.keys(patch).map((name) => [name, Object(changed.before)[name] ?? null]);
    call.note({}, { before: auditedEndpoint(Object.fromEntries(previous)), after: auditedEndpoint(patch) });
    return withState(changed.after, stores);
  },
});

const getEndpoint = operation({
  name: 'webhooks.getEndpoint',
  kind: 'query',
  summary: 'Show a webhook endpoint and its queue',
  description: 'Shows everything except the signing secret.',
  permissions: ['root.*.read_webhook'],
  request: Fields({ endpointId: EndpointId }),
  response: EndpointView,
  errors: ['NOT_FOUND'],
  example: { endpointId: endpointIdExample },
  async handle({ request: { endpointId } }, stores: EndpointStores) {
    const endpoint = await stores.endpoints.get(endpointId);
    if (!endpoint) throw endpointNotFound(endpointId);
    return withState(endpoint, stores);
  },
});

const listEndpoints = operation({
  name: 'webhooks.listEndpoints',
  kind: 'query',
  summary: 'List webhook endpoints',
  description: 'Shows all of them, at most 50, in order of creation.',
  permissions: ['root.*.read_webhook'],
  request: Fields(MANAGED_FILTER),
  response: Type.Object({ endpoints: List(EndpointView) }),
  errors: [],
  example: {},
  async handle({ request }, stores: EndpointStores) {
    const endpoints = (await stores.endpoints.list()).filter(isManagedBy(request.managedBy));
    return { endpoints: await Promise.all(endpoints.map((endpoint) => withState(endpoint, stores))) };
  },
});

const deleteEndpoint = operation({
  name: 'webhooks.deleteEndpoint',
  kind: 'change',
  stops: 'always',
  summary: 'Delete a webhook endpoint',
  description: 'The events that wait for it, and its deliveries, are deleted too.',
  permissions: ['root.*.delete_webhook'],
  request: Fields({ endpointId: EndpointId, ...IF_MANAGED }),
  response: Type.Object({}),
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { endpointId: endpointIdExample },
  neverShed: true,
  async handle(call, { endpoints }: { endpoints: WebhookEndpoints }) {
    const { endpointId, ifManagedBy } = call.request;
    const endpoint = await endpoints.delete(endpointId, ifManagedBy);
    if (!endpoint) throw endpointNotFound(endpointId);
    call.note({}, { before: auditedEndpoint({ url: endpoint.url, events: endpoint.events }) });
    return {};
  },
});

const rotateSecret = operation({
  name: 'webhooks.rotateSecret',
  kind: 'change',
  adds: true,
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
  async handle(call, { endpoints }: { endpoints: WebhookEndpoints }) {
    const { endpointId } = call.request;
    const rotated = await endpoints.rotate(endpointId, call.draw);
    if (!rotated) throw endpointNotFound(endpointId);
    const { formerSecretEndsAt } = rotated;
    call.note({}, { after: { formerSecretEndsAt } });
    return rotated;
  },
});

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
  error: Type.Optional(Type.String({ description: 'The reason if there was no response.' })),
  nextAt: Type.Optional(Time('When the next attempt is due')),
  event: Type.Object({}, { additionalProperties: true, description: 'The body of the request.' }),
});

/** The attempt after which the page begins. */
const PLACE = /^([ad][1-9][0-9]{0,14}-[0-9]{1,15})$/;

const listDeliveries = operation({
  name: 'webhooks.listDeliveries',
  kind: 'query',
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
  async handle(
    { request: { endpointId, dead, limit, cursor } },
    { deliveries: store, endpoints }: { deliveries: Deliveries; endpoints: WebhookEndpoints },
  ) {
    if (!(await endpoints.get(endpointId))) throw endpointNotFound(endpointId);
    const kind = dead === 'true' ? 'dead' : 'attempts';
    const listing = ['listDeliveries', endpointId, kind] as const;
    const [after] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { deliveries, next } = await store.list(endpointId, kind, Number(limit), after);
    return { deliveries, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});

const redeliver = operation({
  name: 'webhooks.redeliver',
  kind: 'change',
  summary: 'Deliver an event once more',
  description:
    'Queues it behind the events that wait, with its `webhook-id`, unless it still waits itself, and tries at once, also while the endpoint is failing. It may come after later events of the same key.',
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
  async handle(call, { deliveries, endpoints }: { deliveries: Deliveries; endpoints: WebhookEndpoints }) {
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

const testEndpoint = operation({
  name: 'webhooks.test',
  kind: 'change',
  summary: 'Send a test event to a webhook endpoint',
  description:
    'Sends `webhook.test` at once, also to a disabled endpoint, and says what came back. It is not repeated. If it is delivered, events that wait because the endpoint failed are sent at once.',
  permissions: ['root.*.update_webhook'],
  request: Fields({ endpointId: EndpointId }),
  response: Type.Object({
    delivered: Type.Boolean({ description: 'true: the response had a status of 200 to 299.' }),
    eventId: Type.String({ description: 'The `webhook-id`.' }),
    durationMs: Type.Integer({ minimum: 0 }),
    status: Type.Optional(Type.Integer({ description: 'Status of the response; absent = there was none.' })),
    response: Type.Optional(Type.String({ description: 'The first 1,000 characters of the response.' })),
    error: Type.Optional(Type.String({ description: 'The reason if there was no response.' })),
  }),
  errors: ['NOT_FOUND'],
  example: { endpointId: endpointIdExample },
  async handle(
    call,
    {
      testEndpoint: test,
      deliveries,
    }: {
      testEndpoint: (endpointId: string) => Promise<TestResult | undefined>;
      deliveries: Deliveries;
    },
  ) {
    const { endpointId } = call.request;
    const result = await test(endpointId);
    if (!result) throw endpointNotFound(endpointId);
    const { delivered, status } = result;
    // What came back is told even where Redis is away: then the next attempts come in their time.
    if (delivered) await deliveries.resume(endpointId).catch(() => undefined);
    call.note({}, { after: { delivered, ...(status === undefined ? {} : { status }) } });
    return result;
  },
});

export const webhookOperations = [
  createEndpoint,
  updateEndpoint,
  getEndpoint,
  listEndpoints,
  deleteEndpoint,
  rotateSecret,
  listDeliveries,
  redeliver,
  testEndpoint,
] as const;
