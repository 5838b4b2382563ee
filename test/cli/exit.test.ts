import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Client } from '../../control-plane/cli/client.ts';
import { EXITS, type Exit } from '../../control-plane/cli/exit.ts';
import { ERRORS, type ErrorCode } from '../../shared/contract/errors.ts';

/** Statuses that scripts rely on: never renumbered, and no error becomes another kind. */
const EXPECTED: Readonly<Record<ErrorCode, Exit>> = {
  BAD_REQUEST: 'USAGE',
  UNAUTHORIZED: 'NOT_PERMITTED',
  INSUFFICIENT_PERMISSIONS: 'NOT_PERMITTED',
  NOT_FOUND: 'NO',
  METHOD_NOT_ALLOWED: 'BUG',
  REQUEST_TIMEOUT: 'UNAVAILABLE',
  CONFLICT: 'NO',
  VERIFIERS_TOO_OLD: 'NO',
  PAYLOAD_TOO_LARGE: 'USAGE',
  URI_TOO_LONG: 'USAGE',
  UNSUPPORTED_MEDIA_TYPE: 'BUG',
  EXPECTATION_FAILED: 'BUG',
  RATE_LIMITED: 'UNAVAILABLE',
  HEADERS_TOO_LARGE: 'USAGE',
  INTERNAL_SERVER_ERROR: 'BUG',
  BAD_GATEWAY: 'UNAVAILABLE',
  GATEWAY_TIMEOUT: 'UNAVAILABLE',
  SERVICE_UNAVAILABLE: 'UNAVAILABLE',
};
let code: ErrorCode;
const server = createServer((request, response) => {
  if (request.url?.startsWith('/v1/apis.listApis')) return void response.end('{"apis":[]}');
  const error = { code, message: 'said', docs: '', requestId: 'r-1' };
  response.writeHead(ERRORS[code][0], { 'retry-after': '3' }).end(JSON.stringify({ error }));
});
beforeAll(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
afterAll(() => server.close());

test.each(Object.keys(ERRORS) as ErrorCode[])(
  'the exit status for %s is what scripts were told, with the request id and how long to wait',
  async (each) => {
    code = each;
    const base = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const call = new Client(base, 'control plane', 'root').call('keys.getKey', { keyId: 'key_x' });
    await expect(call).rejects.toMatchObject({
      exit: EXPECTED[each],
      code: each,
      message: 'said',
      requestId: 'r-1',
      retryAfterMs: 3000,
    });
  },
);

test('the exit statuses are the numbers that scripts were told', () => {
  expect(Object.fromEntries(Object.entries(EXITS).map(([name, [status]]) => [name, status]))).toEqual({
    OK: 0,
    NO: 1,
    USAGE: 64,
    DATA: 65,
    UNAVAILABLE: 69,
    BUG: 70,
    PENDING: 75,
    NOT_PERMITTED: 77,
    CONFIG: 78,
    INTERRUPTED: 130,
  });
});
