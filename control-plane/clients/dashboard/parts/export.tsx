import { useState } from 'preact/hooks';
import { counted } from './counted.ts';
import { useAction } from './loading.tsx';

/** Maximum number of rows in one file. */
const ROWS_MAX = 100_000;

/** A cell of a file for a spreadsheet. */
type Cell = string | number | boolean | undefined;

/**
 * Buttons that download a list, all of its pages, as CSV or NDJSON.
 * @param props.name of the file, without the date
 * @param props.columns the columns of the CSV, each with its cell for a row
 */
export function Export<Row>(props: {
  name: string;
  list: (cursor: string | undefined) => Promise<{ rows: readonly Row[]; cursor?: string | undefined }>;
  columns: Readonly<Record<string, (row: Row) => Cell>>;
}) {
  const { name, list, columns } = props;
  const { busy, run, problem } = useAction();
  const [notice, setNotice] = useState('');
  const formats = { CSV: (rows: readonly Row[]) => csvOf(rows, columns), NDJSON: ndjsonOf };
  const download = async (format: keyof typeof formats) => {
    const rows: Row[] = [];
    let cursor: string | undefined;
    do {
      const page = await list(cursor);
      rows.push(...page.rows);
      ({ cursor } = page);
      setNotice(`${counted(rows.length, 'row')}…`);
    } while (cursor !== undefined && rows.length < ROWS_MAX);
    setNotice(`${counted(rows.length, 'row')}${cursor === undefined ? '' : '; there are more'}.`);
    const day = new Date().toISOString().slice(0, 10);
    saveFile(`keyfence-${name}-${day}.${format.toLowerCase()}`, formats[format](rows));
  };
  return (
    <>
      <span class="quiet" role="status">
        {notice}
      </span>
      {(['CSV', 'NDJSON'] as const).map((format) => (
        <button
          key={format}
          type="button"
          aria-disabled={busy}
          onClick={() => void run(() => download(format))}
        >
          Export {format}
        </button>
      ))}
      {problem}
    </>
  );
}

/** Downloads a text as a file. */
export function saveFile(name: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text]));
  link.download = name;
  link.click();
  // Browsers read it after the click, some only when the person has chosen where to save it.
  setTimeout(() => URL.revokeObjectURL(link.href), SAVING_MS_MAX);
}

const SAVING_MS_MAX = 60_000;

const ndjsonOf = (rows: readonly unknown[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join('');

/** Formats rows as RFC 4180 has it. Excel takes a file without a byte-order mark for text in its own character set. */
function csvOf<Row>(rows: readonly Row[], columns: Readonly<Record<string, (row: Row) => Cell>>): string {
  const cells = rows.map((row) => Object.values(columns).map((cell) => cell(row)));
  return `\ufeff${[Object.keys(columns), ...cells].map((row) => `${row.map(cellText).join()}\r\n`).join('')}`;
}

/** Quotes a value; a spreadsheet would take one that begins with = + - or @ for a formula. */
function cellText(value: Cell): string {
  const text = String(value ?? '');
  return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}
