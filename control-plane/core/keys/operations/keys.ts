import { type Static, Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { cameLate } from '#shared/protocol/log/write-error.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import { LENGTH_MS, RETENTION } from '#shared/protocol/records/usage.ts';
import type { ChangeWriter, Propagation } from '#shared/protocol/writer/writer.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { isWellFormed } from '#shared/rules/key-format.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import type { Apis } from '../../apis/apis.ts';
import type { Debts, RoleNames, UsesOfKeys } from '../../ports.ts';
import type { KeyFilter, KeyView } from '../../records/key-view.ts';
import type { OrderedKeys, Place, ValueOrder } from '../../records/ordered-keys.ts';
import { auditView } from '../../schema/audit-event.ts';
import { IfSequence, PropagationResponse, SequenceText, WaitMs } from '../../schema/changes.ts';
import {
  CHANGED_CREDITS,
  CREDITS_OPERATION,
  CreditsResponse,
  creditsChange,
  NEW_CREDITS,
  newCredits,
} from '../../schema/credits.ts';
import { checkMeta, ExternalId, OPTIONAL_FIELDS, OwnerId, withoutAliases } from '../../schema/key-fields.ts';
import { checkLimits } from '../../schema/limits.ts';
import { Cursor, Limit, makeCursor, Only, openCursor, PageCursor, Search } from '../../schema/lists.ts';
import { IF_MANAGED, MANAGED_FILTER, MANAGED_PREFIX, NEW_MANAGED } from '../../schema/managed.ts';
import { checkPlaces } from '../../schema/places.ts';
import {
  ApiId,
  Bytes,
  Fields,
  Id,
  KeyId,
  List,
  Moment,
  Prefix,
  Secret,
  Time,
} from '../../schema/primitives.ts';
import { absence, apiNotFound, recordNotFound, requireApi } from '../../serve/authorization.ts';
import type { Call } from '../../serve/call.ts';
import { nearest } from '../../serve/nearest.ts';
import { operation } from '../../serve/operation.ts';
import { changeCredits } from '../credit-changes.ts';
import {
  CHANGES,
  checkLifetime,
  identityOf,
  KeyAnswer,
  keyIdExample,
  type LifetimeStores,
  type NameStores,
  PEPPERED,
  recordsIn,
  rolesOf,
  StateOf,
  storedChanges,
  UsedKey,
  withNames,
} from '../key-answer.ts';
import type { Keys } from '../keys.ts';

const { name, ...optionalFields } = OPTIONAL_FIELDS;

export const createKey = operation({
  name: 'keys.createKey',
  kind: 'change',
  summary: 'Create a key',
  description:
    'Every verifier accepts the key as soon as this call returns. An unknown API is created too, unless API_AUTO_CREATE is off. The API may have rules for `expires` (updateApi).',
  permissions: ['api.<apiId>.create_key'],
  request: Fields({
    apiId: ApiId,
    name,
    prefix: Type.Optional(Prefix('Prefix of the key, before an underscore; default: that of the API.')),
    byteLength: Type.Optional(Bytes('Number of random bytes in the key; default: that of the API, or 16.')),
    ...optionalFields,
    ...NEW_CREDITS,
    ...NEW_MANAGED,
    enabled: Type.Boolean({ default: true, description: 'false: the key is refused until it is enabled.' }),
  }),
  response: Type.Object(
    {
      keyId: Id('the key'),
      key: Secret,
      expires: Type.Optional(Time("When the key expires, if the API's `defaultLifetimeMs` says so")),
    },
    { examples: [{ keyId: keyIdExample, key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' }] },
  ),
  adds: true,
  event: 'key.created',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { apiId: 'shop', name: 'Ada', meta: { plan: 'pro' }, ratelimit: { limit: 100, duration: 60_000 } },
  async handle(
    call,
    { apis, keys, roles, clock }: { apis: Apis; keys: Keys; roles: RoleNames; clock: Clock },
  ) {
    const {
      meta = {},
      remaining,
      refill,
      thresholds,
      roles: roleNames,
      ...fields
    } = withoutAliases(call.request);
    checkMeta(meta);
    checkLimits(fields);
    checkPlaces(fields);
    checkExpires(fields.expires, clock.wallMs());
    const key = { ...fields, ...(roleNames ? { roles: await roles.idsOf(roleNames) } : {}), meta };
    const credits = newCredits({ remaining, refill, thresholds });
    const withCredits = credits ? { credits } : {};
    const created = await keys.create({ ...key, ...withCredits }, call.draw).catch(async (error: unknown) => {
      throw await withNearestApi(error, call, apis);
    });
    call.giveTurnBack();
    const { expires = key.expires } = created;
    const after = { ...auditView(storedFields({ ...key, ...(expires && { expires }) })), ...withCredits };
    call.note({ keyId: created.keyId }, { after });
    return created;
  },
});

function checkExpires(expires: number | undefined, nowMs: number): void {
  if (expires === undefined || expires > nowMs) return;
  throw new ApiError('BAD_REQUEST', 'expires: must be in the future');
}

/** The number of APIs among which the one that a caller meant is searched. */
const APIS_COMPARED = 100;

/** Adds the nearest id of an API that the caller may read to the error about an unknown API. */
async function withNearestApi(error: unknown, { caller, request }: Call, apis: Apis): Promise<unknown> {
  const { apiId } = request as { readonly apiId: string };
  if (!(error instanceof ApiError) || error.message !== `api ${apiId} not found`) return error;
  const readableIds = caller.permissions.apisWith('read_api');
  const page = readableIds
    ? await apis.among(readableIds, '', APIS_COMPARED)
    : await apis.list('', APIS_COMPARED);
  const near = nearest(
    apiId,
    page.apis.map((api) => api.id),
  );
  const fix = near === undefined ? 'create it with apis.createApi' : `did you mean ${near}?`;
  return new ApiError('NOT_FOUND', `${error.message}; ${fix}`);
}

export const getKey = operation({
  name: 'keys.getKey',
  kind: 'query',
  summary: 'Show a key',
  description: 'Shows everything except the secret.',
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId }),
  response: Type.Object({
    ...UsedKey.properties,
    effectivePermissions: Type.Optional(
      List(Type.String(), {
        description: 'The permissions of the key itself, of its roles and of those of its identity.',
      }),
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle(
    { apiId, request: { keyId } },
    needs: NameStores & { keys: Keys; view: KeyView; usage: UsesOfKeys },
  ) {
    const { keys, view, usage } = needs;
    const key = await view.get(apiId, keyId);
    if (!key) throw await recordNotFound(keys, apiId, keyId);
    const roles = await rolesOf(key, await identityOf(key, needs), needs);
    const ofRoles = roles.flatMap(({ permissions }) => permissions);
    const slugs = [...(key.permissions ?? []), ...ofRoles.map(({ id }) => id)];
    const [keyView] = await withNames(needs, await usage.withLastUses(apiId, [key]));
    return { ...(keyView as NonNullable<typeof keyView>), effectivePermissions: [...new Set(slugs)].sort() };
  },
});

/**
 * The creation number at which the page begins; in orders other than that of creation, that of the last key of the page
 * before and its value. It reveals no more about the API than `total` and that page do.
 */
const PLACE = /^(\d{1,15}):(.*)$/s;
/** Maximum length of a cursor: one with a name of 256 characters of 4 bytes has 1,407. */
const CURSOR_MAX = 1500;

type Order = 'asc' | 'desc' | ValueOrder | { readonly managedByPrefix: string };

export const listKeys = operation({
  name: 'apis.listKeys',
  kind: 'query',
  summary: 'List the keys of an API',
  description:
    'Lists the keys in the order that `sort` names; following the cursors visits each key once while nothing changes. In order of creation, a page with a filter may be short and still have a cursor. In any other order, each page examines all keys: at most 200,000, or those of `externalId`. Keys without a value come last. Names are compared in any case, and numbers in them by value.',
  permissions: ['api.<apiId>.read_key', 'api.<apiId>.read_api'],
  request: Fields({
    apiId: ApiId,
    limit: Limit('Keys'),
    cursor: PageCursor({ minLength: 1, maxLength: CURSOR_MAX }),
    enabled: Type.Optional(Type.Union([Type.Literal('true'), Type.Literal('false')])),
    externalId: Type.Optional(ExternalId),
    ownerId: Type.Optional(OwnerId),
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Prefix of the name.' })),
    search: Search('the name, the id or the external id, or all of `start`'),
    state: Type.Optional(StateOf('Only keys in this `state`.')),
    role: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description: 'Only keys that have this role themselves; its name or its id.',
      }),
    ),
    leaked: Only('keys whose secret was found in public'),
    foreign: Only('keys whose secret has a foreign format'),
    neverUsed: Only(`keys that no verifier has reported as accepted, at least for ${RETENTION.day} days`),
    lastUsedBefore: Moment(
      `only keys that were neither accepted nor created since. At most ${RETENTION.day} days ago.`,
    ),
    expiresBefore: Moment('only keys that expire before then, or have.'),
    ...MANAGED_FILTER,
    ...MANAGED_PREFIX,
    sort: Type.Union(
      [
        Type.Literal('createdAt'),
        Type.Literal('-createdAt'),
        Type.Literal('name'),
        Type.Literal('-name'),
        Type.Literal('expires'),
        Type.Literal('-expires'),
        Type.Literal('lastUsedAt'),
        Type.Literal('-lastUsedAt'),
      ],
      {
        default: 'createdAt',
        description:
          '`-`: the greatest value first. `lastUsedAt` begins with the key that has been unused the longest.',
      },
    ),
  }),
  response: Type.Object({
    keys: List(UsedKey),
    total: Type.Integer({ minimum: 0, description: 'Number of all keys of the API, whatever the filter.' }),
    cursor: Cursor,
  }),
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', limit: '25', sort: '-createdAt' },
  async handle(
    { request, caller },
    needs: NameStores & { view: KeyView; orderedKeys: OrderedKeys; usage: UsesOfKeys },
  ) {
    const { usage, clock } = needs;
    const { apiId, limit, cursor, sort, enabled, externalId, name, search, state, managedBy, ...rest } =
      withoutAliases(request);
    const { managedByPrefix, ...others } = rest;
    if (managedByPrefix !== undefined && sort !== 'createdAt')
      throw new ApiError(
        'BAD_REQUEST',
        'sort: with managedByPrefix, keys are in the order of managedBy; leave it out',
      );
    const order: Order =
      managedByPrefix === undefined
        ? sort === 'createdAt'
          ? 'asc'
          : sort === '-createdAt'
            ? 'desc'
            : sort
        : { managedByPrefix };
    const filter: KeyFilter = {
      ...(enabled === undefined ? {} : { enabled: enabled === 'true' }),
      ...(externalId === undefined ? {} : { externalId }),
      ...(name === undefined ? {} : { namePrefix: name }),
      ...(search === undefined ? {} : { search }),
      ...(managedBy === undefined ? {} : { managedBy }),
      ...(await conditionsIn(others, needs)),
    };
    const listing = ['listKeys', apiId, order, filter, state] as const;
    const place = cursor === undefined ? undefined : placeIn(openCursor(listing, cursor, PLACE));
    const inState = recordsIn(state, clock.wallMs());
    if (inState.enabled !== undefined && (filter.enabled ?? inState.enabled) !== inState.enabled)
      throw new ApiError(
        'BAD_REQUEST',
        `enabled: no key that is ${state} has enabled ${enabled}; leave it out`,
      );
    const all = { ...filter, ...inState };
    const page = await readPage(needs, caller.id, apiId, all, Number(limit), order, place);
    if (!page) throw apiNotFound(apiId);
    const keys = await withNames(needs, await usage.withLastUses(apiId, page.keys));
    return {
      keys: keys.filter((key) => state === undefined || key.state === state),
      total: page.total,
      ...(page.next ? { cursor: makeCursor(listing, `${page.next.number}:${page.next.value}`) } : {}),
    };
  },
});

/** The conditions of a call on times, roles and marks. */
async function conditionsIn(
  query: {
    readonly role?: string;
    readonly leaked?: 'true';
    readonly foreign?: 'true';
    readonly neverUsed?: 'true';
    readonly lastUsedBefore?: string;
    readonly expiresBefore?: string;
  },
  { roles, clock }: { readonly roles: RoleNames; readonly clock: Clock },
): Promise<KeyFilter> {
  const { role, lastUsedBefore, expiresBefore } = query;
  if (Number(lastUsedBefore ?? Infinity) < clock.wallMs() - RETENTION.day * LENGTH_MS.day)
    throw new ApiError(
      'BAD_REQUEST',
      `lastUsedBefore: must be at most ${RETENTION.day} days ago; earlier uses are not kept`,
    );
  return {
    ...(role === undefined ? {} : { role: await roles.oneOf(role) }),
    ...(query.leaked ? { leaked: true } : {}),
    ...(query.foreign ? { foreign: true } : {}),
    ...(query.neverUsed ? { neverUsed: true } : {}),
    ...(lastUsedBefore === undefined ? {} : { lastUsedBefore: Number(lastUsedBefore) }),
    ...(expiresBefore === undefined ? {} : { expiresBefore: Number(expiresBefore) }),
  };
}

async function readPage(
  { view, orderedKeys }: { view: KeyView; orderedKeys: OrderedKeys },
  caller: string,
  apiId: string,
  filter: KeyFilter,
  limit: number,
  order: Order,
  place: Place | undefined,
) {
  if (typeof order === 'object') {
    const page = await view.listDeclared(apiId, order.managedByPrefix, filter, limit, place?.value ?? '');
    return page && { ...page, next: page.next === undefined ? undefined : { number: 0, value: page.next } };
  }
  if (order !== 'asc' && order !== 'desc')
    return orderedKeys.list(caller, apiId, filter, limit, order, place);
  const page = await view.list(apiId, filter, limit, order, place?.number);
  return page && { ...page, next: page.next === undefined ? undefined : { number: page.next, value: '' } };
}

const placeIn = ([number, value = '']: readonly string[]): Place => ({ number: Number(number), value });

export const updateKey = operation({
  name: 'keys.updateKey',
  kind: 'change',
  stops: 'if disabled',
  summary: 'Change, disable or enable a key',
  description:
    'Returns when the change is complete: from then on, no verifier anywhere answers from the earlier state. Absent fields stay unchanged; null clears a field.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({
    keyId: KeyId,
    enabled: Type.Optional(
      Type.Boolean({ description: 'false: the key is refused. true: it is accepted again.' }),
    ),
    ...CHANGES,
    ...CHANGED_CREDITS,
    ifSequence: IfSequence,
    waitMs: WaitMs,
  }),
  response: PropagationResponse,
  event: { changed: 'key.updated', disabled: 'key.disabled', enabled: 'key.enabled' },
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { keyId: keyIdExample, enabled: false },
  neverShed: true,
  async handle(call, needs: LifetimeStores & { keys: Keys; roles: RoleNames; changeWriter: ChangeWriter }) {
    const { keys, roles, changeWriter } = needs;
    const { apiId } = call;
    const { keyId, waitMs, ifSequence, remaining, refill, thresholds, ...changes } = call.request;
    await checkLifetime(needs, apiId, changes.expires);
    const fields = await storedChanges(roles, withoutAliases(changes));
    const credits = creditsChange({ remaining, refill, thresholds });
    let propagation: Propagation | undefined;
    if (Object.keys(fields).length === 0 && !credits) {
      const sequence = await keys.lastSequence(apiId, keyId);
      if (sequence !== undefined && ifSequence !== undefined && ifSequence !== sequence)
        throw cameLate(ifSequence, sequence);
      propagation = await changeWriter.status(apiId, keyId, sequence, true);
    } else {
      const write = { apiId, operation: 'update', keyId, fields, ifSequence } as const;
      const withCredits = credits ? { ...write, credits } : write;
      propagation = await changeWriter.apply(withCredits, waitMs, call.recordChange(fields, credits));
    }
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    return { propagation };
  },
});

