import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

/** A view: its heading takes the focus, so that a screen reader says where one is. */
export function Page({ title, children }: { title: string; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Keyfence`;
    heading.current?.focus();
  }, [title]);
  return (
    <>
      <h1 ref={heading} tabIndex={-1}>
        {title}
      </h1>
      {children}
    </>
  );
}

interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => ComponentChildren;
}

/** A table that becomes a list of cards where there is no room. */
export function Table<Row>(props: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string;
  empty: string;
}) {
  const { label, columns, rows, id, empty } = props;
  if (rows.length === 0) return <p class="quiet empty">{empty}</p>;
  return (
    <table aria-label={label}>
      <thead>
        <tr>
          {columns.map(({ title }) => (
            <th scope="col" key={title}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={id(row)}>
            {columns.map(({ title, cell }) => (
              <td data-title={title} key={title}>
                <div>{cell(row)}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Cursors, with the way back. */
export function usePages() {
  const [cursors, setCursors] = useState<readonly string[]>([]);
  return {
    cursor: cursors.at(-1),
    reset: () => setCursors([]),
    pager: (next: string | undefined) =>
      (cursors.length > 0 || next !== undefined) && (
        <nav class="row" aria-label="Pages">
          <button
            type="button"
            disabled={cursors.length === 0}
            onClick={() => setCursors(cursors.slice(0, -1))}
          >
            Previous
          </button>
          <span class="quiet">Page {cursors.length + 1}</span>
          <button
            type="button"
            disabled={next === undefined}
            onClick={() => next !== undefined && setCursors([...cursors, next])}
          >
            Next
          </button>
        </nav>
      ),
  };
}

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** A moment; `none` where there is none. */
export function Time({ at, none = '–' }: { at: number | undefined; none?: string }) {
  // A verifier may report what no calendar holds.
  const date = new Date(at ?? Number.NaN);
  if (Number.isNaN(date.getTime())) return <span class="quiet">{none}</span>;
  return <time dateTime={date.toISOString()}>{DATE.format(date)}</time>;
}

/** One word on a state: told by its text, not by its colour alone. */
export function Badge({ kind, children }: { kind: 'good' | 'bad' | 'warn'; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}

/** The values of a form, texts trimmed. */
export function fieldsOf(event: Event): (name: string) => string {
  event.preventDefault();
  const data = new FormData(event.currentTarget as HTMLFormElement);
  return (name) => String(data.get(name) ?? '').trim();
}
