import { type Key, listVerifiers, serverNow } from '../api/client.ts';
import type { Apply } from '../changes/change.tsx';
import { Badge } from '../parts/badge.tsx';
import { useLoad } from '../parts/loading.tsx';
import { Switch } from '../parts/switch.tsx';
import { Time } from '../parts/time.tsx';

/** A badge with the state in which verifiers see the key: its own, or that of its identity. */
export function KeyState({ of, isFound = true }: { of: Key; isFound?: boolean }) {
  return (
    <>
      {of.leaked && (
        <span title={of.leaked.url}>
          <Badge kind="bad">leaked</Badge>{' '}
        </span>
      )}
      <OwnState of={of} isFound={isFound} />
    </>
  );
}

function OwnState({ of, isFound }: { of: Key; isFound: boolean }) {
  const { identity, enabled, expires, rerolledTo, foreign } = of;
  if (identity?.enabled === false)
    return (
      <>
        <Badge kind="bad">
          stopped with <bdi>{identity.externalId}</bdi>
        </Badge>
        {!enabled && (
          <>
            {' '}
            <Badge kind="bad">disabled</Badge>
          </>
        )}
      </>
    );
  if (!enabled) return <Badge kind="bad">disabled</Badge>;
  if (expires !== undefined && expires <= serverNow())
    return <Badge kind="warn">{rerolledTo === undefined ? 'expired' : 'replaced'}</Badge>;
  if (foreign && !isFound)
    return (
      <span title="Its secret has a foreign format: set FOREIGN_KEYS=true at the verifiers.">
        <Badge kind="bad">not accepted anywhere</Badge>
      </span>
    );
  return <Badge kind="good">enabled</Badge>;
}

/** When a key was accepted last, and refused, if that was later: a job may present it every minute in vain. */
export function LastUse({ of: { lastUsedAt, lastRefusedAt } }: { of: Key }) {
  return (
    <>
      <Time at={lastUsedAt} placeholder="never" />
      {lastRefusedAt !== undefined && lastRefusedAt > (lastUsedAt ?? 0) && (
        <div class="under">
          refused <Time at={lastRefusedAt} />
        </div>
      )}
    </>
  );
}

/** The time when a key expires; a rotation without a grace period sets it to 1 ms after 1970 began. */
export function Expiry({ of, exact = false }: { of: Key; exact?: boolean }) {
  if (of.rerolledTo !== undefined && of.expires === 1) return <span class="quiet">at its rotation</span>;
  return <Time at={of.expires} placeholder={exact ? 'never' : ''} exact={exact} />;
}

/**
 * Returns false if no verifier looks up keys of a foreign format; true while that is unknown.
 * @param keys the keys on the page; if none has a foreign format, nothing is loaded
 */
export function useForeignFound(keys: readonly Key[] = []): boolean {
  const isNeeded = keys.some(({ foreign }) => foreign);
  const list = async () => (isNeeded ? listVerifiers().catch(() => []) : []);
  const { data: verifiers = [] } = useLoad(list, [isNeeded]);
  return verifiers.length === 0 || verifiers.some(({ settings }) => settings?.foreignKeys ?? true);
}

/** The button that disables or enables a key; its panel offers to undo that. */
export function KeySwitch({ of, apply }: { of: Key; apply: Apply }) {
  return (
    <Switch
      enabled={of.enabled}
      isLarge
      name={of.name ?? `${of.start}…`}
      change={(enabled, headline) => apply(of, headline, { enabled }, { enabled: of.enabled })}
    />
  );
}
