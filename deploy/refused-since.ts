// After a restore: `npm run --silent refused-since -- 2026-11-21T08:00:00Z < control-planes.log` lists what
// was disabled, deleted or given an expiry after that time, according to the audit lines in the logs of all
// control planes, in any order. It prints one call per line, to be made again: `<operation> <body>`. It
// leaves out refusals that were certainly reverted since.
import { createInterface } from 'node:readline';
import { scriptArguments, wrongArguments } from './dev/arguments.ts';

/** The fields of a log line that matter here. */
interface Audit {
  /** When the call arrived, Unix milliseconds. */
  readonly time: number;
  readonly operation: string;
  readonly outcome: string;
  readonly on: { readonly apiId?: string; readonly keyId?: string; readonly rootKeyId?: string };
  readonly after?: { readonly enabled?: boolean; readonly expires?: number | null };
  /** Sequence of the change in its API's log, which orders the writes. */
  readonly sequence?: number;
}

/** OK was done; SERVICE_UNAVAILABLE may have been done, and refusing again is harmless. */
const OUTCOMES = new Set(['OK', 'SERVICE_UNAVAILABLE']);
/**
 * Calls arrive before they are written, and clocks differ: calls that arrived this long before a backup may
 * be missing from it.
 */
const EARLIER_MS = 300_000;

/**
 * Returns the calls that restore the refusals at the end of the log.
 * @param since Unix milliseconds; the backup has what was written well before
 */
export async function refusedSince(lines: AsyncIterable<string>, since: number): Promise<string[]> {
  /** The calls that refuse or allow each key, API or root key. */
  const calls = new Map<string, Audit[]>();
  for await (const text of lines) {
    const { audit } = parse(text);
    if (!audit || audit.time < since - EARLIER_MS || !OUTCOMES.has(audit.outcome)) continue;
    const { keyId, rootKeyId, apiId } = audit.on;
    const id = keyId ?? rootKeyId ?? apiId;
    // A call that changed many keys has an event for each key, and each is refused again separately.
    const isOwn = ['leaks.report', 'rules.disableUnused'].includes(audit.operation);
    const method = isOwn ? 'updateKey' : audit.operation.replace(/^\w+\.|s$/g, '');
    const ofRootKey = audit.operation === 'leaks.report' ? 'rootKeys.updateRootKey' : audit.operation;
    const operation = keyId === undefined ? ofRootKey : `keys.${method}`;
    const call = { ...audit, operation };
    if (id === undefined || !(isDelete(call) || isUpdate(call))) continue;
    const earlier = calls.get(id);
    if (earlier) earlier.push(call);
    else calls.set(id, [call]);
  }
  return [...calls.values()].flatMap(refusalOf);
}

const isDelete = ({ operation }: Audit) => /\.delete(Key|Api|RootKey)$/.test(operation);
const isUpdate = ({ operation, after }: Audit) =>
  /\.update(Key|RootKey)$/.test(operation) && (after?.enabled ?? after?.expires) !== undefined;

/** Returns the call that refuses one thing again; none if every refusal was reverted. */
function refusalOf(calls: readonly Audit[]): string[] {
  const [{ operation, on } = { operation: '', on: {} }] = calls;
  const { keyId, rootKeyId, apiId } = on;
  const subject = keyId ? { keyId } : rootKeyId ? { rootKeyId } : { apiId };
  const deletion = calls.find(isDelete);
  if (deletion) return [`${deletion.operation} ${JSON.stringify(subject)}`];
  const isOff = calls.some(
    (call) =>
      call.after?.enabled === false && !isTakenBack(call, calls, ({ after }) => after?.enabled === true),
  );
  const expiries = calls.flatMap((call) => {
    const expires = call.after?.expires;
    if (typeof expires !== 'number') return [];
    const isLater = ({ after }: Audit) =>
      after?.expires === null || (after?.expires !== undefined && after.expires > expires);
    return isTakenBack(call, calls, isLater) ? [] : [expires];
  });
  if (!isOff && expiries.length === 0) return [];
  const fields = {
    ...(isOff ? { enabled: false } : {}),
    ...(expiries.length > 0 ? { expires: Math.min(...expiries) } : {}),
  };
  return [`${operation} ${JSON.stringify({ ...subject, ...fields })}`];
}

/**
 * Tells whether another call that `allows` accepts was certainly done, and certainly later. Two concurrent
 * calls are ordered only by their sequences; if sequence and time disagree, as after a failover, the refusal
 * stands.
 */
function isTakenBack(refusal: Audit, calls: readonly Audit[], allows: (call: Audit) => boolean): boolean {
  return calls.some((call) => {
    if (call.outcome !== 'OK' || !allows(call) || call.time < refusal.time) return false;
    if (call.sequence === undefined || refusal.sequence === undefined) return call.time > refusal.time;
    return call.sequence > refusal.sequence;
  });
}

function parse(text: string): { readonly audit?: Audit } {
  if (!text.startsWith('{')) return {};
  try {
    return JSON.parse(text) as { audit?: Audit };
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
