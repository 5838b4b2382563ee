import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { BYTE_ORDER_MARK, MARKED } from '#shared/contract/byte-order-mark.ts';
import { ApiError } from '#shared/contract/errors.ts';
import { parseExactly } from '#shared/lang/exact-json.ts';

/**
 * Parses bodies as JSON, and refuses what could not be stored as it was sent. Bytes that are not UTF-8, and
 * unpaired surrogates, which the pipeline refuses, would become U+FFFD, so that two external ids could become the
 * same. Names that change an object's prototype are refused too.
 */
export function readJson(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    if (!isUtf8(body)) return done(new ApiError('BAD_REQUEST', 'body: must be UTF-8'));
    const text = body.toString('utf8');
    if (text.startsWith(BYTE_ORDER_MARK)) return done(new ApiError('BAD_REQUEST', MARKED));
    void parse(request, text, (error) => {
      if (error) return done(isJson(text) ? prototypeNamed() : error);
      // A whole number that would be rounded becomes infinite, which no field takes.
      done(
        null,
        parseExactly(text, () => Number.POSITIVE_INFINITY),
      );
    });
  });
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // the parser's own error says so
  }
}

function prototypeNamed(): ApiError {
  return new ApiError('BAD_REQUEST', 'body: must have no __proto__, and no constructor with a prototype');
}
