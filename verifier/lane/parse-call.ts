import type { AuthzSettings } from '../http/authz.ts';
import {
  API_KEY,
  AUTHORIZATION,
  CONNECTION,
  CONTENT_LENGTH,
  CR,
  endsIn,
  FORWARDED_FOR,
  follows,
  type Head,
  HOST,
  headersOf,
  PARTIAL,
  scanHead,
  TARGET,
  VERSION,
} from './head.ts';

/** A complete call to the API behind this process. */
export interface Call {
  readonly method: string;
  readonly target: string;
  /** Header names and values, alternating. */
  readonly rawHeaders: readonly string[];
  readonly key: string;
  /** The client's own request id, if well-formed; `''` = none. */
  readonly requestId: string;
  /** `Connection`, which may name headers that are not passed on. */
  readonly connection: string | undefined;
  /** `X-Forwarded-For`. */
  readonly forwardedFor: string | undefined;
  /** True if the connection is closed after the answer. */
  readonly isLast: boolean;
  /** A copy of the body; null = none. */
  readonly body: Buffer | null;
  /** Length of the whole call, in bytes. */
  readonly length: number;
}

/**
 * Recognizes a common call at the start of `bytes`: plain, with one key (or the same key twice), and with a
 * body only if the body has arrived. `partial` = the beginning of such a head. undefined = Node must read it.
 * Do not call it if the key may be in the query.
 */
export function parseCall(
  bytes: Buffer,
  { sources }: AuthzSettings,
  head: Head,
): Call | 'partial' | undefined {
  const method = METHODS.find(({ start }) => follows(bytes, 0, start));
  if (method === undefined)
    return METHODS.some(({ start }) => endsIn(bytes, 0, start)) ? 'partial' : undefined;
  const target = method.start.length - 1;
  let i = target;
  while (TARGET[bytes[i] as number] === 1) i++;
  if (!follows(bytes, i, VERSION)) {
    return endsIn(bytes, i, VERSION) && i < TARGET_LENGTH_MAX ? 'partial' : undefined;
  }
  const lines = i + VERSION.length;
  const body = scanHead(bytes, 0, lines, CALL_HEADERS, head);
  if (body < 0) return body === PARTIAL ? 'partial' : undefined;
  if ((head.headerBits & HOST) === 0) return undefined;
  const length = body + head.length;
  // Passes the head on without waiting: a client that streams a body may expect an answer before the body's
  // end.
  if (length > bytes.length || head.length > SHORT_BODY_BYTES_MAX) return undefined;
  const text = bytes.toString('latin1', 0, body);
  const bearer = head.bearer > 0 && sources.includes('bearer') ? text.slice(head.bearer, head.bearerEnd) : '';
  const apiKey =
    head.apiKey > 0 && sources.includes('x-api-key') ? text.slice(head.apiKey, head.apiKeyEnd) : '';
  const key = bearer || apiKey;
  if (key === '' || (apiKey !== '' && apiKey !== key)) return undefined;
  const rawHeaders: string[] = [];
  let connection: string | undefined;
  let forwardedFor: string | undefined;
  for (let at = lines; bytes[at] !== CR; ) {
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r', colon);
    const value = text.slice(colon + 1, end).trim();
    const name = text.slice(at, colon);
    rawHeaders.push(name, value);
    if ((head.headerBits & FORWARDED_FOR) !== 0 && name.toLowerCase() === 'x-forwarded-for')
      forwardedFor = value;
    if ((head.headerBits & CONNECTION) !== 0 && name.toLowerCase() === 'connection') connection = value;
    at = end + 2;
  }
  return {
    method: method.name,
    target: text.slice(target, i),
    rawHeaders,
    key,
    requestId: head.requestId,
    connection,
    forwardedFor,
    isLast: head.closes,
    body: head.length === 0 ? null : Buffer.from(bytes.subarray(body, length)),
    length,
  };
}

/** Maximum length of a common call's body, as much as one read brings. */
const SHORT_BODY_BYTES_MAX = 65_536;

/** If a target is longer, the lane does not wait for its end. */
const TARGET_LENGTH_MAX = 2048;

/** The beginning of each request line, with the first byte of the target. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'].map((name) => ({
  name,
  start: Buffer.from(`${name} /`),
}));

const CALL_HEADERS = headersOf({
  authorization: AUTHORIZATION,
  'x-api-key': API_KEY,
  'content-length': CONTENT_LENGTH,
  'x-forwarded-for': FORWARDED_FOR,
});
