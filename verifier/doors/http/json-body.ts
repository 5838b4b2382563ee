import { isUtf8 } from 'node:buffer';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '#shared/rules/errors.ts';
import { BYTE_ORDER_MARK, MARKED } from '#shared/rules/json.ts';

/** A kind of body. */
interface Kind {
  readonly type: string;
  readonly pattern: RegExp;
  readonly noun: string;
}
const JSON_OBJECT: Kind = {
  type: 'application/json',
  pattern: /^application\/json[ \t]*(?:;|$)/i,
  noun: 'a JSON object',
};
export const FORM: Kind = {
  type: 'application/x-www-form-urlencoded',
  pattern: /^application\/x-www-form-urlencoded[ \t]*(?:;|$)/i,
  noun: 'a form',
};

/**
 * Reads the body of a request as a JSON object. Throws ApiError: 415, 413 or 400.
 * @param bytesMax maximum length of the body, in bytes
 */
export async function readJson(
  request: IncomingMessage,
  response: ServerResponse,
  bytesMax: number,
): Promise<Record<string, unknown>> {
  return parseJson(await readBody(request, response, bytesMax));
}

/** Reads the body of a request as a JSON list. Throws ApiError: 415, 413 or 400. */
export async function readJsonList(
  request: IncomingMessage,
  response: ServerResponse,
  bytesMax: number,
): Promise<readonly unknown[]> {
  const value = parse(await readBody(request, response, bytesMax));
  if (!Array.isArray(value)) throw new ApiError('BAD_REQUEST', 'body: must be a JSON list');
  return value;
}

/** Reads the body of a request. Throws ApiError: 415, 413 or 400. */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  bytesMax: number,
  kind = JSON_OBJECT,
): Promise<Buffer> {
  const {
    'content-type': type = '',
    'content-length': length,
    'transfer-encoding': coding,
  } = request.headers;
  const declared = Number(length ?? 0);
  if (coding === undefined && declared === 0)
    throw new ApiError('BAD_REQUEST', `body: required, ${kind.noun}`);
  if (!kind.pattern.test(type)) {
    throw new ApiError('UNSUPPORTED_MEDIA_TYPE', `Content-Type: must be ${kind.type}`);
  }
  if (declared > bytesMax) throw tooLarge(bytesMax);
  if (request.headers.expect !== undefined && request.httpVersion === '1.1') response.writeContinue();
  return read(request, bytesMax);
}

/** Parses a body as a JSON object. Throws ApiError BAD_REQUEST. The caller checks the fields. */
export function parseJson(body: Buffer): Record<string, unknown> {
  const value = parse(body);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ApiError('BAD_REQUEST', 'body: must be a JSON object');
  }
  return value as Record<string, unknown>;
}

function parse(body: Buffer): unknown {
  if (body.length === 0) throw new ApiError('BAD_REQUEST', 'body: required, a JSON object');
  if (!isUtf8(body)) throw new ApiError('BAD_REQUEST', 'body: is not UTF-8');
  const text = body.toString('utf8');
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError('BAD_REQUEST', text.startsWith(BYTE_ORDER_MARK) ? MARKED : 'body: is not JSON');
  }
}

function read(request: IncomingMessage, bytesMax: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > bytesMax) reject(tooLarge(bytesMax));
      else chunks.push(chunk);
    });
    request.once('end', () => resolve(Buffer.concat(chunks)));
    // The client has gone; the error only ends the wait.
    request.once('error', (cause) => reject(new ApiError('BAD_REQUEST', 'body: was cut off', { cause })));
  });
}

const tooLarge = (bytesMax: number) => new ApiError('PAYLOAD_TOO_LARGE', `body: at most ${bytesMax} bytes`);
