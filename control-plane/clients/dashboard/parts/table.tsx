import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';

/** A column of a table: the content of its cell for a row. */
export interface Column<Row> {
  readonly title: string;
  /** Content above the column instead of its title. */
  readonly heading?: ComponentChildren;
  readonly cell: (row: Row) => ComponentChildren;
  /**
   * Its place when rows become cards for lack of room: the first line, beside that, or nowhere. A box and a menu show no
   * title.
   */
  readonly narrow?: 'box' | 'first' | 'beside' | 'menu' | 'none';
  /** Numbers are aligned to the right. */
  readonly number?: boolean;
  /** It takes the room that the others leave. */
  readonly grows?: boolean;
}

/**
 * A table that becomes a list of small cards for lack of room. The arrow keys move from row to row.
 * @param props.below content of an additional row below a row
 * @param props.details content of such a row, which a button at the end of the row opens
 * @param props.opened the row whose details are open from the start
 */
export function Table<Row>(props: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string;
  empty: ComponentChildren;
  below?: (row: Row) => ComponentChildren;
  details?: (row: Row) => ComponentChildren;
  opened?: string | undefined;
}) {
  const { label, rows, id, empty, details } = props;
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set(props.opened ? [props.opened] : []));
  const toggle = (row: Row) =>
    setOpened(new Set(isOpen(row) ? [...opened].filter((each) => each !== id(row)) : [...opened, id(row)]));
  const isOpen = (row: Row) => opened.has(id(row));
  const opener: Column<Row> = {
    title: 'Details',
    narrow: 'menu',
    cell: (row) => (
      <button
        type="button"
        class="dots"
        aria-label="Details"
        aria-expanded={isOpen(row)}
        onClick={() => toggle(row)}
      >
        {isOpen(row) ? '▴' : '▾'}
      </button>
    ),
  };
  const columns = details ? [...props.columns, opener] : props.columns;
  const below = (row: Row) => (details && isOpen(row) ? details(row) : props.below?.(row));
  if (rows.length === 0) return <div class="quiet empty">{empty}</div>;
  return (
    <table aria-label={label} onKeyDown={goToNextRow}>
      <thead>
        <tr>
          {columns.map(({ title, heading, ...column }) => (
            <th scope="col" key={title} class={classOf(column)}>
              {heading ?? (column.narrow === 'menu' ? <span class="unseen">{title}</span> : title)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const under = below(row);
          return [
            <tr key={id(row)}>
              {columns.map(({ title, cell, heading: _, ...column }) => (
                <td data-title={title} key={title} class={classOf(column)}>
                  <div>{cell(row)}</div>
                </td>
              ))}
            </tr>,
            under && (
              <tr key={`${id(row)} below`} class="below">
                <td colSpan={columns.length}>{under}</td>
              </tr>
            ),
          ];
        })}
      </tbody>
    </table>
  );
}

const classOf = ({ narrow, number, grows }: Pick<Column<unknown>, 'narrow' | 'number' | 'grows'>) =>
  [narrow, number && 'number', grows && 'grows'].filter(Boolean).join(' ');

/** Moves the focus from a control to the same control in the next row, for arrow keys. */
function goToNextRow(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const control = event.target;
  if (step === undefined || !(control instanceof HTMLElement) || control.matches('select, textarea, summary'))
    return;
  const table = event.currentTarget as HTMLTableElement;
  const rows = [...table.querySelectorAll('tbody > tr:not(.below)')];
  const [row, cell] = [control.closest('tr'), control.closest('td')];
  if (!row || !cell) return;
  const next = rows[rows.indexOf(row) + step];
  const place = [...row.children].indexOf(cell);
  const target = next?.children[place]?.querySelector<HTMLElement>('a, button, input');
  if (!target) return;
  event.preventDefault();
  target.focus();
}
