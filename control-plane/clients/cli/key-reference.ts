import { API_ID } from '#shared/rules/slugs.ts';
import type { Api, Key } from './answers.ts';
import type { Client } from './client.ts';
import { CliError } from './exit.ts';
import { pages } from './pages.ts';
import type { Session } from './session.ts';
import { printable } from './terminal/output.ts';

/** Number of keys that an ambiguous reference lists. */
const LISTED_MAX = 10;

/**
 * The id of a key that is given by its id, its name or the start of its secret. Says which key a name stands for.
 * Rejects with NO if there is none, and with USAGE if there are several.
 */
export async function keyIdOf(session: Session, reference: string): Promise<string> {
  if (reference.startsWith('key_')) return reference;
  const keys = await keysCalled(await session.controlPlane(), reference.replace(/…$/, ''));
  const label = printable(reference);
  const [key] = keys;
  if (key === undefined) {
    const message = `no key that the root key may list has the name ${label}, or a secret that is shown as ${label}`;
    throw new CliError('NO', message, { code: 'NOT_FOUND' });
  }
  const lines = keys.slice(0, LISTED_MAX).map(describe);
  if (keys.length > 1) {
    const amount = keys.length > LISTED_MAX ? `more than ${LISTED_MAX}` : keys.length;
    throw new CliError('USAGE', [`${amount} keys are called ${label}; give an id:`, ...lines].join('\n  '));
  }
  session.note(lines.join());
  return key.keyId;
}

const describe = ({ keyId, name, start, apiId }: Key) =>
  `${keyId} is ${name ? `${printable(name)} (${start}…)` : `${start}…`} in ${apiId}`;

/** The keys with exactly this name, or this start of the secret, and no more than it takes to say that they are many. */
async function keysCalled(client: Client, text: string): Promise<readonly Key[]> {
  const call: Client['call'] = (...request) => client.call(...request);
  const keys: Key[] = [];
  if (text === '') return keys;
  for await (const { items: apis } of pages<Api>(call, 'apis.listApis', {}, 'apis'))
    for (const { id: apiId, keys: number } of apis) {
      if (number === undefined) continue; // it may not be read
      const query = { apiId, search: text.slice(0, 256), cursor: undefined };
      for await (const { items } of pages<Key>(call, 'apis.listKeys', query, 'keys')) {
        keys.push(...items.filter(({ name, start }) => name === text || start === text));
        if (keys.length > LISTED_MAX) return keys;
      }
    }
  return keys;
}

/**
 * The id of an API that is given by its id, or by a name that no other has. A text that is neither, but could be an id, is
 * returned as it is: a call may create that API.
 */
export async function apiIdOf(client: Client, reference: string): Promise<string> {
  const call: Client['call'] = (...request) => client.call(...request);
  const mayBeId = API_ID.test(reference);
  if (mayBeId && (await isApi(call, reference))) return reference;
  const ids: string[] = [];
  for await (const { items } of pages<Api>(call, 'apis.listApis', {}, 'apis'))
    ids.push(...items.flatMap(({ id, name }) => (name === reference ? [id] : [])));
  const label = printable(reference);
  if (ids.length > 1)
    throw new CliError('USAGE', `several APIs have the name ${label}; give an id: ${ids.join(', ')}`);
  const [id = mayBeId ? reference : undefined] = ids;
  if (id === undefined) throw new CliError('NO', `there is no API ${label}`, { code: 'NOT_FOUND' });
  return id;
}

/** Tells whether an API has this id. Where the root key may not read it, what it may is decided by the call itself. */
async function isApi(call: Client['call'], apiId: string): Promise<boolean> {
  try {
    await call('apis.getApi', { apiId });
    return true;
  } catch (error) {
    if (error instanceof CliError) return error.code !== 'NOT_FOUND';
    throw error;
  }
}
