import type { Entry } from '../core/key-cache.ts';

/** A header line: name and value. */
export type HeaderLine = readonly [name: string, value: string];

/**
 * Maximum length of `X-Key-Meta`, in bytes. With more, the head of an answer could overflow a gateway's
 * buffer.
 */
const META_BYTES_MAX = 2048;

/**
 * Returns the headers that tell the API behind a gateway whose key it was. A header without a value is empty
 * instead of missing, because some gateways replace a missing header by a placeholder or by the client's own.
 * @param entry undefined = no key: all headers are empty
 * @param withMeta adds `X-Key-Meta`, which is empty if `meta` is longer than 2 KiB
 */
export function identityHeaders(entry: Entry | undefined, withMeta: boolean): HeaderLine[] {
  const details = entry?.details;
  const headers: HeaderLine[] = [
    ['X-Key-Id', entry?.keyId ?? ''],
    ['X-Key-Api-Id', entry?.epoch.apiId ?? ''],
    ['X-Key-Name', percentEncoded(details?.name ?? '')],
    ['X-Key-External-Id', percentEncoded(details?.externalId ?? '')],
  ];
  if (withMeta) headers.push(['X-Key-Meta', entry === undefined ? '' : metaHeader(details?.meta ?? '{}')]);
  return headers;
}

/**
 * Returns true for a header that only this process may set. The client's own is removed before the API sees
 * it.
 */
export function isIdentityHeader(name: string): boolean {
  return /^x[^a-z\d]key[^a-z\d]/i.test(name);
}

/**
 * Returns the name in lower case as a server may read it. Behind CGI, WSGI or PHP, `X_Key_Id` and `X.Key.Id`
 * cannot be told from `X-Key-Id`.
 */
export function asReadByServers(name: string): string {
  return /[^a-z\d-]/.test(name) ? name.replace(/[^a-z\d]/g, '-') : name;
}

/**
 * Encodes every character except visible ASCII, and `%`, as in a URL. decodeURIComponent restores the text.
 */
function percentEncoded(text: string): string {
  return /^[\x21-\x24\x26-\x7e]*$/.test(text)
    ? text
    : text.toWellFormed().replace(/[^\x21-\x24\x26-\x7e]+/g, encodeURIComponent);
}

/** Returns JSON in ASCII, with `\uXXXX` for all other characters. */
function metaHeader(json: string): string {
  const ascii = json.replace(
    /[^\x20-\x7e]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return ascii.length > META_BYTES_MAX ? '' : ascii;
}
