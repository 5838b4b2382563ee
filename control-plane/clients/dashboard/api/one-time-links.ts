import { Failure, putHandover, takeHandover } from './client.ts';

const ALGORITHM = { name: 'AES-GCM', length: 256 } as const;
const IV_BYTES = 12;

/**
 * Encrypts a secret in this browser, stores the ciphertext at the server, and returns the link that shows the secret
 * once. The key that decrypts it is in the fragment of the link, which browsers send to no server.
 */
export async function linkTo(secret: string): Promise<string> {
  const key = await crypto.subtle.generateKey(ALGORITHM, true, ['encrypt']);
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const bytes = await crypto.subtle.encrypt({ ...ALGORITHM, iv }, key, new TextEncoder().encode(secret));
  const id = await putHandover(textOf(new Uint8Array([...iv, ...new Uint8Array(bytes)])));
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', key));
  return new URL(`#/handover/${id}.${textOf(raw)}`, document.baseURI).href;
}

/** Takes the secret of a link; the link shows nothing from then on. Rejects with a Failure. */
export async function openLink(part: string): Promise<string> {
  const [, id, keyText] = /^([\w-]{22})\.([\w-]{43})$/.exec(part) ?? [];
  if (id === undefined || keyText === undefined)
    throw new Failure('BAD_REQUEST', 'the link is not complete; copy all of it');
  const bytes = bytesOf(await takeHandover(id));
  const key = await crypto.subtle.importKey('raw', bytesOf(keyText), ALGORITHM, false, ['decrypt']);
  const [iv, content] = [bytes.subarray(0, IV_BYTES), bytes.subarray(IV_BYTES)];
  return new TextDecoder().decode(await crypto.subtle.decrypt({ ...ALGORITHM, iv }, key, content));
}

/** Browsers encrypt only on pages that came over TLS, or from this machine. */
export const canEncrypt = () => globalThis.crypto?.subtle !== undefined;

const textOf = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

const bytesOf = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (character) =>
    character.charCodeAt(0),
  );