export const updateRemaining = operation({
  name: 'keys.updateRemaining',
  kind: 'change',
  summary: "Change a key's credits",
  description:
    'Returns when the change is complete, like updateKey: no verifier accepts a request on credits from before the change.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ keyId: KeyId, ...CREDITS_OPERATION }),
  response: CreditsResponse,
  adds: true,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample, op: 'increment', value: 100 },
  neverShed: true,
  async handle(call, needs: { keys: Keys; debts: Debts; changeWriter: ChangeWriter }) {
    const { apiId, request } = call;
    const answer = await changeCredits(call, apiId, request.keyId, needs);
    if (!answer) throw await recordNotFound(needs.keys, apiId, request.keyId);
    return answer;
  },
});

const HomeId = Type.Optional(
  Type.String({
    pattern: API_ID.source,
    description: 'The API that the key is or was in, so that the call also answers for a key that is gone.',
  }),
);

const DeleteKey = Fields({ keyId: KeyId, apiId: HomeId, ...IF_MANAGED, waitMs: WaitMs });

export const deleteKey = operation({
  name: 'keys.deleteKey',
  kind: 'change',
  stops: 'always',
  summary: 'Delete a key for good',
  description:
    'Returns when the deletion is complete, like updateKey. Repeated within a day, returns how far the deletion has come, while the change log of the API reaches back to it (10,000 changes). With `apiId`, it can be repeated at any time: a key that is not there is answered like a deleted one, once no verifier accepts it.',
  permissions: ['api.<apiId>.delete_key'],
  knowsDeleted: true,
  request: DeleteKey,
  response: PropagationResponse,
  event: 'key.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample },
  neverShed: true,
  async handle(call, { keys, changeWriter }: { keys: Keys; changeWriter: ChangeWriter }) {
    const { apiId } = call;
    const { keyId, waitMs, ifManagedBy } = call.request;
    const secretHash = await keys.secretHashOf(apiId, keyId);
    const write = { apiId, operation: 'delete', keyId, fields: {}, ifManagedBy } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange());
    if (!propagation) {
      const repeated = await repeatDeletion(call, keys, changeWriter);
      call.note({}, { sequence: repeated.sequence, after: { repeated: true } });
      return { propagation: repeated };
    }
    if (secretHash) {
      await keys.forgetDeleted(apiId, [{ keyId, secretHash }]).catch((error: unknown) => {
        call.log.warn({ keyId, err: error }, 'pointers of a deleted key remain; they lead nowhere');
      });
    }
    return { propagation };
  },
});

