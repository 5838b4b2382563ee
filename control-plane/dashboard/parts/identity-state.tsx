import type { Identity } from '../api/client.ts';
import { Badge } from './badge.tsx';
import { Switch } from './switch.tsx';

/** Returns the address of an identity's page. */
export const identityPage = (externalId: string): string => `#/identities/${encodeURIComponent(externalId)}`;

/** A badge: enabled or disabled. */
export function IdentityState({ of }: { of: Identity }) {
  return <Badge kind={of.enabled ? 'good' : 'bad'}>{of.enabled ? 'enabled' : 'disabled'}</Badge>;
}

/** The button that disables or enables an identity; its panel offers to undo that. */
export function IdentitySwitch(props: {
  of: Identity;
  apply: (identity: Identity, headline: string, patch: object, undo: object) => Promise<unknown>;
  isLarge?: boolean;
}) {
  const { of, apply, isLarge = false } = props;
  return (
    <Switch
      enabled={of.enabled}
      name={of.externalId}
      isLarge={isLarge}
      change={(enabled, headline) => apply(of, headline, { enabled }, { enabled: of.enabled })}
    />
  );
}
