import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { looksLikeKey, serverNow } from './api.ts';

/** A step of the way back: where it leads, and what it is called. */
export type Crumb = readonly [hash: string, name: string];

/** A view: its heading takes the focus, so that a screen reader says where one is. */
export function Page(props: {
  title: string;
  way?: readonly Crumb[];
  beside?: ComponentChildren;
  children: ComponentChildren;
}) {
  const { title, way = [], beside, children } = props;
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
              <bdi>{name}</bdi>
            </a>
          ))}
        </nav>
      )}
      <div class="title">
        <h1 ref={heading} tabIndex={-1} dir="auto">
          {title}
        </h1>
        {beside}
      </div>
      {children}
    </>
  );
}

interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Its place in a card where there is no room: its first line, beside that, or nowhere. */
  readonly narrow?: 'box' | 'first' | 'beside' | 'none';
  /** Numbers stand on the right. */
  readonly number?: boolean;
}

/**
 * A table that becomes a list of small cards where there is no room. The arrow keys go from row to row.
 * @param props.below shown in a row of its own below
 */
export function Table<Row>(props: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string;
  empty: ComponentChildren;
  below?: (row: Row) => ComponentChildren;
}) {
  const { label, columns, rows, id, empty, below } = props;
  if (rows.length === 0) return <div class="quiet empty">{empty}</div>;
  return (
    <table aria-label={label} onKeyDown={goToNextRow}>
      <thead>
        <tr>
          {columns.map(({ title, number, narrow }) => (
            <th scope="col" key={title} class={number ? 'number' : ''}>
              {narrow === 'box' ? <span class="unseen">{title}</span> : title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const under = below?.(row);
          return [
            <tr key={id(row)}>
              {columns.map(({ title, cell, narrow = '', number }) => (
                <td data-title={title} key={title} class={`${narrow} ${number ? 'number' : ''}`}>
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

/** The arrow keys lead from what is used in a row to the same in the next. */
function goToNextRow(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const used = event.target;
  if (step === undefined || !(used instanceof HTMLElement) || used.matches('select, textarea, summary'))
    return;
  const table = event.currentTarget as HTMLTableElement;
  const rows = [...table.querySelectorAll('tbody > tr:not(.below)')];
  const [row, cell] = [used.closest('tr'), used.closest('td')];
  if (!row || !cell) return;
  const next = rows[rows.indexOf(row) + step];
  const place = [...row.children].indexOf(cell);
  const target = next?.children[place]?.querySelector<HTMLElement>('a, button, input');
  if (!target) return;
  event.preventDefault();
  target.focus();
}

/** Cursors, with the way back. */
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

/** The path of an address' hash, and its query: conditions of a list. */
export function partsOf(hash: string): readonly [path: string, query: URLSearchParams] {
  const [path = '', query = ''] = hash.split('?');
  return [path, new URLSearchParams(query)];
}

/**
 * The conditions of a list, kept in the page's address, so that they hold again after a reload and on the way back. What looks
 * like a key never goes there.
 * @param unset what each is where the address says nothing
 */
export function useConditions<T extends Readonly<Record<string, string>>>(unset: T) {
  const [conditions, setConditions] = useState<T>(() => {
    const [, query] = partsOf(location.hash);
    return mapped(unset, (name, value) => query.get(name) ?? value);
  });
  const change = (wanted: T) => {
    const [path] = partsOf(location.hash);
    const told = Object.entries(wanted).filter(
      ([name, value]) => value !== unset[name] && !looksLikeKey(value),
    );
    const query = new URLSearchParams(told).toString();
    // Not a step of its own, and no event: the list is there already.
    history.replaceState(null, '', query ? `${path}?${query}` : path);
    setConditions(wanted);
  };
  return [conditions, change] as const;
}

const mapped = <T extends Readonly<Record<string, string>>>(
  of: T,
  value: (name: string, before: string) => string,
): T => Object.fromEntries(Object.entries(of).map(([name, before]) => [name, value(name, before)])) as T;

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

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
const UNITS = [
  ['second', 1000, 60],
  ['minute', 60_000, 60],
  ['hour', 3_600_000, 24],
  ['day', 86_400_000, 30],
] as const;

/** A moment as a person reads it, the exact one on hover, or beside it with `exact`; `none` where there is none. */
export function Time(props: { at: number | undefined; none?: string; exact?: boolean }) {
  const { at, none = '–', exact = false } = props;
  // A verifier may report what no calendar holds.
  const date = new Date(at ?? Number.NaN);
  if (at === undefined || Number.isNaN(date.getTime())) return <span class="quiet none">{none}</span>;
  const told = EXACT.format(date);
  const near = relative(at - serverNow());
  return (
    <time dateTime={date.toISOString()} title={told}>
      {exact ? told : (near ?? DAY.format(date))}
      {exact && near && <small> {near}</small>}
    </time>
  );
}

/** Such as "5 minutes ago"; undefined beyond a month. */
function relative(ms: number): string | undefined {
  for (const [unit, length, max] of UNITS) {
    const count = Math.round(ms / length);
    if (Math.abs(count) < max)
      return RELATIVE.format(unit === 'second' && Math.abs(count) < 5 ? 0 : count, unit);
  }
  return undefined;
}

/** A length of time: milliseconds below a second, seconds above. */
export const duration = (ms: number) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

const SAID_MS = 2000;

/** An id, and the button that copies it; with `unseen`, the button alone. */
export function CopyId({ id, of, unseen = false }: { id: string; of: string; unseen?: boolean }) {
  const [said, setSaid] = useState('');
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(id);
      setSaid('Copied');
    } catch {
      // No clipboard without HTTPS, or without permission.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setSaid('Selected');
    }
    setTimeout(() => setSaid(''), SAID_MS);
  };
  return (
    <span class="copy">
      <code ref={code} class={unseen ? 'unseen' : ''}>
        {id}
      </code>{' '}
      <button
        type="button"
        class="small"
        title={id}
        aria-label={`Copy the id of ${of}`}
        onClick={() => void copy()}
      >
        {said || 'Copy'}
      </button>
    </span>
  );
}
