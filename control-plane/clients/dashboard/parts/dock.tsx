import type { ComponentChildren } from 'preact';

/** A place that stays in sight at the bottom of the window, wherever the page is scrolled to. */
export function Dock({ children }: { children: ComponentChildren }) {
  return <div class="dock">{children}</div>;
}
