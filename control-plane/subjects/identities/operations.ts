import { type Static, Type } from 'typebox';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import type { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { API_ID_PATTERN } from '#shared/rules/slugs.ts';
import type { Apis } from '../../core/apis/apis.ts';
import type { Caller } from '../../core/callers/root-keys.ts';
import { changeCredits } from '../../core/keys/credit-changes.ts';
import { type NameStores as KeyNameStores, UsedKey, withNames } from '../../core/keys/key-answer.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { Debts, LastUses } from '../../core/ports.ts';
import type { KeyPage, KeyView } from '../../core/records/key-view.ts';
import {
  IfSequence,
  LastSequence,
  Propagation,
  PropagationResponse,
  SequenceText,
  WaitMs,
} from '../../core/schema/changes.ts';
import {
  CHANGED_CREDITS,
  CREDITS_OPERATION,
  CREDITS_VIEW,
  CreditsResponse,
  creditsChange,
  NEW_CREDITS,
  newCredits,
} from '../../core/schema/credits.ts';
import { checkMeta, ExternalId, FIELDS } from '../../core/schema/key-fields.ts';
import { Concurrency, checkLimits, Ratelimits, RatelimitsView } from '../../core/schema/limits.ts';
import { Cursor, Limit, makeCursor, openCursor, PageCursor, Search } from '../../core/schema/lists.ts';
import {
  CHANGED_MANAGED,
  IF_MANAGED,
  MANAGED_FILTER,
  MANAGED_PREFIX,
  MANAGED_VIEW,
  NEW_MANAGED,
} from '../../core/schema/managed.ts';
import { Count, Fields, Id, List } from '../../core/schema/primitives.ts';
import { GivenRoles } from '../../core/schema/slugs.ts';
import { operation } from '../../core/serve/operation.ts';
import type { CostlyReads } from '../../core/serve/turns.ts';
import { Allowances, allowancesOf } from '../rate-limits/allowances.ts';
import { appliedLimits } from '../rate-limits/applied-limits.ts';
import type { LimitView } from '../rate-limits/limit-view.ts';
import type { Roles } from '../roles/roles.ts';
import type { UsageView } from '../usage/usage.ts';
import type { Identities } from './identities.ts';

type NameStores = Omit<KeyNameStores, 'identities' | 'roles'> & {
  readonly identities: Identities;
  readonly roles: Roles;
};

export const IDENTITY_ID = /^identity_[A-Za-z0-9_-]{1,71}$/;
const IdentityId = Type.String({
  pattern: IDENTITY_ID.source,
  description: "An identity's id, as createIdentity returned it.",
});
const identityIdExample = 'identity_0mzc9k4q8r2wfXa1Bc2d';

/** The fields of an identity that createIdentity and updateIdentity take. */
const CHANGEABLE_FIELDS = {
  meta: Type.Optional(FIELDS.meta),
  ratelimits: Type.Optional(
    Ratelimits({
      description:
        'Rate limits that all keys of the identity share, in all APIs. A limit applies to verifications that name it, and with `autoApply` to every one; if the key itself has a limit of that name, only that one applies. `[]` removes all.',
    }),
  ),
  concurrency: Type.Optional(
    Concurrency({
      description:
        'Concurrency limits that all keys of the identity share, in all APIs; if the key itself has a limit of that name, only that one applies. `[]` removes all.',
    }),
  ),
  roles: Type.Optional(
    GivenRoles({
      description:
        'All roles of the identity. All its keys have their permissions and limits, beside those of their own roles.',
    }),
  ),
};

const WHOSE_CREDITS =
  'Credits that its keys without credits of their own share, in all APIs where the identity applies.';

/** A tenant has few APIs; an identity for more leaves this out. */
const APIS_MAX = 100;
const ApiIds = Type.Array(Type.String({ pattern: `^${API_ID_PATTERN}$` }), {
  ...{ minItems: 1, maxItems: APIS_MAX, uniqueItems: true },
  description:
    'The APIs in which the identity applies, for installations with APIs of several tenants; absent = all. A key with this `externalId` in another API has no identity.',
});

const IdentityView = Type.Object({
  id: Id('the identity'),
  externalId: Type.String({ description: "The identity's id in the caller's own system." }),
  enabled: Type.Boolean({ description: 'false: no key of the identity is accepted.' }),
  meta: Type.Object({}, { additionalProperties: true, description: 'The meta, unchanged.' }),
  ratelimits: RatelimitsView({
    description: 'Rate limits that all keys of the identity share, in all APIs.',
  }),
  concurrency: Concurrency({
    description: 'Concurrency limits that all keys of the identity share, in all APIs.',
  }),
  credits: Type.Optional(Type.Object(CREDITS_VIEW, { description: WHOSE_CREDITS })),
  roles: List(Type.String(), { description: 'Names of its roles, which count for all its keys.' }),
  apiIds: Type.Optional(
    List(Type.String(), { description: 'The APIs in which the identity applies; absent = all.' }),
  ),
  sequence: LastSequence,
  ...MANAGED_VIEW,
});

/** Maximum number of APIs whose keys one call counts. */
const APIS_COUNTED_MAX = 1000;
const IdentityAllowances = Type.Object({
  ...Allowances.properties,
  keys: Count(
    `Number of keys with its externalId in the APIs that the root key may read, at most the first ${APIS_COUNTED_MAX.toLocaleString('en')}.`,
  ),
});
type AllowanceStores = NameStores & { readonly limits: LimitView; readonly apis: Apis };

/** The identity that a call concerns. */
const REFERENCE = { identityId: Type.Optional(IdentityId), externalId: Type.Optional(ExternalId) };

/** Returns the identity's id. Throws BAD_REQUEST unless exactly one of the two is given. */
function idIn({ identityId, externalId }: Static<ReturnType<typeof Fields<typeof REFERENCE>>>): string {
  if ((identityId === undefined) === (externalId === undefined))
    throw new ApiError('BAD_REQUEST', 'identityId: give either this or externalId');
  return identityId ?? identityIdOf(externalId ?? '');
}

/** The error for an identity that does not exist. */
const identityNotFound = () => new ApiError('NOT_FOUND', 'there is no such identity');

export const createIdentity = operation({
  name: 'identities.createIdentity',
  kind: 'change',
  adds: true,
  summary: 'Create an identity',
  description:
    'An identity stands for all keys of all APIs with its `externalId`, existing and future ones. Creating it is one change, however many keys there are: the call returns when the change is complete, like updateKey. After 503, send the call again. 409 then means that the identity exists; updateIdentity with the same fields waits until every verifier knows it.',
  permissions: ['root.*.create_identity'],
  request: Fields({
    externalId: ExternalId,
    ...CHANGEABLE_FIELDS,
    credits: Type.Optional(
      Type.Object(NEW_CREDITS, { additionalProperties: false, description: WHOSE_CREDITS }),
    ),
    enabled: Type.Boolean({
      default: true,
      description: 'false: no key of the identity is accepted until it is enabled.',
    }),
    apiIds: Type.Optional(ApiIds),
    ...NEW_MANAGED,
    waitMs: WaitMs,
  }),
  response: Type.Object({ identityId: Id('the identity'), propagation: Propagation }),
  event: 'identity.created',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { externalId: 'ada', meta: { plan: 'pro' } },
  async handle(call, { identities, roles }: NameStores) {
    const { externalId, waitMs, enabled, meta = {}, ratelimits = [], roles: roleNames = [] } = call.request;
    const { apiIds, concurrency = [], credits: creditsInput = {}, managedBy } = call.request;
    checkMeta(meta);
    checkLimits({ ratelimits, concurrency });
    const ids = await roles.idsOf(roleNames);
    const fields = {
      enabled,
      meta,
      ratelimits,
      concurrency,
      roles: ids,
      ...(apiIds ? { apiIds } : {}),
      ...(managedBy ? { managedBy } : {}),
    };
    call.note({ externalId, identityId: identityIdOf(externalId) });
    const credits = newCredits(creditsInput, 'credits.');
    const record = call.recordChange(storedFields(fields), credits);
    return identities.create({ externalId, ...fields }, credits, waitMs, ({ sequence }) =>
      record({ sequence }),
    );
  },
});

export const getIdentity = operation({
  name: 'identities.getIdentity',
  kind: 'query',
  summary: 'Show an identity',
  description: 'Finds the identity by its id or its `externalId`.',
  permissions: ['root.*.read_identity'],
  request: Fields(REFERENCE),
  response: IdentityView,
  errors: ['NOT_FOUND'],
  example: { externalId: 'ada' },
  async handle({ request }, { identities, roles }: NameStores) {
    const identity = await identities.get(idIn(request));
    if (!identity) throw identityNotFound();
    const [answer = identity] = await roles.withRoleNames([identity]);
    return answer;
  },
});

const SEARCH = Search('the `externalId` or the id');
/** The creation number at which the page begins, or behind which `managedBy` and id. */
const LIST_IDENTITIES_PLACE = /^(?:identity:(\d{1,15})|declared:(.*))$/s;

export const listIdentities = operation({
  name: 'identities.listIdentities',
  kind: 'query',
  summary: 'List all identities',
  description: 'Shows them in order of creation. With `search`, a page may be short and still have a cursor.',
  permissions: ['root.*.read_identity'],
  request: Fields({
    limit: Limit('Identities'),
    cursor: PageCursor({ minLength: 1, maxLength: 1500 }),
    search: SEARCH,
    ...MANAGED_FILTER,
    ...MANAGED_PREFIX,
    allowances: Type.Optional(
      Type.Union([Type.Literal('true'), Type.Literal('false')], {
        description: 'true: each with what getAllowances answers, and at the cost of that.',
      }),
    ),
  }),
  response: Type.Object({
    identities: List(
      Type.Object({ ...IdentityView.properties, allowances: Type.Optional(IdentityAllowances) }),
    ),
    total: Count('Number of all identities.'),
    cursor: Cursor,
  }),
  errors: [],
  example: { limit: '25' },
  async handle(
    { request: { limit, cursor, allowances, ...filter }, caller },
    needs: AllowanceStores & { costlyReads: CostlyReads },
  ) {
    const { identities, roles } = needs;
    const listing = ['listIdentities', filter] as const;
    const [from, after = ''] = cursor === undefined ? [] : openCursor(listing, cursor, LIST_IDENTITIES_PLACE);
    const { next, total, ...page } = await (filter.managedByPrefix === undefined
      ? identities.list(Number(limit), from === undefined ? undefined : Number(from), filter)
      : identities.listDeclared(filter.managedByPrefix, Number(limit), after, filter));
    const add = async () => {
      const apiIds = await countedApis(caller, needs);
      return Promise.all(
        page.identities.map(async (identity) => ({
          ...identity,
          allowances: await allowancesOfIdentity(identity, apiIds, needs),
        })),
      );
    };
    const listed = allowances === 'true' ? await needs.costlyReads.run(caller.id, add) : page.identities;
    return {
      ...{ identities: await roles.withRoleNames(listed), total },
      ...(next === undefined
        ? {}
        : {
            cursor: makeCursor(listing, typeof next === 'string' ? `declared:${next}` : `identity:${next}`),
          }),
    };
  },
});

/** The API after which the page begins, or the API and the creation number at which it begins. */
const LIST_KEYS_OF_IDENTITY_PLACE = new RegExp(
  `^(?:after:(${API_ID_PATTERN})|in:(${API_ID_PATTERN}):(\\d{1,15}))$`,
);
/** Maximum number of APIs that one call examines. */
const APIS_EXAMINED_MAX = 1000;

/** The place where a listing goes on: after an API, or within one. */
interface Place {
  readonly after: string;
  readonly within?: { readonly apiId: string; readonly from: number };
}

const listKeysOfIdentity = operation({
  name: 'identities.listKeys',
  kind: 'query',
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
  async handle({ request, caller }, needs: NameStores & { view: KeyView; usage: UsageView }) {
    const { externalId, limit, cursor } = request;
    const listing = ['identities.listKeys', externalId] as const;
    const place =
      cursor === undefined
        ? { after: '' }
        : placeIn(openCursor(listing, cursor, LIST_KEYS_OF_IDENTITY_PLACE));
    const { keys, next } = await readPage(externalId, Number(limit), place, caller, needs);
    return {
      keys: await withNames(needs, keys),
      ...(next ? { cursor: makeCursor(listing, textOf(next)) } : {}),
    };
  },
});

async function readPage(
  externalId: string,
  limit: number,
  place: Place,
  caller: Caller,
  { identities, view, usage }: { identities: Identities; view: KeyView; usage: UsageView },
) {
  const keys: (KeyPage['keys'][number] & LastUses)[] = [];
  /** Adds the API's keys to the page; returns the place where the listing goes on, if the page is full. */
  const add = async (apiId: string, from?: number): Promise<Place | undefined> => {
    const page = await view.list(apiId, { externalId }, limit - keys.length, 'asc', from);
    keys.push(...(await usage.withLastUses(apiId, page?.keys ?? [])));
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

export const updateIdentity = operation({
  name: 'identities.updateIdentity',
  kind: 'change',
  stops: 'if disabled',
  summary: 'Change an identity, or disable it',
  description:
    'Makes one change, however many keys the identity has. Returns when the change is complete, like updateKey: after `enabled` false, no verifier anywhere accepts any of the keys. Keys keep their own `enabled`. A caller that may not read identities gets only the id and `propagation`.',
  permissions: ['root.*.update_identity'],
  request: Fields({
    ...REFERENCE,
    enabled: Type.Optional(
      Type.Boolean({
        description:
          'false: all keys of the identity are refused, in all APIs. true: those that are enabled themselves are accepted again.',
      }),
    ),
    ...CHANGEABLE_FIELDS,
    credits: Type.Optional(
      Type.Union([Type.Object(CHANGED_CREDITS, { additionalProperties: false }), Type.Null()], {
        description: 'null: unlimited from now on. Absent fields stay unchanged.',
      }),
    ),
    apiIds: Type.Optional(Type.Union([ApiIds, Type.Null()])),
    ...CHANGED_MANAGED,
    ifSequence: IfSequence,
    waitMs: WaitMs,
  }),
  response: Type.Object({
    ...Type.Partial(IdentityView).properties,
    id: IdentityView.properties.id,
    propagation: Propagation,
  }),
  event: { changed: 'identity.updated', disabled: 'identity.disabled', enabled: 'identity.enabled' },
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { externalId: 'ada', enabled: false },
  neverShed: true,
  async handle(call, { identities, roles, changeWriter }: NameStores & { changeWriter: ChangeWriter }) {
    const { waitMs, ifSequence, identityId: _id, externalId: _externalId, ...changes } = call.request;
    const { roles: roleNames, credits: creditsPatch, ...patch } = changes;
    checkMeta(patch.meta ?? {});
    checkLimits(patch);
    const rolePatch = await roles.patchOf(roleNames);
    const fields = storedFields({ ...patch, ...rolePatch });
    const credits = creditsChange(
      creditsPatch === null ? { remaining: null } : (creditsPatch ?? {}),
      'credits.',
    );
    if (Object.keys(fields).length === 0 && !credits)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    const identityId = idIn(call.request);
    call.note({ identityId });
    if (patch.apiIds && (await identities.get(identityId))) await identities.checkApis(patch.apiIds);
    const write = { apiId: SHARED_LOG, operation: 'update', keyId: identityId, fields, ifSequence } as const;
    const propagation = await changeWriter.apply(
      credits ? { ...write, credits } : write,
      waitMs,
      call.recordChange(fields, credits),
    );
    const identity = await identities.get(identityId);
    if (!propagation || !identity) throw identityNotFound();
    const mayRead = call.caller.permissions.allowsRoot('read_identity');
    const [answer = identity] = mayRead ? await roles.withRoleNames([identity]) : [];
    return { ...(mayRead ? answer : { id: identityId }), propagation };
  },
});

const updateCredits = operation({
  name: 'identities.updateCredits',
  kind: 'change',
  adds: true,
  summary: "Change an identity's credits",
  description:
    'Makes one change, however many keys share the credits. Returns when the change is complete: no verifier accepts a request on credits from before the change.',
  permissions: ['root.*.update_identity'],
  request: Fields({ ...REFERENCE, ...CREDITS_OPERATION }),
  response: CreditsResponse,
  event: 'identity.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { externalId: 'ada', op: 'set', value: 1000 },
  neverShed: true,
  async handle(call, needs: { debts: Debts; changeWriter: ChangeWriter }) {
    const identityId = idIn(call.request);
    call.note({ identityId });
    const answer = await changeCredits(call, SHARED_LOG, identityId, needs);
    if (!answer) throw identityNotFound();
    return answer;
  },
});

export const deleteIdentity = operation({
  name: 'identities.deleteIdentity',
  kind: 'change',
  stops: 'always',
  summary: 'Delete an identity',
  description:
    'The keys stay, with their own `enabled`. A disabled identity cannot be deleted, because its keys would be accepted again.',
  permissions: ['root.*.delete_identity'],
  request: Fields({ identityId: IdentityId, ...IF_MANAGED, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'identity.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { identityId: identityIdExample },
  neverShed: true,
  async handle(call, { identities, changeWriter }: { identities: Identities; changeWriter: ChangeWriter }) {
    const { identityId: keyId, waitMs, ifManagedBy } = call.request;
    const condition = await identities.toDelete(keyId, ifManagedBy);
    if (condition === undefined) throw identityNotFound();
    const write = { apiId: SHARED_LOG, operation: 'delete', keyId, fields: {}, condition } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange());
    if (!propagation) throw identityNotFound();
    return { propagation };
  },
});

const getIdentityPropagation = operation({
  name: 'identities.getIdentityPropagation',
  kind: 'query',
  summary: "See how far an identity's change has come",
  description: 'For changes that returned `pending`.',
  permissions: ['root.*.read_identity'],
  request: Fields({ identityId: IdentityId, sequence: SequenceText }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { identityId: identityIdExample, sequence: '1' },
  async handle(
    { request: { identityId, sequence } },
    { keys, changeWriter }: { keys: Keys; changeWriter: ChangeWriter },
  ) {
    const isLatest = (await keys.lastSequence(SHARED_LOG, identityId)) === Number(sequence);
    const propagation = await changeWriter.status(SHARED_LOG, identityId, Number(sequence), isLatest);
    if (!propagation) throw identityNotFound();
    return { propagation };
  },
});

const getIdentityAllowances = operation({
  name: 'identities.getAllowances',
  kind: 'query',
  id: 'getIdentityAllowances',
  summary: 'See how much an identity has left',
  description:
    'Shows every limit that all keys of the identity share, of its own and of its roles, with its uses, and the credits.',
  permissions: ['root.*.read_identity'],
  request: Fields(REFERENCE),
  response: IdentityAllowances,
  errors: ['NOT_FOUND'],
  example: { externalId: 'ada' },
  async handle({ request, caller }, needs: AllowanceStores) {
    const identity = await needs.identities.get(idIn(request));
    if (!identity) throw identityNotFound();
    return allowancesOfIdentity(identity, await countedApis(caller, needs), needs);
  },
});

/** The APIs whose keys are counted: the first that the caller may read. */
async function countedApis(caller: Caller, { apis }: AllowanceStores): Promise<readonly string[]> {
  return (readableApis(caller) ?? (await apis.ids('', APIS_COUNTED_MAX))).slice(0, APIS_COUNTED_MAX);
}

async function allowancesOfIdentity(
  identity: NonNullable<Awaited<ReturnType<Identities['get']>>>,
  apiIds: readonly string[],
  needs: AllowanceStores,
) {
  const roles = await Promise.all(identity.roles.map((id) => needs.roles.get(id)));
  const [keys, allowances] = await Promise.all([
    needs.identities.keysIn(apiIds, identity.externalId),
    allowancesOf(
      appliedLimits({ identity, roles: roles.filter((role) => role !== undefined) }),
      identity.credits ?? {},
      'identity',
      { limits: needs.limits, nowMs: needs.clock.wallMs() },
    ),
  ]);
  return { ...allowances, keys };
}

export const identityOperations = [
  createIdentity,
  getIdentity,
  getIdentityAllowances,
  listIdentities,
  listKeysOfIdentity,
  updateIdentity,
  updateCredits,
  deleteIdentity,
  getIdentityPropagation,
] as const;
