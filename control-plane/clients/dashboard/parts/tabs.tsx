import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useConditions } from './conditions.ts';

/** A part of a page. */
export interface Tab {
  readonly id: string;
  readonly title: string;
  readonly content: () => ComponentChildren;
}

/**
 * The parts of a page, of which one is shown; its id is in the address, so that a reload and the back button keep it. What
 * was shown once stays, with what the user entered.
 */
export function Tabs({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const [{ tab }, setCondition] = useConditions({ tab: tabs[0]?.id ?? '' });
  const current = tabs.find(({ id }) => id === tab) ?? tabs[0];
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set([current?.id ?? '']));
  const open = ({ id }: Tab) => {
    setOpened(new Set([...opened, id]));
    setCondition({ tab: id });
  };
  // The arrow keys move between tabs, as the pattern of ARIA's authoring practices has it.
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && current && tabs.at((tabs.indexOf(current) + step) % tabs.length);
    if (!next) return;
    open(next);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <>
      <div role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((each) => (
          <button
            key={each.id}
            id={`tab-${each.id}`}
            type="button"
            role="tab"
            aria-selected={each === current}
            aria-controls={`panel-${each.id}`}
            tabIndex={each === current ? 0 : -1}
            onClick={() => open(each)}
          >
            {each.title}
          </button>
        ))}
      </div>
      {tabs.map((each) => (
        <div
          key={each.id}
          id={`panel-${each.id}`}
          role="tabpanel"
          aria-labelledby={`tab-${each.id}`}
          hidden={each !== current}
        >
          {(each === current || opened.has(each.id)) && each.content()}
        </div>
      ))}
    </>
  );
}
