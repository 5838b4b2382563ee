import { Type } from 'typebox';
import {
  MISSING_LENGTH_MAX,
  QUESTION_JSON_MAX,
  REFUSALS_KEPT,
} from '#shared/protocol/records/refusal-records.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { codesWhere } from '#shared/rules/verdict-codes.ts';
import type { Apis } from '../../core/apis/apis.ts';
import { keyIdExample } from '../../core/keys/key-answer.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { KeyView } from '../../core/records/key-view.ts';
import { Limit, makeCursor, openCursor } from '../../core/schema/lists.ts';
import { ApiId, Count, Fields, Id, KeyId, List, Moment, Time, timeOf } from '../../core/schema/primitives.ts';
import { apiNotFound, recordNotFound } from '../../core/serve/authorization.ts';
import { operation } from '../../core/serve/operation.ts';
import type { CostlyReads } from '../../core/serve/turns.ts';
import type { UsageView } from '../usage/usage.ts';
import type { Finding } from './examination.ts';
import type { RefusalView } from './refusals.ts';

/** Maximum number of keys whose refusals one call examines, of up to 100 kB each, and how many at once. */
const EXAMINED = { most: 500, atOnce: 25 } as const;

const RefusalData = Type.Object({
  time: Time('When it was, by the clock of the verifier'),
  code: Type.String({ description: 'The code of the verdict.' }),
  reason: Type.Optional(
    Type.String({
      description:
        "`address`: the key may not be used from the client's address (`allowedIps`); `origin`: not from this web page (`allowedOrigins`); `api`: the question was about another API; `identity`: the key's identity is disabled.",
    }),
  ),
  detail: Type.String({ description: 'For people: what decided, with the numbers.' }),
  missingPermissions: Type.Optional(
    List(Type.String(), {
      description: `Permissions of the query that the key lacked, up to ${MISSING_LENGTH_MAX} characters of them.`,
    }),
  ),
  ratelimit: Type.Optional(
    Type.Object(
      {
        name: Type.String(),
        limit: Type.Integer(),
        duration: Type.Integer({ description: 'Length of a window, in milliseconds.' }),
        remaining: Type.Integer({ description: 'The rest of the window.' }),
        cost: Type.Integer({ description: 'The cost of the question.' }),
      },
      { description: 'The rate limit that refused.' },
    ),
  ),
  concurrency: Type.Optional(
    Type.Object(
      { name: Type.String(), limit: Type.Integer() },
      { description: 'The concurrency limit that refused: as many requests were running.' },
    ),
  ),
  credits: Type.Optional(
    Type.Object(
      { remaining: Type.Integer(), cost: Type.Integer() },
      { description: 'The credits that were left, and what the question cost.' },
    ),
  ),
  expires: Type.Optional(Time('When the key expired')),
  externalId: Type.Optional(Type.String({ description: 'The identity that is disabled.' })),
  question: Type.Optional(
    Type.Object(
      {
        apiId: Type.Optional(Type.String()),
        permissions: Type.Optional(Type.String()),
        cost: Type.Optional(Type.Integer()),
        ratelimits: Type.Optional(
          List(
            Type.Object({
              name: Type.String(),
              cost: Type.Integer(),
              limit: Type.Optional(Type.Integer()),
              duration: Type.Optional(Type.Integer()),
            }),
          ),
        ),
        clientIp: Type.Optional(Type.String()),
        origin: Type.Optional(Type.String()),
      },
      {
        description: `The requirements of the question. Give them to keys.explain, with \`keyId\`, to see whether it would pass now. Absent if it has more than ${QUESTION_JSON_MAX} characters.`,
      },
    ),
  ),
  requestId: Type.Optional(
    Type.String({ description: 'As the answer had it; absent = the verifier is part of an application.' }),
  ),
  verifierId: Type.String({ description: 'The verifier, as in fleet.listVerifiers.' }),
  clientIp: Type.Optional(Type.String({ description: 'Address of the client, if the verifier knew it.' })),
  origin: Type.Optional(Type.String({ description: 'Origin of the web page, if the request told one.' })),
  route: Type.Optional(
    Type.String({
      description: "Method and path of the client's request, without the query, if the gateway told them.",
    }),
  ),
});

/** The sentences of descriptions about the refusals that are kept. */
const LATE =
  'Verifiers report up to their USAGE_PERIOD_MS late, and each second while somebody asks for this (of 10 APIs).';
