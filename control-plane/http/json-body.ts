import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { ApiError } from '#shared/errors.ts';

/** The form of a string that can be stored exactly as it was sent. */
const RULE = 'must be well-formed Unicode';

/** A route that judges the parts of its body one by one says so, and calls `checkStrings` for each. */
declare module 'fastify' {
  interface FastifyContextConfig {
    checksStrings?: true;
  }
}

/**
 * Reads bodies as JSON, and refuses what would not be stored as it was sent. Bytes that are not UTF-8 and halves of
 * surrogate pairs would each become U+FFFD, so that two owners could become one. Names that change an object's prototype
 * are refused too.
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
    if (!routeOptions.config.checksStrings) checkStrings(body);
  });
}

/** Throws BAD_REQUEST naming the field in which, at any depth, a string or a name is not well-formed. */
export function checkStrings(body: unknown): void {
  if (typeof body !== 'object' || body === null) return;
  for (const [field, value] of Object.entries(body)) {
    if (!field.isWellFormed()) throw new ApiError('BAD_REQUEST', `names of fields: ${RULE}`);
    if (!isWellFormed(value)) throw new ApiError('BAD_REQUEST', `${field}: ${RULE}`);
  }
}

/** Without recursion: how deep a body may be is judged later. */
function isWellFormed(whole: unknown): boolean {
  const left = [whole];
  while (left.length > 0) {
    const value = left.pop();
    if (typeof value === 'string' && !value.isWellFormed()) return false;
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, part] of Object.entries(value)) {
      if (!name.isWellFormed()) return false;
      left.push(part);
    }
  }
  return true;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text.replace(/^\ufeff/, ''));
    return true;
  } catch {
    return false; // the parser's own refusal says so
  }
}

function prototypeNamed(): ApiError {
  return new ApiError('BAD_REQUEST', 'body: must have no __proto__, and no constructor with a prototype');
}
