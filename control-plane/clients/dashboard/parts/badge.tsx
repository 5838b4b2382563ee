import type { ComponentChildren } from 'preact';

/** A one-word state, conveyed by its text and not by its colour alone. */
export function Badge({ kind, children }: { kind: 'good' | 'bad' | 'warn'; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}
