import { randomBytes } from 'node:crypto';

const WELL_FORMED = /^[A-Za-z0-9._-]{1,128}$/;
const BOOT = randomBytes(8).toString('hex');
let count = 0;

/** The client's own request id when it is well-formed, else one that no other process and no other request has. */
export function requestIdFrom(header: string | string[] | undefined): string {
  return typeof header === 'string' && WELL_FORMED.test(header) ? header : newRequestId();
}

/** Unique by process and count: cheap, and not a secret. */
export function newRequestId(): string {
  count = (count + 1) % 0x1_0000_0000_0000;
  return `${BOOT}${count.toString(36)}`;
}

/**
 * Texts that no other process has, and that none can guess who has not seen one of them: what followers are registered
 * as, and what pairs replies with their requests.
 */
export function uniqueTexts(): () => string {
  const newId = randomBytes(12).toString('base64url');
  let next = 0;
  return () => `${newId}.${(next++).toString(36)}`;
}
