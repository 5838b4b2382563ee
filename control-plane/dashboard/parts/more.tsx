import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** A menu of the actions that are needed less often. Escape, a choice and a click elsewhere close it. */
export function More({ children }: { children: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = () => menu.current?.removeAttribute('open');
  useEffect(() => {
    const click = ({ target }: Event) => {
      if (!menu.current?.querySelector('summary')?.contains(target as Node)) close();
    };
    addEventListener('click', click);
    return () => removeEventListener('click', click);
  }, []);
  const key = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return;
    close();
    menu.current?.querySelector('summary')?.focus();
  };
  return (
    <details ref={menu} class="more" onKeyDown={key}>
      <summary>More</summary>
      <div>{children}</div>
    </details>
  );
}
