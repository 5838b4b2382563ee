import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** A step of the way back: its address and its name. */
export type Crumb = readonly [hash: string, name: ComponentChildren];

/** A page. Its heading takes the focus, so that a screen reader announces it. */
export function Page(props: {
  title: string;
  way?: readonly Crumb[];
  beside?: ComponentChildren;
  /** Buttons at the end of the heading. */
  actions?: ComponentChildren;
  children: ComponentChildren;
}) {
  const { title, way = [], beside, actions, children } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  useEffect(() => {
    document.title = `${title} · Keyfence`;
  }, [title]);
  return (
    <>
      {way.length > 0 && (
        <nav class="way" aria-label="Breadcrumb">
          {way.map(([hash, name]) => (
            <a key={hash} href={hash}>
              {name}
            </a>
          ))}
        </nav>
      )}
      <div class="title">
        <h1 ref={heading} tabIndex={-1} dir="auto">
          {title}
        </h1>
        {beside}
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </>
  );
}
