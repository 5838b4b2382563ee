import {
  canBeSecret,
  hashSecret,
  isWellFormed,
  SECRET_LENGTH_MAX,
  startOf,
} from '#shared/contract/key-format.ts';
import { parseExactly } from '#shared/lang/exact-json.ts';
import { type InputLine, LINE_BYTES_MAX } from '../read-lines.ts';

/** A key to be sent, and its line. */
export interface Candidate {
  readonly line: number;
  readonly foreign: boolean;
  readonly body: object;
}

/** The reason why a line was refused. Of the line it contains only names of fields. */
export interface Refusal {
  readonly line: number;
  readonly code: string;
  readonly message: string;
}

/**
 * Parses one line of an import: either `{"key"}`, which is hashed here and sent nowhere, or `{"sha256"}`,
 * with further fields, which the server validates.
 * @returns undefined for an empty line
 */
export function readCandidate({ number, text }: InputLine): Candidate | Refusal | undefined {
  const refuse = (message: string): Refusal => ({ line: number, code: 'BAD_REQUEST', message });
  if (text === undefined) return refuse(`longer than ${LINE_BYTES_MAX} bytes, or not UTF-8`);
  const json = text.replace(/^\ufeff/, '').trim();
  if (json === '') return undefined;
  const fields = parseObject(json);
  if (fields === 'rounded') return refuse('has a whole number of more than 53 bits; write it as a string');
  if (!fields) return refuse('not a JSON object');
  const { key, ...rest } = fields;
  if (key === undefined && fields['sha256'] === undefined) return refuse('key or sha256: required');
  if (key === undefined) return { line: number, foreign: fields['foreign'] !== false, body: rest };
  if (fields['sha256'] !== undefined) return refuse('key and sha256: give only one of them');
  if (typeof key !== 'string' || !canBeSecret(key))
    return refuse(`key: must be 1 to ${SECRET_LENGTH_MAX} printable ASCII characters`);
  const foreign = !isWellFormed(key);
  // Which part of a foreign key may be shown is unknown: it has a start only if the line gives one.
  const start = foreign ? {} : { start: startOf(key) };
  return { line: number, foreign, body: { ...start, ...rest, foreign, sha256: hashSecret(key) } };
}

function parseObject(json: string): Record<string, unknown> | 'rounded' | undefined {
  let isRounded = false;
  try {
    const value = parseExactly(json, () => {
      isRounded = true;
    });
    if (isRounded) return 'rounded';
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined; // reported by the caller; the parser's message would repeat the line
  }
}
