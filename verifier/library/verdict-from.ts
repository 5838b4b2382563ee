import { VERDICTS } from '#shared/contract/verdict-codes.ts';
import { REQUIRED_TYPES } from '../core/verdict-body.ts';
import type { KeyVerdict } from './key-verifier.ts';

/**
 * Parses a verifyKey response. Returns undefined if the text is no verdict, or one that only a later version
 * knows; it then says nothing about the key.
 */
export function verdictFrom(text: string): KeyVerdict | undefined {
  const body = parseJson(text);
  if (!isObject(body)) return undefined;
  const { requestId: _, ...verdict } = body;
  const row = rowOf(verdict['code']);
  if (row === undefined || verdict['valid'] !== (row.status === 200)) return undefined;
  const isWhole = !row.showsKey || REQUIRED_TYPES.every(([name, type]) => isOfType(type, verdict[name]));
  return isWhole ? (verdict as object as KeyVerdict) : undefined;
}

function rowOf(code: unknown) {
  return typeof code === 'string' && Object.hasOwn(VERDICTS, code)
    ? VERDICTS[code as keyof typeof VERDICTS]
    : undefined;
}

const isOfType = (type: string, value: unknown): boolean =>
  type === 'object' ? isObject(value) : typeof value === type;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
