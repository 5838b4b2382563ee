import { Option } from 'commander';
import { systemClock } from '#shared/process/clock.ts';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { KEY_FIELDS } from '#shared/protocol/records/key-record.ts';
import { lengthInWords } from '#shared/protocol/records/limit.ts';
import { PRESETS } from '../../../core/callers/root-permissions.ts';
import { callerName, sentenceOf } from '../../../subjects/audit/sentences.ts';
import type { Delivery, Key, ListedEvent, ListedSession, Permission, Refusal } from '../answers.ts';
import { names, refillPlan, span, whole } from '../arguments.ts';
import type { Client } from '../client.ts';
import { CliError } from '../exit.ts';
import type { FieldWords, Words } from '../from-operations.ts';
import { collect, type Page } from '../pages.ts';
import { age, type Columns, columns, count, DOT, list, printable, time } from '../terminal/output.ts';

const REFILL: FieldWords = [
  '--refill <plan>',
  'when credits are refilled: daily:<credits>, weekly:<credits>, monthly:<credits> or monthly:<credits>:<day>',
  refillPlan,
];
const LIFETIMES: Readonly<Record<string, FieldWords>> = {
  defaultLifetimeMs: [
    '--default-lifetime <time>',
    'lifetime of keys that are created without --expires: 90m, 12h, 30d',
    span,
  ],
  disableUnusedAfterMs: [
    '--disable-unused-after <time>',
    'time after which a key that nobody uses is disabled: 30d',
    span,
  ],
  maxLifetimeMs: [
    '--max-lifetime <time>',
    'the longest lifetime that a key may be given: 90m, 12h, 30d',
    span,
  ],
};
const SHARED_LIMITS: FieldWords = [
  '--ratelimits <json>',
  'limits that all keys of the identity share, JSON: [{"name":"tokens","limit":20000,"duration":3600000}]',
];
const ROLE_LIMITS: FieldWords = [
  '--ratelimits <json>',
  'limits of the keys with the role, JSON: [{"name":"requests","limit":1000,"duration":60000,"autoApply":true,"per":"identity"}]',
];
const SHARED_CONCURRENCY: FieldWords = [
  '--concurrency <json>',
  'limits of holds at the same time that all keys of the identity share, JSON: [{"name":"jobs","limit":3}]',
];
const ROLE_CONCURRENCY: FieldWords = [
  '--concurrency <json>',
  'limits of holds at the same time of the keys with the role, JSON: [{"name":"jobs","limit":3,"per":"identity"}]',
];
type RefusedKey = { readonly refusal: Pick<Refusal, 'time' | 'detail'> };
type ListedEndpoint = Readonly<
  Record<'url' | 'state', string> & Record<'waiting' | 'dropped' | 'dead', number>
>;
const state = ({ enabled }: { enabled: boolean }) => (enabled ? 'enabled' : 'disabled');
const dotState = (of: { enabled: boolean }) => `${DOT}${state(of)}`;

const KEY: Columns<Key & { identity?: { id: string } }> = {
  ...columns(`keyId apiId start state ${Object.keys(KEY_FIELDS).join(' ')} effectivePermissions`),
  identity: ({ identity }) => identity?.id,
  ...columns('remaining remainingHeld remainingLost'),
  refill: ({ refill }) =>
    refill &&
    `${count(refill.amount)} ${refill.interval}${refill.refillDay === undefined ? '' : ` on day ${refill.refillDay}`}`,
  ...columns('thresholds created:createdAt updated:updatedAt managedBy driftedAt rerolledTo rerolledFrom'),
  leaked: ({ leaked }) => leaked && `${time(leaked.at)} ${leaked.url}`,
  ...columns('lastUsed:lastUsedAt lastRefused:lastRefusedAt'),
};
const LISTED_KEY: Columns<Key> = {
  ...columns('keyId start state created:createdAt expires lastUsed:lastUsedAt externalId name'),
};
const presetsText = Object.entries(PRESETS)
  .map(([name, { text }]) => `${name} (${text})`)
  .join(', ');
