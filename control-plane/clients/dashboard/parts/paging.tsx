import { useEffect, useState } from 'preact/hooks';
import { noteInAddress, partsOf } from './conditions.ts';

/** Time between two notes of the place of the reader in the page. */
const NOTED_MS = 250;

/** The cursors of the pages from the second to the one that is shown; those before it may not be known. */
type Cursors = readonly (string | undefined)[];

/**
 * Holds the cursors of a listing, so that the user can page back. They are kept with the entry of the browser's
 * history, as is the place in the page, so that the way back leads to where the reader was. The address has the page
 * that is shown, so that a copied link leads there.
 * @param size number of rows of a full page
 */
export function usePages(size: number) {
  const [cursors, setCursors] = useState<Cursors>(() => history.state?.cursors ?? cursorsInAddress());
  const go = (next: Cursors) => {
    const from = next.at(-1) ?? '';
    noteInAddress({ page: from && String(next.length + 1), from }, { cursors: next });
    setCursors(next);
  };
  const turn = (next: Cursors) => {
    go(next);
    document.querySelector('main table')?.scrollIntoView();
  };
  // A link leads to a page, not to the one before it.
  const isBeforeKnown = cursors.length < 2 || cursors.at(-2) !== undefined;
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
                onClick={() => turn(isBeforeKnown ? cursors.slice(0, -1) : [])}
              >
                {isBeforeKnown ? 'Previous' : 'First'}
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

function cursorsInAddress(): Cursors {
  const [, query] = partsOf(location.hash);
  const [from, page] = [query.get('from'), Number(query.get('page'))];
  if (!from || !(page >= 2 && page <= PAGE_MAX)) return [];
  return [...Array.from({ length: Math.floor(page) - 2 }, () => undefined), from];
}

/** More pages than anybody turns. */
const PAGE_MAX = 100_000;

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
