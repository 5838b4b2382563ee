import { perVerdict } from '#shared/contract/verdict-codes.ts';
import { flattenString } from '#shared/lang/flatten-string.ts';
import type { Verdict } from './verdict.ts';
import { fieldsJson, showsKey } from './verdict-fields.ts';

/** Returns the body of a verifyKey response. */
export function verdictBody(verdict: Verdict, requestId: string): string {
  const start = STARTS[verdict.code];
  if (!showsKey(verdict)) return `${start},"requestId":"${requestId}"}`;
  const { entry, spending } = verdict;
  // A fast path for most keys.
  return entry.details === undefined && entry.expires === 0 && spending === undefined
    ? `${start},"keyId":"${entry.keyId}","apiId":"${entry.epoch.apiId}","enabled":${entry.enabled},"meta":{},"requestId":"${requestId}"}`
    : `${start}${fieldsJson(verdict)},"requestId":"${requestId}"}`;
}

/** The beginning of a body for each code. */
const STARTS = perVerdict(({ status }, code) => flattenString(`{"valid":${status === 200},"code":"${code}"`));
