// After a restore: `npm run --silent refused-since -- 2026-11-21T08:00:00Z < control-planes.log` lists what was disabled
// or deleted after that moment, by the audit lines of all control planes' logs in any order. One call a line, to be
// made again: `<operation> <body>`. A key that was enabled again since is left out.
import { createInterface } from 'node:readline';
import { scriptArguments, wrongArguments } from './dev/arguments.ts';

/** As far as it matters here, a line of the log. */
interface Line {
  readonly audit?: {
    readonly time: number;
    readonly operation: string;
    readonly outcome: string;
    readonly on: { readonly apiId?: string; readonly keyId?: string; readonly rootKeyId?: string };
    readonly after?: { readonly enabled?: boolean };
  };
}

/** OK was done; SERVICE_UNAVAILABLE may have been, and doing it again is harmless. */
const OUTCOMES = new Set(['OK', 'SERVICE_UNAVAILABLE']);

/**
 * The calls that refuse again what was refused at the end of the log.
 * @param since Unix milliseconds; earlier events are in the backup
 */
export async function refusedSince(lines: AsyncIterable<string>, since: number): Promise<string[]> {
  /** What each key, API or root key came to last, and when. */
  const last = new Map<string, { time: number; call: string | undefined }>();
  for await (const text of lines) {
    const { audit } = parse(text);
    if (!audit || audit.time < since || !OUTCOMES.has(audit.outcome)) continue;
    const { keyId, rootKeyId, apiId } = audit.on;
    const id = keyId ?? rootKeyId ?? apiId;
    const known = last.get(id ?? '');
    if (id === undefined || (known && known.time > audit.time)) continue;
    const body = keyId ? { keyId } : rootKeyId ? { rootKeyId } : { apiId };
    const deletes = /\.delete(Key|Api)$/.test(audit.operation);
    const enabled = /\.update(Key|RootKey)$/.test(audit.operation) ? audit.after?.enabled : undefined;
    if (!deletes && enabled === undefined) continue;
    const again = deletes ? body : enabled ? undefined : { ...body, enabled: false };
    last.set(id, { time: audit.time, call: again && `${audit.operation} ${JSON.stringify(again)}` });
  }
  return [...last.values()].flatMap(({ call }) => (call === undefined ? [] : [call]));
}

function parse(text: string): Line {
  if (!text.startsWith('{')) return {};
  try {
    return JSON.parse(text) as Line;
  } catch {
    return {}; // cut off in the middle
  }
}

if (import.meta.main) {
  const usage = 'usage: npm run --silent refused-since -- 2026-11-21T08:00:00Z < control-planes.log';
  const [text = ''] = scriptArguments(usage, { allowPositionals: true }).positionals;
  const since = Date.parse(text);
  if (Number.isNaN(since)) wrongArguments('Say since when, in ISO 8601.', usage);
  for (const call of await refusedSince(createInterface({ input: process.stdin }), since)) console.log(call);
}