const KEPT = `${LATE} Kept are the latest ${REFUSALS_KEPT.ofKey} of a key for seven days, of the ${REFUSALS_KEPT.keysOfApi.toLocaleString('en')} keys of an API that were refused last.`;

const listRefusals = operation({
  name: 'keys.listRefusals',
  kind: 'query',
  summary: 'See why a key was refused lately',
  description: `The latest first. ${KEPT}`,
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId }),
  response: Type.Object({ refusals: List(RefusalData) }),
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle(
    { apiId, request: { keyId } },
    { keys, refusals, usage }: { keys: Keys; refusals: RefusalView; usage: UsageView },
  ) {
    await usage.watch([apiId]);
    if ((await keys.lastSequence(apiId, keyId)) === undefined) throw await recordNotFound(keys, apiId, keyId);
    return { refusals: await refusals.list(apiId, keyId) };
  },
});

export const listRefusedKeys = operation({
  name: 'apis.listRefusedKeys',
  kind: 'query',
  summary: 'See which keys were refused in a time, and why',
  description: `Lists keys of the API with how many of their kept refusals match and the latest of these; the key that was refused last comes first. Examines the ${EXAMINED.most} keys that were refused last. ${KEPT}`,
  permissions: ['api.<apiId>.read_key'],
  request: Fields({
    apiId: ApiId,
    code: Type.Optional(
      Type.Union(
        codesWhere(({ status, usage }) => status !== 200 && usage !== undefined).map((code) =>
          Type.Literal(code),
        ),
        { description: 'Only refusals with this verdict.' },
      ),
    ),
    since: Moment('only refusals since then.'),
    until: Moment('only refusals until then.'),
    limit: Limit('Keys'),
  }),
  response: Type.Object({
    keys: List(
      Type.Object({
        keyId: Id('the key'),
        name: Type.Optional(Type.String()),
        externalId: Type.Optional(Type.String({ description: 'The identity of the key.' })),
        count: Count('Number of its kept refusals that match.'),
        refusal: RefusalData,
      }),
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', code: 'INSUFFICIENT_PERMISSIONS' },
  async handle(
    { request: { apiId, code, limit, ...time }, caller },
    needs: { apis: Apis; view: KeyView; usage: UsageView; refusals: RefusalView; costlyReads: CostlyReads },
  ) {
    const { apis, view, usage, refusals, costlyReads } = needs;
    if (!(await apis.get(apiId))) throw apiNotFound(apiId);
    const [since = 0, until = Number.MAX_SAFE_INTEGER] = [timeOf(time.since), timeOf(time.until)];
    const refusedKey = async (keyId: string) => {
      const matching = (await refusals.list(apiId, keyId)).filter(
        (each) => each.time >= since && each.time <= until && (code === undefined || each.code === code),
      );
      const [refusal] = matching;
      const key = refusal && (await view.get(apiId, keyId));
      if (!key) return [];
      const { name, externalId } = key;
      const whose = { ...(name ? { name } : {}), ...(externalId ? { externalId } : {}) };
      return [{ keyId, ...whose, count: matching.length, refusal }];
    };
    const list = async () => {
      const keyIds = (await refusals.keyIds(apiId)).map((keyId) => ({ keyId }));
      // Of a key that was just refused, its usage may not be reported yet.
      const latest = (await usage.withLastUses(apiId, keyIds))
        .filter(({ lastRefusedAt = until }) => lastRefusedAt >= since)
        .sort((a, b) => (b.lastRefusedAt ?? until) - (a.lastRefusedAt ?? until))
        .slice(0, EXAMINED.most);
      const keys = [];
      for (let i = 0; i < latest.length && keys.length < Number(limit); i += EXAMINED.atOnce) {
        const part = latest.slice(i, i + EXAMINED.atOnce);
        keys.push(...(await Promise.all(part.map(({ keyId }) => refusedKey(keyId)))).flat());
      }
      return { keys: keys.sort((a, b) => b.refusal.time - a.refusal.time).slice(0, Number(limit)) };
    };
    return costlyReads.run(caller.id, list);
  },
});

/** The number of a refusal in the order of the reports. */
const PLACE = /^(0|[1-9][0-9]{0,14})$/;

export const listApiRefusals = operation({
  name: 'apis.listRefusals',
  kind: 'query',
  id: 'listApiRefusals',
  summary: 'Follow the refusals of all keys of an API',
  description: `In the order of the reports, the oldest first. To follow them, repeat the call with the last \`cursor\` as \`after\`. ${LATE} Kept are the latest ${REFUSALS_KEPT.ofApi.toLocaleString('en')}, for seven days.`,
  permissions: ['api.<apiId>.read_key'],
  request: Fields({
    apiId: ApiId,
    limit: Limit('Refusals'),
    after: Type.Optional(
      Type.String({
        ...{ minLength: 1, maxLength: 64 },
        description: '`cursor` of an earlier answer: only refusals after it. Absent: the latest.',
      }),
    ),
  }),
  response: Type.Object({
    refusals: List(
      Type.Object({
        keyId: Id('the key'),
        name: Type.Optional(Type.String({ description: 'Its name.' })),
        start: Type.Optional(
          Type.String({
            description: 'First characters of its secret; absent: it is deleted, or they are unknown.',
          }),
        ),
        ...RefusalData.properties,
        externalId: Type.Optional(Type.String({ description: 'The identity of the key.' })),
      }),
    ),
    cursor: Type.String({ description: 'The place after the last of them, for `after`.' }),
    missed: Count('Number of refusals after `after` that are not kept any more.'),
  }),
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', limit: '10' },
  async handle(
    { request: { apiId, limit, after } },
    { apis, refusals, usage }: { apis: Apis; refusals: RefusalView; usage: UsageView },
  ) {
    if (!(await apis.get(apiId))) throw apiNotFound(apiId);
    await usage.watch([apiId]);
    const listing = ['listRefusals', apiId] as const;
    const [number = Infinity] = after === undefined ? [] : openCursor(listing, after, PLACE, 'after');
    const { last, ...page } = await refusals.listOfApi(apiId, Number(limit), Number(number));
    return { ...page, cursor: makeCursor(listing, String(last)) };
  },
});

/** Maximum number of APIs that one call examines. */
const APIS_MAX = 1000;

const findVerdict = operation({
  name: 'verdicts.find',
  kind: 'question',
  id: 'findVerdict',
  summary: 'Find the refusal of a request',
  description: `Finds it by the id that the answer had (\`requestId\`, \`X-Request-Id\`), in the APIs whose keys the root key may read; of more than 1,000 APIs, in the first. Only refusals of known keys are kept. ${KEPT}`,
  permissions: ['api.<apiId>.read_key'],
  authorizesItself: true,
  request: Fields({
    requestId: Type.String({ pattern: '^[!-~]{1,128}$', description: 'The id of the request.' }),
  }),
  response: Type.Object({ apiId: Id('the API'), keyId: Id('the key'), refusal: RefusalData }),
  errors: ['NOT_FOUND'],
  example: { requestId: '0mzc9k4q8r2wfXa1' },
  async handle(
    { request: { requestId }, caller: { permissions } },
    { apis, refusals }: { apis: Apis; refusals: RefusalView },
  ) {
    const apiIds = permissions.apisWith('read_key') ?? (await apis.ids('', APIS_MAX));
    const keyIds = await Promise.all(apiIds.map((apiId) => refusals.keyOf(apiId, requestId)));
    for (const [i, apiId] of apiIds.entries()) {
      const keyId = keyIds[i];
      const listed = keyId === undefined ? [] : await refusals.list(apiId, keyId);
      const refusal = listed.find((each) => each.requestId === requestId);
      if (keyId !== undefined && refusal !== undefined) return { apiId, keyId, refusal };
    }
    throw new ApiError(
      'NOT_FOUND',
      'requestId: no refusal with this id is kept; the verifier may not have reported it yet',
    );
  },
});

export const listFindings = operation({
  name: 'fleet.listFindings',
  kind: 'query',
  summary: 'Examine Redis and the verifiers',
  description:
    'Checks the settings of Redis, and that the verifiers fit together and fit the keys. `keyfence doctor` runs the same checks, and some more.',
  permissions: ['root.*.read_fleet'],
  request: Fields({}),
  response: Type.Object({
    findings: List(
      Type.Object({
        check: Type.String({ description: 'The thing that was examined.' }),
        result: Type.String(),
        change: Type.Optional(Type.String({ description: 'The change to make; absent = none.' })),
      }),
    ),
  }),
  errors: [],
  example: {},
  async handle(_call, { examine }: { examine: () => Promise<readonly Finding[]> }) {
    const findings = await examine();
    return { findings: findings.map(({ found: result, ...finding }) => ({ ...finding, result })) };
  },
});

export const refusalOperations = [listRefusals, findVerdict] as const;
