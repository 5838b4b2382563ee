import type { Endpoint } from '../api/client.ts';
import { Badge } from '../parts/badge.tsx';

const KINDS = { active: 'good', failing: 'bad', disabled: 'warn' } as const;

/** The state of a webhook endpoint. */
export function EndpointState({ endpoint: { state } }: { endpoint: Pick<Endpoint, 'state'> }) {
  return <Badge kind={KINDS[state]}>{state}</Badge>;
}

/** The types of events that an endpoint is told; `*` is all. */
export function EventTypes({ of }: { of: Endpoint['events'] }) {
  return <>{of.map((type) => (type === '*' ? 'all' : type)).join(', ')}</>;
}
