import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { ApiError } from '#shared/contract/errors.ts';
import { checkStrings } from './strings.ts';

/**
 * Parses bodies as JSON, and refuses what could not be stored as it was sent. Bytes that are not UTF-8 and
 * unpaired surrogates would become U+FFFD, so that two external ids could become the same. Names that change
 * an object's prototype are refused too.
 */
export function readJson(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    if (!isUtf8(body)) return done(new ApiError('BAD_REQUEST', 'body: must be UTF-8'));
    const text = body.toString('utf8');
    void parse(request, text, (error, value) =>
      done(error && isJson(text) ? prototypeNamed() : error, value),
    );
  });
  app.addHook('preValidation', async ({ body, routeOptions }) => {
    if (!routeOptions.config.operation?.checksStrings) checkStrings(body);
  });
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text.replace(/^\ufeff/, ''));
    return true;
  } catch {
    return false; // the parser's own error says so
  }
}

function prototypeNamed(): ApiError {
  return new ApiError('BAD_REQUEST', 'body: must have no __proto__, and no constructor with a prototype');
}
