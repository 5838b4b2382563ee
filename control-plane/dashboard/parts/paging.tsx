import { useState } from 'preact/hooks';

/**
 * Holds the cursors of a listing, so that the user can page back. They are kept with the entry of the browser's
 * history, so that the way back leads to the same page of the listing.
 */
export function usePages() {
  const [cursors, setCursors] = useState<readonly string[]>(() => history.state?.cursors ?? []);
  const go = (next: readonly string[]) => {
    history.replaceState({ cursors: next }, '');
    setCursors(next);
  };
  return {
    cursor: cursors.at(-1),
    reset: () => go([]),
    pager: (next: string | undefined) =>
      (cursors.length > 0 || next !== undefined) && (
        <nav class="row pager" aria-label="Pages">
          <button type="button" aria-disabled={cursors.length === 0} onClick={() => go(cursors.slice(0, -1))}>
            Previous
          </button>
          <span class="quiet">Page {cursors.length + 1}</span>
          <button
            type="button"
            aria-disabled={next === undefined}
            onClick={() => next !== undefined && go([...cursors, next])}
          >
            Next
          </button>
        </nav>
      ),
  };
}
