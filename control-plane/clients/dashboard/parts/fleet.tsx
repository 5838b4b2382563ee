import type { ComponentChildren } from 'preact';
import { type Fleet, serverNow } from '../api/client.ts';
import { counted } from './counted.ts';

const MINUTE_MS = 60_000;

/** Says for how long no verifier of the fleet has reported itself. */
export function silenceText({ verifiers }: Fleet): string {
  const silentMs = serverNow() - Math.max(...verifiers.map(({ reportedAt }) => reportedAt));
  const time =
    silentMs < 2 * MINUTE_MS ? `${Math.round(silentMs / 1000)} s` : `${Math.round(silentMs / MINUTE_MS)} min`;
  return `No report for ${time} (last: ${counted(verifiers.length, 'verifier')})`;
}

/** The last reports of the verifiers, greyed if they are of earlier. */
export function LastKnown({ of, children }: { of: Fleet; children: ComponentChildren }) {
  return <div class={of.isSilent ? 'silent' : ''}>{children}</div>;
}
