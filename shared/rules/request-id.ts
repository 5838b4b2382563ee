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
