import { isEnabled, type Verdict } from '../core/verdict.ts';
import { fieldValues, NO_META, showsKey, type VerdictValues } from '../core/verdict-body.ts';
import type { KeyVerdict, KnownKey } from './key-verifier.ts';

/**
 * Returns a verdict for applications: a new object with the fields of a verifyKey response. Its `meta` is
 * frozen.
 */
export function keyVerdict(verdict: Verdict): KeyVerdict {
  const { code, effectivePermissions, spending } = verdict;
  const valid = code === 'VALID';
  if (!showsKey(verdict)) return { valid, code } as KeyVerdict;
  const { keyId, expires, details, epoch } = verdict.entry;
  // A fast path for most keys: V8 creates nothing faster than an object literal.
  if (details === undefined && expires === 0 && spending === undefined) {
    const enabled = isEnabled(verdict.entry, effectivePermissions);
    return { valid, code, keyId, apiId: epoch.apiId, enabled, meta: NO_META } as KeyVerdict;
  }
  const values: VerdictValues & KnownKey = fieldValues(verdict);
  return { valid, code, ...values } as KeyVerdict;
}
