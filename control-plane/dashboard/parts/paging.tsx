import { useState } from 'preact/hooks';

/** Holds the cursors of a listing, so that the user can page back. */
export function usePages() {
  const [cursors, setCursors] = useState<readonly string[]>([]);
  return {
    cursor: cursors.at(-1),
    reset: () => setCursors([]),
    pager: (next: string | undefined) =>
      (cursors.length > 0 || next !== undefined) && (
        <nav class="row pager" aria-label="Pages">
          <button
            type="button"
            aria-disabled={cursors.length === 0}
            onClick={() => setCursors(cursors.slice(0, -1))}
          >
            Previous
          </button>
          <span class="quiet">Page {cursors.length + 1}</span>
          <button
            type="button"
            aria-disabled={next === undefined}
            onClick={() => next !== undefined && setCursors([...cursors, next])}
          >
            Next
          </button>
        </nav>
      ),
  };
}