type ShownIdentity = Readonly<Record<'id' | 'externalId', string>>;
type AppliedLimit = { readonly name: string; readonly limit: number; readonly from: string };
export interface Allowances {
  readonly credits?: { remaining?: number };
  readonly limits: readonly (AppliedLimit & { readonly per: string; readonly used: number })[];
  readonly concurrency: readonly (AppliedLimit & { readonly inUse: number })[];
}
/** Limits and credits that an identity or a key has left. */
export const ALLOWANCES: Columns<Allowances> = {
  used: ({ limits, concurrency }) =>
    [
      ...limits.map(({ name, used, limit, per }) => `${name} ${count(used)} of ${count(limit)}/${per}`),
      ...concurrency.map(({ name, inUse, limit }) => `${name} ${count(inUse)} of ${count(limit)} at once`),
    ].join(', ') || undefined,
  credits: ({ credits }) => (credits?.remaining === undefined ? undefined : count(credits.remaining)),
};
const IDENTITY: Columns<ShownIdentity & Allowances> = {
  ...columns('identityId:id externalId enabled plan:roles keys'),
  ...ALLOWANCES,
  ...columns('meta ratelimits apiIds managedBy driftedAt'),
};
/** The columns by which people know keys. */
const KEY_OF_PEOPLE: Columns<Key & { state: string; lastUsedAt?: number }> = {
  ...columns('name customer:externalId'),
  state: ({ state }) => `${DOT}${state.replace('_', ' ')}`,
  used: ({ lastUsedAt }) => lastUsedAt && `${age(systemClock.wallMs() - lastUsedAt)} ago`,
  ...columns('api:apiId keyId'),
};

/** The keys of all APIs that have a text in their name, id or external id. Rejects with NO if there are none. */
async function keysWith(
  client: Client,
  { apiId: search, ...query }: { apiId: string },
  limit: number,
): Promise<Page<unknown>> {
  const { items } = await collect<{ id: string; keys?: number }>(
    client,
    'apis.listApis',
    {},
    'apis',
    APIS_MAX,
  );
  // The keys of an API that has no number may not be read.
  const apis = items.flatMap(({ id, keys }) => (keys === undefined ? [] : [{ id, keys }]));
  const keys: unknown[] = [];
  for (const { id: apiId } of apis) {
    const input = { search, ...query, apiId, cursor: undefined };
    const page = await collect(client, 'apis.listKeys', input, 'keys', limit - keys.length);
    keys.push(...page.items);
    if (keys.length === limit) break;
  }
  if (keys.length > 0) return { items: keys, cursor: undefined, total: undefined };
  const counts = apis.map(({ id, keys }) => `${count(keys)} in ${id}`).join(', ');
  const among = counts || 'the root key may list the keys of no API';
  throw new CliError('NO', `no key matches ${printable(search)}; ${among}`, { code: 'NOT_FOUND' });
}

/** Maximum number of APIs in which a text is searched. */
const APIS_MAX = 1000;

type About = Readonly<
  Partial<Record<'keyId' | 'identityId' | 'roleId' | 'verifierId' | 'apiId' | 'rootKeyId', string>>
>;
/** The id of what an event is about. `rootKeyId` may be the caller, so it comes last. */
const aboutOf = ({ keyId, identityId, roleId, verifierId, apiId, rootKeyId }: About) =>
  keyId ?? identityId ?? roleId ?? verifierId ?? apiId ?? rootKeyId;

/** A page of the dashboard with the conditions that are given. */
function page(path: string, conditions: Readonly<Record<string, unknown>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(conditions)) if (value) query.set(name, String(value));
  return query.size === 0 ? path : `${path}?${query}`;
}

type OfKey = { readonly keyId: string };
type Rotation = OfKey & { readonly key: string; readonly endsAt?: number };
const NO_SECOND_LOOK = 'The key is not stored anywhere and cannot be shown again.';

/** The words of a change of credits. */
const CREDITS: Words = {
  fields: {
    op: ['operation'],
    value: ['credits', '', (text) => (text === 'unlimited' ? null : whole(0, CREDITS_MAX)(text))],
  },
  input(change: { op: string; value: number | null }) {
    if (change.value !== null || change.op === 'set') return change;
    throw new CliError('USAGE', 'credits: only set takes the word unlimited; give a number');
  },
  subject: (
    { remaining }: { remaining: number | null },
    { keyId, externalId = keyId }: { keyId?: string; externalId?: string },
  ) => `${externalId}: ${remaining === null ? 'unlimited' : count(remaining)} credits`,
};

/** The groups of commands, with their helps. */
export const GROUPS: Readonly<Record<string, string>> = {
  keys: 'keys: who may call your APIs',
  apis: 'APIs: groups of keys',
  permissions: 'the catalogue of permissions: names and descriptions, for people',
  identities: 'identities: each covers all keys with its external id',
  roles: 'roles: lists of permissions that many keys share',
  'root-keys': 'root keys: who may manage Keyfence',
  webhooks: 'webhooks: URLs that are told what happens to keys',
};

