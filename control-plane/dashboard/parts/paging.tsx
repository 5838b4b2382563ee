import { useEffect, useState } from 'preact/hooks';

/** Time between two notes of the place of the reader in the page. */
const NOTED_MS = 250;

/**
 * Holds the cursors of a listing, so that the user can page back. They are kept with the entry of the browser's
 * history, as is the place in the page, so that the way back leads to where the reader was.
 * @param size number of rows of a full page
 */
export function usePages(size: number) {
  const [cursors, setCursors] = useState<readonly string[]>(() => history.state?.cursors ?? []);
  const go = (next: readonly string[]) => {
    history.replaceState({ cursors: next }, '');
    setCursors(next);
  };
  const turn = (next: readonly string[]) => {
    go(next);
    document.querySelector('main table')?.scrollIntoView();
  };
  return {
    cursor: cursors.at(-1),
    reset: () => go([]),
    /** @param total number of rows of all pages, if it is known */
    pager: (next: string | undefined, count: number, total?: number) => {
      const before = cursors.length * size;
      return (
        <>
          <Place />
          {(cursors.length > 0 || next !== undefined) && (
            <nav class="row pager" aria-label="Pages">
              <button
                type="button"
                aria-disabled={cursors.length === 0}
                onClick={() => turn(cursors.slice(0, -1))}
              >
                Previous
              </button>
              <span class="quiet">
                {count === 0 ? `after ${before}` : `${before + 1}–${(before + count).toLocaleString()}`}
                {total !== undefined && ` of ${total.toLocaleString()}`}
              </span>
              <button
                type="button"
                aria-disabled={next === undefined}
                onClick={() => next !== undefined && turn([...cursors, next])}
              >
                Next
              </button>
            </nav>
          )}
        </>
      );
    },
  };
}

/** Goes to where the reader was, once the page is long enough, and notes where the reader is. */
function Place() {
  useEffect(() => {
    if (history.state?.y) scrollTo(0, history.state.y);
    let timer: number | undefined;
    const note = () => {
      timer ??= window.setTimeout(() => {
        timer = undefined;
        history.replaceState({ ...history.state, y: scrollY }, '');
      }, NOTED_MS);
    };
    addEventListener('scroll', note);
    return () => {
      clearTimeout(timer);
      removeEventListener('scroll', note);
    };
  }, []);
  return null;
}
