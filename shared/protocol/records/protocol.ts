import type { StoredFields } from './key-record.ts';
import { hasQuota } from './limit.ts';

/**
 * The protocol of this code: what a verifier understands, and a control plane may write. An older verifier would
 * ignore a field that it does not know. So a write that needs newer verifiers says which protocol it needs, and the
 * scripts refuse older verifiers (gate.lua, register.lua, sync.lua). Raise it with the first such field.
 */
export const PROTOCOL = 2;

/** Returns the protocol that verifiers must speak to obey a record with these fields, and this refill and these thresholds of its credits. */
export function protocolFor(
  recordId: string,
  fields: StoredFields,
  credits?: { readonly refill?: string; readonly thresholds?: string },
): number {
  const { refill = '', thresholds = '' } = credits ?? {};
  const { l = '', L: limits = '', R: roles = '', O: origins = '', C: concurrency = '' } = fields;
  const isNew =
    origins !== '' ||
    concurrency !== '' ||
    (limits !== '' && recordId.startsWith('role_')) ||
    ((roles !== '' || credits) && recordId.startsWith('identity_')) ||
    hasQuota(l + limits) ||
    /^w|[-+{]/.test(refill) ||
    thresholds !== '';
  return isNew ? 2 : 1;
}

/**
 * Returns the name under which a verifier registers, which also tells its region, if it has one. The scripts read the protocol
 * from it.
 */
export const memberName = (text: string, region = ''): string =>
  `${PROTOCOL}.${region && `${region}.`}${text}`;