/**
 * The ways in which commands differ from what their operations tell, by the operation. An operation that is not here has
 * a command all the same.
 */
export const WORDS: Readonly<Record<string, Words>> = {
  'keys.createKey': {
    help: 'create a key and show its secret; the secret is never shown again',
    examples: [
      'keys create shop --name Ada --external-id ada --expires +30d',
      'keys create shop --remaining 1000 --ratelimit 100/1m --permissions files.read',
    ],
    fields: { refill: REFILL },
    note: NO_SECOND_LOOK,
  },
  'keys.getKey': { show: KEY, web: ({ keyId }: OfKey) => `keys/${keyId}` },
  'keys.whoami': {
    help: 'show the key whose secret is in KEYFENCE_KEY, on standard input or typed at a prompt',
    examples: ['keys whoami < secret.txt'],
    show: KEY,
  },
  'keys.updateKey': {
    help: 'change the fields of a key',
    examples: [
      'keys update key_0mzc9k4q8r2wfXa1Bc2d --name Grace --expires +7d',
      'keys update key_0mzc9k4q8r2wfXa1Bc2d --clear expires',
    ],
    fields: { refill: REFILL },
    switches: {}, // of many keys, too: by hand
  },
  'keys.rerollKey': {
    help: 'rotate a key: create a key that replaces it and show the new secret, which is never shown again; the old key stops working',
    examples: ['keys reroll key_0mzc9k4q8r2wfXa1Bc2d --expiration 12h'],
    fields: {
      expiration: ['--expiration <time>', 'for how long the old key still works: 0, 90m, 12h, 30d', span],
    },
    options: () => [
      new Option('--grace <time>', 'the same as --expiration').argParser(span).conflicts('expiration'),
    ],
    input({ grace, ...values }: { grace?: number; expiration?: number }) {
      const expiration = grace ?? values.expiration;
      if (expiration !== undefined) return { ...values, expiration };
      const example = 'keyfence keys reroll key_0mzc9k4q8r2wfXa1Bc2d --expiration 12h';
      throw new CliError(
        'USAGE',
        `--expiration: say for how long the old key still works, as in: ${example}`,
      );
    },
    async subject({ keyId: newKeyId, key, endsAt }: Rotation, { keyId }: OfKey, client) {
      const old = endsAt === undefined ? 'refused' : `ends at ${time(endsAt)}`;
      // To reroll a key does not take the right to read it.
      const newKey = await client.call<Key>('keys.getKey', { keyId: newKeyId }).catch(() => undefined);
      const both = newKey?.enabled === false ? '; both keys are disabled' : '';
      return `${list({ keyId: newKeyId, key, [keyId]: old })}\nrerolled ${keyId}${both}`;
    },
    note: NO_SECOND_LOOK,
  },
  'keys.updateRemaining': {
    as: 'keys credits',
    help: 'set, increment or decrement the credits of a key; when this returns, no verifier uses the old credits any more',
    ...CREDITS,
  },
  'keys.getPropagation': {
    as: 'keys propagation',
    help: 'show whether an earlier change is complete; the change printed its sequence',
  },
  'apis.listKeys': {
    as: 'keys list',
    help: 'list the keys of an API, or those of all APIs that have a text in their name, id or external id',
    examples: [
      'keys ls ada',
      'keys list shop --disabled --limit 20',
      'keys list shop --state expired --role editor',
      'keys list shop --unused-for 30d --sort lastUsedAt',
    ],
    fields: { apiId: ['apiId|text'], lastUsedBefore: ['--unused-for <time>'] },
    people: KEY_OF_PEOPLE,
    web: ({ apiId, search, role }: { apiId: string; search?: string; role?: string }) => {
      const filter = [...(role ? [`role:"${role}"`] : []), ...(search ? [search] : [])].join(' ');
      return page(`apis/${encodeURIComponent(apiId)}`, { filter });
    },
    elsewhere: keysWith,
    options: () => [new Option('--newest', 'newest first; the same as --sort -createdAt').conflicts('sort')],
    input: ({ newest, ...query }: { newest?: true }) => (newest ? { ...query, sort: '-createdAt' } : query),
    show: LISTED_KEY,
  },
  'apis.listRefusedKeys': {
    as: 'apis refusals',
    help: 'list the keys that were refused in a time, and why',
    examples: ['apis refusals shop --since 1h --code RATE_LIMITED'],
    show: {
      ...columns('keyId name externalId refusals:count'),
      last: ({ refusal }: RefusedKey) => time(refusal.time),
      why: ({ refusal }: RefusedKey) => refusal.detail,
    },
  },
  'apis.listRefusals': { as: 'tail' },
  'apis.createApi': {
    examples: ['apis create Shop --id webshop --default-prefix shop --max-lifetime 90d'],
    fields: { apiId: ['--id <apiId>', 'id of the API; default: a random one'], ...LIFETIMES },
  },
  'apis.getApi': {
    show: {
      ...columns('apiId:id name createdAt defaultPrefix defaultBytes'),
      ...Object.fromEntries(
        Object.keys(LIFETIMES).map((name) => [
          name.replace(/Ms$/, ''),
          (api: Readonly<Record<string, number>>) => api[name] && lengthInWords(api[name]),
        ]),
      ),
      ...columns('selfRevocation tokens tokenAudiences tokenLeewayMs managedBy driftedAt'),
    },
  },
  'apis.updateApi': {
    help: 'change the name of an API, the defaults of its new keys and its rules',
    examples: [
      "apis update shop --name 'The shop'",
      'apis update shop --default-lifetime 30d --max-lifetime 90d',
    ],
    fields: LIFETIMES,
  },
  'apis.getApiPropagation': {
    as: 'apis propagation',
    help: 'show whether an earlier change of the tokens of an API is complete; the change printed its sequence',
  },
  'apis.listApis': {
    help: 'list the APIs that the root key may read',
    show: columns('apiId:id created:createdAt name'),
  },
  'apis.deleteApi': {
    help: 'delete an API and all its keys',
    examples: ['apis delete webshop --yes'],
    question: (id) => `delete ${id} and all its keys`,
  },
  'apis.deleteKeys': {
    help: 'delete all keys of an API; the API stays',
    fields: { permanent: null },
    question: (id) => `delete all keys of ${id}`,
    subject: (_: object, { apiId }: { apiId: string }) => `deleted all keys of ${apiId}`,
  },
  'permissions.createPermission': {
    examples: ["permissions create files.write --name 'Write files'"],
    args: ['slug'],
    fields: { name: null },
    options: () => [new Option('--name <text>', 'its name for people, if it is not the slug')],
    input: ({ slug, ...fields }: { slug: string }) => ({ name: slug, slug, ...fields }),
  },
  'permissions.updatePermission': {
    help: 'change how the catalogue describes a permission',
    fields: { permissionId: ['slug'] },
  },
  'permissions.getPermission': { fields: { permissionId: ['slug'] } },
  'permissions.listPermissions': {
    show: {
      permission: 'slug',
      name: ({ name, slug }: Permission) => (name === slug ? undefined : name),
      description: 'description',
    },
  },
  'permissions.deletePermission': {
    help: 'delete a permission from the catalogue and from all roles; keys to which you gave it directly keep it',
    fields: { permissionId: ['slug'] },
  },
  'permissions.createRole': {
    as: 'roles create',
    fields: { ratelimits: ROLE_LIMITS, concurrency: ROLE_CONCURRENCY },
  },
  'permissions.getRole': {
    as: 'roles get',
    show: columns('roleId:id name permissions description plan:ratelimits concurrency managedBy driftedAt'),
  },
  'permissions.updateRole': {
    as: 'roles update',
    help: 'change several things of a role at once; when this returns, no verifier uses the old ones any more',
    fields: {
      permissions: ['--permissions <slugs>'],
      ratelimits: ROLE_LIMITS,
      concurrency: ROLE_CONCURRENCY,
    },
    subject: (_: object, { roleId }: { roleId: string }) => `changed ${roleId}`,
  },
  'permissions.listRoles': {
    as: 'roles list',
    people: columns('name permissions plan:ratelimits concurrency roleId:id'),
    show: columns('roleId:id name permissions description plan:ratelimits concurrency'),
  },
  'permissions.setRolePermissions': {
    as: 'roles set',
    help: 'replace the permissions of a role; when this returns, no verifier uses the old permissions any more',
    fields: { permissions: ['slugs'] },
    subject: (_: object, { roleId }: { roleId: string }) => `changed ${roleId}`,
  },
  'permissions.setRoleLimits': {
    as: 'roles set-limits',
    help: 'replace the limits of a role, which is then a plan; when this returns, every verifier obeys them',
    fields: { ratelimits: ROLE_LIMITS, concurrency: ROLE_CONCURRENCY },
    subject: (_: object, { roleId }: { roleId: string }) => `changed ${roleId}`,
  },
  'permissions.deleteRole': { as: 'roles delete', help: 'delete a role; it then grants nothing to any key' },
  'permissions.getRolePropagation': {
    as: 'roles propagation',
    help: 'show whether an earlier change of a role is complete; the change printed its sequence',
  },
  'identities.createIdentity': {
    help: 'create an identity for all keys with its external id; when this returns, every verifier knows it',
    examples: [
      'identities create grace --ratelimits \'[{"name":"requests","limit":1000,"duration":60000}]\'',
    ],
    fields: { ratelimits: SHARED_LIMITS, concurrency: SHARED_CONCURRENCY, externalId: ['externalId'] },
  },
  'identities.getIdentity': {
    help: 'show an identity, its plan, and how much it has left',
    args: ['externalId'],
    fields: { identityId: null, externalId: ['externalId'] },
    async subject(identity: ShownIdentity, _input: object, client) {
      const allowances = await client.call<Allowances>('identities.getAllowances', {
        identityId: identity.id,
      });
      return list({ ...identity, ...allowances }, IDENTITY);
    },
  },
  'identities.listIdentities': {
    people: { externalId: 'externalId', state: dotState, roles: 'roles', identityId: 'id' },
    show: { identityId: 'id', state, externalId: 'externalId' },
  },
  'identities.listKeys': {
    as: 'identities keys',
    help: 'list the keys of an identity in all APIs',
    fields: { externalId: ['externalId'] },
    people: KEY_OF_PEOPLE,
    show: { apiId: 'apiId', ...LISTED_KEY },
  },
  'identities.updateIdentity': {
    help: 'change the meta, the shared limits, the roles or the APIs of an identity',
    examples: ['identities update grace --meta \'{"plan":"pro"}\''],
    args: ['externalId'],
    fields: {
      identityId: null,
      externalId: ['externalId'],
      ratelimits: SHARED_LIMITS,
      concurrency: SHARED_CONCURRENCY,
      apiIds: [
        '--api-ids <ids>',
        'the APIs in which the identity applies, such as billing,shop; empty = all',
        (text) => (names(text).length > 0 ? names(text) : null),
      ],
    },
    switches: { enable: 'accept the keys of an identity again, except those that are disabled themselves' },
  },
  'identities.updateCredits': {
    as: 'identities credits',
    help: 'set, increment or decrement the credits that the keys of an identity share; when this returns, no verifier uses the old credits any more',
    ...CREDITS,
    args: ['externalId', 'op', 'value'],
    fields: { ...CREDITS.fields, identityId: null, externalId: ['externalId'] },
  },
  'identities.getIdentityPropagation': {
    as: 'identities propagation',
    help: 'show whether an earlier change of an identity is complete; the change printed its sequence',
  },
  'rootKeys.createRootKey': {
    help: 'create a root key and show its secret; the secret is never shown again',
    examples: [
      "root-keys create support --permission 'api.*.read_key' 'api.*.read_api'",
      'root-keys create ada --preset read-only',
    ],
    fields: {
      permissions: [
        '--permission <permission...>',
        'permissions: *, api.<apiId|*>.<action>, root.*.<action>',
      ],
    },
    options: () => [
      new Option('--preset <preset>', `in place of permissions: ${presetsText}`)
        .choices(Object.keys(PRESETS))
        .conflicts('permission'),
    ],
    input({ preset, ...rootKey }: { preset?: string; permissions?: readonly string[] }) {
      const permissions = preset === undefined ? rootKey.permissions : PRESETS[preset]?.permissions;
      if (!permissions) throw new CliError('USAGE', 'give --permission or --preset');
      return { ...rootKey, permissions };
    },
    show: columns('rootKeyId key'),
    note: 'The root key is not stored anywhere and cannot be shown again.',
  },
  'rootKeys.updateRootKey': {
    switches: { enable: 'accept a root key again', disable: 'refuse a root key from its next call on' },
  },
  'rootKeys.deleteRootKey': {
    help: 'delete a root key, and all root keys that were created with it, for good',
    question: (id) => `delete ${id} and all root keys that descend from it`,
    subject: ({ deletedRootKeys }: { deletedRootKeys: number }) =>
      `deleted ${count(deletedRootKeys)} root keys`,
  },
  'rootKeys.listRootKeys': {
    people: { name: 'name', state: dotState, ...columns('permissions rootKeyId') },
    show: { rootKeyId: 'rootKeyId', state, ...columns('created:createdAt name permissions') },
  },
  'rootKeys.listSessions': {
    as: 'root-keys sessions',
    help: 'list who is signed in at the dashboard',
    show: {
      sessionId: 'sessionId',
      who: ({ rootKeyId, person }: ListedSession) => (person ? callerName({ person }) : rootKeyId),
      ...columns('from:address since:createdAt'),
    },
  },
  'audit.listEvents': {
    as: 'audit',
    help: 'who did what, the latest first',
    examples: [
      'audit --since yesterday --until yesterday',
      'audit --key key_0mzc9k4q8r2wfXa1Bc2d --since 2h',
      'audit --refused --operation keys.updateKey',
    ],
    fields: {
      apiId: ['--api <apiId>', 'only calls on this API'],
      keyId: ['--key <key>', 'only calls on this key, by its id or its name'],
      rootKeyId: ['--by <rootKeyId>', 'only calls by this root key, or by the person with this id'],
      operation: ['--operation <operation>', 'only this operation, such as keys.updateKey'],
    },
    web: ({ refused, operation, apiId, keyId, rootKeyId }: Readonly<Record<string, string>>) =>
      page('audit', { refused, operation, apiId, keyId, rootKeyId }),
    people: {
      time: 'time',
      outcome: 'outcome',
      what: sentenceOf,
    },
    show: {
      time: 'time',
      by: ({ by }: ListedEvent) => (by.person ? callerName(by) : by.rootKeyId),
      from: ({ by }: ListedEvent) => by.address,
      ...columns('operation outcome'),
      on: ({ on }: ListedEvent) => aboutOf(on),
      change: ({ before, after }: ListedEvent) =>
        [before, after].flatMap((each) => (each === undefined ? [] : [JSON.stringify(each)])).join(' → ') ||
        undefined,
    },
  },
  'webhooks.createEndpoint': {
    help: 'create an endpoint and show its signing secret; the secret is never shown again',
    examples: [
      'webhooks create https://hooks.example.com/keyfence',
      'webhooks create https://hooks.example.com/keyfence --events key.disabled,key.expiring --api-ids shop',
    ],
    show: columns('endpointId url events secret'),
    note: 'The signing secret cannot be shown again; `webhooks rotate-secret` replaces it.',
  },
  'webhooks.updateEndpoint': {
    help: 'change the URL, the name, the events or the APIs of an endpoint',
    examples: ['webhooks update endpoint_0mzc9k4q8r2wfXa1Bc2d --name Hooks'],
    switches: {
      enable: 'send events to an endpoint again, first those that wait',
      disable: 'send and queue nothing; what waits already waits on',
    },
  },
  'webhooks.listEndpoints': {
    web: () => 'webhooks',
    people: {
      name: 'name',
      url: ({ url }: ListedEndpoint) => url.replace('https://', ''),
      state: ({ state, waiting, dropped, dead }: ListedEndpoint) =>
        [
          `${DOT}${state}`,
          ...(waiting > 0 ? [`${count(waiting)} waiting`] : []),
          ...(dropped + dead > 0 ? [`${count(dropped + dead)} lost`] : []),
        ].join(', '),
      ...columns('events endpointId'),
    },
    show: {
      ...columns('endpointId name state waiting'),
      lost: ({ dropped, dead }: ListedEndpoint) => count(dropped + dead),
      ...columns('events url'),
    },
  },
  'webhooks.deleteEndpoint': { question: (id) => `delete ${id} and the events that wait for it` },
  'webhooks.listDeliveries': {
    as: 'webhooks deliveries',
    help: 'attempts to deliver events, the latest first',
    show: {
      ...columns('time deliveryId type result attempt'),
      answer: ({ status, error }: Delivery) => status ?? error,
      next: 'nextAt',
      on: ({ event }: Delivery) => aboutOf(Object(event).data),
    },
  },
  'webhooks.redeliver': {
    subject: (_: object, { deliveryId }: { deliveryId: string }) => `queued the event of ${deliveryId}`,
  },
  'webhooks.test': {
    show: columns('delivered status error durationMs response'),
    isNo: ({ delivered }: { delivered: boolean }) => !delivered,
  },
};
