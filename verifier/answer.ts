import type { ServerResponse } from 'node:http';
import { type ApiError, errorBody, RETRY_AFTER_SECONDS } from '#shared/errors.ts';
import { PROBLEM_TYPE, problemBody } from './problem.ts';

/** The content type of all but a gateway's answers. */
export const JSON_TYPE = 'application/json; charset=utf-8';

/** How long a connection is kept to read what a client still sends after its request was refused, milliseconds. */
export const LINGER_MS = 1000;
/** Bytes of a refused body that are read and thrown away before the connection is cut. */
const LINGER_BYTES_MAX = 1_048_576;

/**
 * Answers with a whole body. The request id is on the response already (see `http.ts`).
 * @param type content type; undefined = there is no body
 */
export function answer(
  response: ServerResponse,
  status: number,
  type: string | undefined,
  body: string,
): void {
  const lingering = mayBeLong(response);
  if (lingering) response.shouldKeepAlive = false;
  if (type !== undefined) response.setHeader('Content-Type', type);
  response.writeHead(status, { 'Content-Length': Buffer.byteLength(body) });
  if (!lingering) return void response.end(body);
  response.write(body);
  linger(response);
}

/** As `answer`, in JSON. */
export function answerJson(response: ServerResponse, status: number, body: string): void {
  answer(response, status, JSON_TYPE, body);
}

/** The contract's error body; to a gateway, one that it may hand to its client. */
export function answerError(response: ServerResponse, error: ApiError, requestId: string): void {
  const { code, status } = error;
  if (code === 'SERVICE_UNAVAILABLE') response.setHeader('Retry-After', RETRY_AFTER_SECONDS);
  if (response.req.url?.startsWith('/authz/')) {
    answer(response, status, PROBLEM_TYPE, problemBody({ status, code, requestId }));
  } else answerJson(response, status, JSON.stringify(errorBody(code, error.message, requestId)));
}

/** Whether much may still come of a request that is being answered; a short rest is left to Node to skip. */
function mayBeLong({ req: request }: ServerResponse): boolean {
  if (request.complete) return false;
  const { 'transfer-encoding': coding, 'content-length': length, expect } = request.headers;
  return coding !== undefined || expect !== undefined || Number(length) > request.readableHighWaterMark;
}

/**
 * Reads on for a while before the connection is closed: closing it with unread bytes makes the kernel send a
 * reset, which can overtake the answer.
 */
function linger(response: ServerResponse): void {
  const request = response.req;
  let bytes = 0;
  const end = () => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(end, LINGER_MS);
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > LINGER_BYTES_MAX) end();
  });
  request.once('end', end).once('close', end).resume();
}
