/**
 * `X-Forwarded-For` for whom a request is passed on to: what the client said with its address after it, for only what
 * comes last is to be believed.
 * @param said the client's own; undefined = it sent none
 * @param address undefined = it has none, as on a Unix socket
 */
export function forwardedFor(said: string | undefined, address = 'unknown'): string {
  const own = address.replace('::ffff:', '');
  return said === undefined ? own : `${said}, ${own}`;
}
