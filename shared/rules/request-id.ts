import { randomBytes } from 'node:crypto';

const WELL_FORMED = /^[A-Za-z0-9._-]{1,128}$/;
const BOOT = randomBytes(8).toString('hex');
let count = 0;

/** Returns the client's request id if it is well-formed, otherwise a new one. */
export function requestIdFrom(header: string | string[] | undefined): string {
  return typeof header === 'string' && WELL_FORMED.test(header) ? header : newRequestId();
}

/** Returns an id that no other process and no other request has. It is cheap, and not secret. */
export function newRequestId(): string {
  count = (count + 1) % 0x1_0000_0000_0000;
  return `${BOOT}${count.toString(36)}`;
}

/**
 * Returns a function that creates unique texts, for the names of followers and to pair replies with requests.
 * No other process has the same texts, and nobody can guess one without having seen another.
 */
export function uniqueTexts(): () => string {
  const newId = randomBytes(12).toString('base64url');
  let next = 0;
  return () => `${newId}.${(next++).toString(36)}`;
}

/**
 * Version, trace id, parent id and flags (W3C Trace Context §3.2.2). Later versions may add parts after
 * another dash.
 */
const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;

/**
 * Returns the trace id of a `traceparent` header, 32 hex digits.
 * @returns undefined if there is no well-formed one; the recipient then continues without a trace (ibid.
 * §3.2.3)
 */
export function traceIdOf(header: string | readonly string[] | undefined): string | undefined {
  const line = typeof header === 'object' && header.length === 1 ? header[0] : header;
  const match = typeof line === 'string' ? TRACEPARENT.exec(line.trim()) : null;
  return match === null || (match[1] === '00' && match[3] !== undefined) ? undefined : match[2];
}

/**
 * Returns the trace id from a message's headers.
 * @param raw header names and values, alternating
 */
export function traceIdIn(raw: readonly string[]): string | undefined {
  const lines = raw.filter((_, i) => i % 2 === 1 && raw[i - 1]?.toLowerCase() === 'traceparent');
  return traceIdOf(lines);
}
