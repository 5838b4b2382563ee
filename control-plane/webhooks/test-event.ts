import type { Clock } from '#shared/lang/clock.ts';
import type { WebhookEndpoints } from './endpoints.ts';
import type { EventPoster } from './event-poster.ts';
import type { AddressRules } from './public-addresses.ts';

/** Sends a test event to an endpoint; undefined = there is no such endpoint. */
export async function sendTestEvent(
  { endpoints, poster, clock }: { endpoints: WebhookEndpoints; poster: EventPoster; clock: Clock },
  endpointId: string,
) {
  const all = await endpoints.signing();
  const endpoint = all.find((each) => each.endpointId === endpointId);
  if (!endpoint) return undefined;
  const nowMs = clock.wallMs();
  const eventId = `event_t${nowMs}-${endpointId}`;
  const body = { type: 'webhook.test', timestamp: new Date(nowMs).toISOString(), data: { endpointId } };
  const { isDelivered: delivered, ...result } = await poster.post(endpoint, eventId, JSON.stringify(body));
  return { delivered, eventId, ...result };
}

/** Returns the rule that an endpoint's URL breaks, as far as that shows without a look-up; undefined = none. */
export function urlFault(rules: AddressRules, text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) return 'must be a URL that begins with https://';
  if (url.username || url.password) return 'must not have a user or password';
  if (url.hash) return 'must not have a fragment';
  return rules.hostFault(url);
}
