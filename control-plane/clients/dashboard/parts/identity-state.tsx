import type { Identity } from '../api/client.ts';
import { Badge } from './badge.tsx';

/** Returns the address of an identity's page. */
export const identityPage = (externalId: string): string => `#/identities/${encodeURIComponent(externalId)}`;

/** A badge: enabled or disabled. */
export function IdentityState({ of }: { of: Identity }) {
  return <Badge kind={of.enabled ? 'good' : 'bad'}>{of.enabled ? 'enabled' : 'disabled'}</Badge>;
}
