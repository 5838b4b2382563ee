import { useState } from 'preact/hooks';
import type { AuditEvent } from '../api/client.ts';
import { useAction } from '../parts/loading.tsx';
import { saveFile } from '../parts/save-file.ts';
import { callerName } from './events.tsx';

/** Maximum number of events in one file. */
const EVENTS_MAX = 100_000;
const FORMATS = { CSV: csvOf, NDJSON: ndjsonOf };

type List = (
  cursor: string | undefined,
) => Promise<{ events: readonly AuditEvent[]; cursor?: string | undefined }>;

/** Buttons that download the events of a list, all of its pages, as CSV or NDJSON. */
export function EventExport({ list }: { list: List }) {
  const { busy, run, problem } = useAction();
  const [notice, setNotice] = useState('');
  const download = async (format: keyof typeof FORMATS) => {
    const events: AuditEvent[] = [];
    let cursor: string | undefined;
    do {
      const page = await list(cursor);
      events.push(...page.events);
      ({ cursor } = page);
      setNotice(`${events.length.toLocaleString()} events…`);
    } while (cursor !== undefined && events.length < EVENTS_MAX);
    const isCut = cursor !== undefined;
    setNotice(
      `${events.length.toLocaleString()} events${isCut ? '; there are more, so choose a shorter time' : ''}.`,
    );
    saveFile(
      `keyfence-audit-${new Date().toISOString().slice(0, 10)}.${format.toLowerCase()}`,
      FORMATS[format](events),
    );
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

function ndjsonOf(events: readonly AuditEvent[]): string {
  return events.map((event) => `${JSON.stringify(event)}\n`).join('');
}

/** Formats events as RFC 4180 has it. */
function csvOf(events: readonly AuditEvent[]): string {
  const rows = events.map(({ time, operation, outcome, by, on, sequence, before, after, requestId, id }) => [
    new Date(time).toISOString(),
    ...[operation, outcome, by.person?.personId ?? by.rootKeyId, by.person && callerName(by), by.address],
    ...[on.apiId, on.keyId, on.externalId ?? on.identityId, on.roleId ?? on.permissionId, on.rootKeyId],
    ...[sequence, before && JSON.stringify(before), after && JSON.stringify(after), requestId, id],
  ]);
  return [HEADINGS, ...rows].map((row) => `${row.map(cellOf).join()}\r\n`).join('');
}

const HEADINGS = [
  ...['time', 'operation', 'outcome', 'by', 'person', 'address'],
  ...['apiId', 'keyId', 'identity', 'role', 'rootKeyId'],
  ...['sequence', 'before', 'after', 'requestId', 'id'],
];

/** Quotes a value; a spreadsheet would take one that begins with = + - or @ for a formula. */
function cellOf(value: string | number | undefined): string {
  const text = String(value ?? '');
  return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}
