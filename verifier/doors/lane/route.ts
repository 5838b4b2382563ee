import { routeOf } from '../../core/verdict.ts';

/** The first byte of a gateway's request. */
const GET = 71;

/** Returns the client's request as a gateway tells it in its headers; undefined = it does not. */
export function routeIn(bytes: Buffer, at: number, length: number): string | undefined {
  if (bytes[at] !== GET) return undefined;
  const head = bytes.toString('latin1', at, at + length);
  const [, method] = /\r\nx-(?:original|forwarded)-method: *([^\r]+)\r/i.exec(head) ?? [];
  const [, target] = /\r\nx-(?:original|forwarded)-uri: *([^\r]+)\r/i.exec(head) ?? [];
  return routeOf(method, target);
}
