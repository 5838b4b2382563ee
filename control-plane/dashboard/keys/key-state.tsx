import { type Key, serverNow } from '../api/client.ts';
import type { Apply } from '../changes/change.tsx';
import { Badge } from '../parts/badge.tsx';
import { Switch } from '../parts/forms.tsx';

/** A badge: enabled, disabled or expired. */
export function KeyState({ of }: { of: Key }) {
  if (!of.enabled) return <Badge kind="bad">disabled</Badge>;
  if (of.expires !== undefined && of.expires <= serverNow()) return <Badge kind="warn">expired</Badge>;
  return <Badge kind="good">enabled</Badge>;
}

/** The button that disables or enables a key; its panel offers to undo that. */
export function KeySwitch({ of, apply }: { of: Key; apply: Apply }) {
  return (
    <Switch
      enabled={of.enabled}
      name={of.name ?? `${of.start}…`}
      change={(enabled, headline) => apply(of, headline, { enabled }, { enabled: of.enabled })}
    />
  );
}