/** The ids that followers can read in a log: of every key that ever was. */
const LOGGED_ID = /^[A-Za-z0-9_]+$/;

/**
 * Tells how far the deletion of a key has come that is not there. Where the caller names the API and its log tells nothing of
 * the key, a no-op is written behind all that the log ever told of it: once that is complete, so is the deletion.
 */
async function repeatDeletion(call: Call<Static<typeof DeleteKey>>, keys: Keys, changeWriter: ChangeWriter) {
  const { apiId, caller, request } = call;
  const { keyId, waitMs } = request;
  const earlier = await changeWriter.status(apiId, keyId, await keys.deletionOf(apiId, keyId));
  if (earlier) return earlier;
  const home = await keys.apiOf(keyId);
  // An id that leads to no record is that of a lost one, which verifiers may still have.
  const isLost = home === apiId && !(await keys.isApiDeleted(apiId));
  if (request.apiId === undefined || isLost || !LOGGED_ID.test(keyId))
    throw await recordNotFound(keys, apiId, keyId);
  if (home !== undefined && home !== apiId && caller.permissions.touches(home))
    throw new ApiError('NOT_FOUND', `apiId: key ${keyId} is in api ${home}; name that`);
  const write = { apiId, operation: 'delete-again', keyId, fields: {} } as const;
  const written = await changeWriter.apply(write, waitMs, () => call.giveTurnBack());
  if (written) return written;
  // An API that is gone was removed two fences after its deletion was complete.
  const ofApi = await changeWriter.status(apiId, '', await keys.deletionOfApi(apiId));
  if (!ofApi) throw await recordNotFound(keys, apiId, keyId);
  return ofApi;
}

