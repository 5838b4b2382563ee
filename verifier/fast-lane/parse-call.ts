import type { AuthzSettings } from '../endpoints/authz.ts';
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
} from './scan-head.ts';

/** A call of the API behind this process, whole. */
export interface Call {
  readonly method: string;
  readonly target: string;
  /** Names and values in turn. */
  readonly rawHeaders: readonly string[];
  readonly key: string;
  /** The client's own, well-formed; `''` = none was sent. */
  readonly requestId: string;
  /** `Connection`, which may name headers that stay behind. */
  readonly connection: string | undefined;
  /** `X-Forwarded-For`. */
  readonly forwardedFor: string | undefined;
  /** True if the connection is closed after the answer. */
  readonly isLast: boolean;
  /** A copy; null = there is none. */
  readonly body: Buffer | null;
  /** Bytes of all of it. */
  readonly length: number;
}

/**
 * Recognises a common call at the start of `bytes`: plain, with one key, the same where it comes twice, and with a body
 * only where that is here already; `partial` = its head, as far as it is here. undefined = it is for Node to judge. Not where
 * the key may be in the query.
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
  // Whoever streams a body may wait for an answer before its end: the API has to see its head now.
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

/** A longer body is not a common call's; as much as one read brings. */
const SHORT_BODY_BYTES_MAX = 65_536;

/** One whose end is further is not waited for. */
const TARGET_LENGTH_MAX = 2048;

/** With the first byte of a target behind each. */
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
