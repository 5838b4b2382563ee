import { VERDICTS } from '#shared/verdict-codes.ts';
import type { KeyVerdict } from './key-verifier.ts';

/**
 * Reads a verifyKey response. undefined = it is none, or one that a later version may give: then nothing is known of the key.
 */
export function verdictFrom(text: string): KeyVerdict | undefined {
  const body = parsed(text);
  if (!isObject(body)) return undefined;
  const { requestId: _, ...verdict } = body;
  const row = rowOf(verdict['code']);
  if (row === undefined || verdict['valid'] !== (row.status === 200)) return undefined;
  const { keyId, apiId, enabled, meta } = verdict;
  const isWhole =
    !row.showsKey ||
    (typeof keyId === 'string' &&
      typeof apiId === 'string' &&
      typeof enabled === 'boolean' &&
      isObject(meta));
  return isWhole ? (verdict as object as KeyVerdict) : undefined;
}

function rowOf(code: unknown) {
  return typeof code === 'string' && Object.hasOwn(VERDICTS, code)
    ? VERDICTS[code as keyof typeof VERDICTS]
    : undefined;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
