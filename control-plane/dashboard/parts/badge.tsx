import type { ComponentChildren } from 'preact';

/** One word on a state: told by its text, not by its colour alone. */
export function Badge({ kind, children }: { kind: 'good' | 'bad' | 'warn'; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}
