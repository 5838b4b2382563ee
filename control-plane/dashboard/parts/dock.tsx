import type { ComponentChildren } from 'preact';

/** What stays in sight at the bottom of the window, wherever the page is scrolled to. */
export function Dock({ children }: { children: ComponentChildren }) {
  return <div class="dock">{children}</div>;
}
