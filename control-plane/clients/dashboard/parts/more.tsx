import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/**
 * A menu of the actions that are needed less often. Escape, a choice and a click elsewhere close it.
 * @param props.of what the actions are on, in a row of a table; absent beside a heading
 */
export function More({ of, children }: { of?: string; children: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const handle = () => menu.current?.querySelector('summary');
  const close = () => menu.current?.removeAttribute('open');
  useEffect(() => {
    const click = ({ target }: Event) => {
      if (!menu.current?.open || handle()?.contains(target as Node)) return;
      // The focus would be lost with what was chosen.
      if (menu.current.contains(target as Node)) handle()?.focus();
      close();
    };
    addEventListener('click', click);
    return () => removeEventListener('click', click);
  }, []);
  const key = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !menu.current?.open) return;
    close();
    handle()?.focus();
  };
  return (
    <details ref={menu} class="more" onKeyDown={key}>
      {of === undefined ? (
        <summary>More</summary>
      ) : (
        <summary class="dots" aria-label={`Actions on ${of}`}>
          ⋯
        </summary>
      )}
      <div>{children}</div>
    </details>
  );
}