const getPropagation = operation({
  name: 'keys.getPropagation',
  kind: 'query',
  summary: 'See how far a change has come',
  description:
    'For changes that returned `pending`. Tells of a deletion for a day, with `apiId` as long as the log reaches back to it.',
  permissions: ['api.<apiId>.read_key'],
  knowsDeleted: true,
  request: Fields({ keyId: KeyId, apiId: HomeId, sequence: SequenceText }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample, sequence: '1' },
  async handle(
    { apiId, request: { keyId, sequence } },
    { keys, changeWriter }: { keys: Keys; changeWriter: ChangeWriter },
  ) {
    const isLatest = (await keys.lastSequence(apiId, keyId)) === Number(sequence);
    const propagation = await changeWriter.status(apiId, keyId, Number(sequence), isLatest);
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    return { propagation };
  },
});

const Whose = Fields({
  key: Type.String({
    minLength: 1,
    maxLength: 512,
    description: 'The secret; only its hash is looked up.',
  }),
});

export const whoami = operation({
  name: 'keys.whoami',
  kind: 'question',
  summary: 'Show a key by its secret',
  description:
    'Shows everything except the secret, also for disabled and expired keys. The secret is neither logged nor audited.',
  permissions: ['api.<apiId>.read_key'],
  authorizesItself: true,
  request: Whose,
  response: KeyAnswer,
  errors: ['NOT_FOUND'],
  example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' },
  async handle(call, needs: NameStores & { keys: Keys; view: KeyView }) {
    const { keys, view } = needs;
    const place = await keys.lookUpSecret(call.request.key);
    // The message must reveal nothing about the secret but its form.
    const subject = isWellFormed(call.request.key) ? 'key' : `key (${PEPPERED})`;
    if (place === undefined) throw absence(call.caller, subject);
    call.note(place);
    const { apiId, keyId } = place;
    requireApi(call.caller, apiId, 'read_key', subject);
    const key = await view.get(apiId, keyId);
    const [keyView] = key ? await withNames(needs, [key]) : [];
    if (!keyView) throw await recordNotFound(keys, apiId, keyId);
    return keyView;
  },
});

export const oneKeyOperations = [
  createKey,
  updateKey,
  getKey,
  whoami,
  deleteKey,
  getPropagation,
  updateRemaining,
] as const;
