import type { Entry } from '../core/key-cache.ts';

/** A header line: name and value. */
export type HeaderLine = readonly [name: string, value: string];

/** Largest `X-Key-Meta`, bytes: with more, the head of an answer could overflow a gateway's buffer. */
const META_BYTES_MAX = 2048;

/**
 * Makes the headers that tell the API behind a gateway whose key it was. Every header is always there, empty where
 * there is no value: some gateways pass on a placeholder, or the client's own header, for one that is missing.
 * @param entry undefined = nobody: all are empty
 * @param withMeta whether `X-Key-Meta` is one of them; empty where meta is longer than 2 KiB
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

/** Tells whether only this process may set a header; the client's own is removed before the API sees it. */
export function isIdentityHeader(name: string): boolean {
  return /^x[^a-z\d]key[^a-z\d]/i.test(name);
}

/**
 * The name, in lower case, by which a server may know a header: behind CGI, WSGI or PHP `X_Key_Id` and `X.Key.Id` cannot
 * be told from `X-Key-Id`.
 */
export function asReadByServers(name: string): string {
  return /[^a-z\d-]/.test(name) ? name.replace(/[^a-z\d]/g, '-') : name;
}

/** Every character but visible ASCII, and `%`, as in a URL, so that decodeURIComponent gives the text back. */
function percentEncoded(text: string): string {
  return /^[\x21-\x24\x26-\x7e]*$/.test(text)
    ? text
    : text.toWellFormed().replace(/[^\x21-\x24\x26-\x7e]+/g, encodeURIComponent);
}

/** JSON in ASCII: what is not becomes `\uXXXX`. */
function metaHeader(json: string): string {
  const ascii = json.replace(
    /[^\x20-\x7e]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return ascii.length > META_BYTES_MAX ? '' : ascii;
}
