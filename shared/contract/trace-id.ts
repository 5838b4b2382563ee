/** Version, trace id, parent id and flags (W3C Trace Context §3.2.2); later versions may go on behind a further dash. */
const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;

/**
 * Reads the trace id of a `traceparent` header, 32 hex digits.
 * @returns undefined where there is none, or none that is well-formed: who gets it goes on without a trace (ibid. §3.2.3)
 */
export function traceIdOf(header: string | readonly string[] | undefined): string | undefined {
  const line = typeof header === 'object' && header.length === 1 ? header[0] : header;
  const match = typeof line === 'string' ? TRACEPARENT.exec(line.trim()) : null;
  return match === null || (match[1] === '00' && match[3] !== undefined) ? undefined : match[2];
}

/** Reads the same from a message's header lines, names and values in turn. */
export function traceIdIn(raw: readonly string[]): string | undefined {
  const lines = raw.filter((_, i) => i % 2 === 1 && raw[i - 1]?.toLowerCase() === 'traceparent');
  return traceIdOf(lines);
}
