import { Type } from 'typebox';
import { API_ID_PATTERN } from '#shared/contract/api-id.ts';
import { lastUsed, UsedKey, withNames } from '../../keys/key-answer.ts';
import type { KeyPage } from '../../keys/key-view.ts';
import type { Caller } from '../../root-keys/root-keys.ts';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { ExternalId, Fields, Limit, PageCursor } from '../../serve/request-parts.ts';
import { Cursor, List } from '../../serve/schemas/field-schemas.ts';
import type { Services } from '../../services.ts';

/** The API after which the page begins, or the API and the creation number at which it begins. */
const PLACE = new RegExp(`^(?:after:(${API_ID_PATTERN})|in:(${API_ID_PATTERN}):(\\d{1,15}))$`);
/** Maximum number of APIs that one call examines. */
const APIS_EXAMINED_MAX = 1000;

/** The place where a listing goes on: after an API, or within one. */
interface Place {
  readonly after: string;
  readonly within?: { readonly apiId: string; readonly from: number };
}

export const listKeysOfIdentity = operation({
  name: 'identities.listKeys',
  id: 'listKeysOfIdentity',
  summary: 'List the keys of an identity in all APIs',
  description:
    'Lists the keys with this `externalId`, API by API, each in order of creation; there need not be an identity. Leaves out APIs whose keys the root key may not read. A page may be short and still have a cursor.',
  permissions: ['api.<apiId>.read_key', 'api.<apiId>.read_api'],
  authorizesItself: true,
  request: Fields({
    externalId: ExternalId,
    limit: Limit('Keys'),
    cursor: PageCursor({ minLength: 1, maxLength: 160 }),
  }),
  response: Type.Object({ keys: List(UsedKey), cursor: Cursor }),
  errors: [],
  example: { externalId: 'ada', limit: '25' },
  async handle({ request, caller }, services) {
    const { externalId, limit, cursor } = request;
    const listing = ['identities.listKeys', externalId] as const;
    const place = cursor === undefined ? { after: '' } : placeIn(openCursor(listing, cursor, PLACE));
    const { keys, next } = await readPage(externalId, Number(limit), place, caller, services);
    return {
      keys: await withNames(services, keys),
      ...(next ? { cursor: makeCursor(listing, textOf(next)) } : {}),
    };
  },
});

async function readPage(
  externalId: string,
  limit: number,
  place: Place,
  caller: Caller,
  { identities, view, usage }: Services,
) {
  const keys: (KeyPage['keys'][number] & { readonly lastUsedAt?: number })[] = [];
  /** Adds the API's keys to the page; returns the place where the listing goes on, if the page is full. */
  const add = async (apiId: string, from?: number): Promise<Place | undefined> => {
    const page = await view.list(apiId, { externalId }, limit - keys.length, 'asc', from);
    const usageTimes = await usage.lastUsedAtOf(apiId, page?.keys.map(({ keyId }) => keyId) ?? []);
    keys.push(...(page?.keys.map((key, i) => ({ ...key, ...lastUsed(usageTimes[i]) })) ?? []));
    if (page?.next !== undefined) return { after: apiId, within: { apiId, from: page.next } };
    return keys.length === limit ? { after: apiId } : undefined;
  };
  const { within } = place;
  const full = within && mayRead(caller, within.apiId) ? await add(within.apiId, within.from) : undefined;
  if (full) return { keys, next: full };
  let { after } = place;
  for (let examined = 0; examined < APIS_EXAMINED_MAX; ) {
    const page = await identities.apisWithKeys(externalId, after, readableApis(caller));
    for (const apiId of page.apiIds) {
      const next = mayRead(caller, apiId) ? await add(apiId) : undefined;
      if (next) return { keys, next };
    }
    if (page.next === undefined) return { keys };
    after = page.next;
    examined += page.examined;
  }
  return { keys, next: { after } };
}

const mayRead = ({ permissions }: Caller, apiId: string) =>
  permissions.allows(apiId, 'read_key') && permissions.allows(apiId, 'read_api');

/** The only APIs that the caller may read, sorted; undefined = not restricted to some. */
const readableApis = ({ permissions }: Caller) =>
  permissions.apisWith('read_key') ?? permissions.apisWith('read_api');

function placeIn([after, apiId = '', from]: readonly string[]): Place {
  return after === undefined ? { after: apiId, within: { apiId, from: Number(from) } } : { after };
}

const textOf = ({ after, within }: Place): string =>
  within ? `in:${within.apiId}:${within.from}` : `after:${after}`;
