import { type Static, type TProperties, Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import type { Write } from '#shared/protocol/log/change-log-port.ts';
import type { StoredFields } from '#shared/protocol/records/key-record.ts';
import type {
  BatchEvents,
  ChangeOutcome,
  ChangeWriter,
  Propagation as Progress,
} from '#shared/protocol/writer/writer.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import type { Apis } from '../../apis/apis.ts';
import type { RoleNames } from '../../ports.ts';
import type { KeyView } from '../../records/key-view.ts';
import { auditView, idAsSent } from '../../schema/audit-event.ts';
import { Propagation, propagationExample, WaitMs } from '../../schema/changes.ts';
import { OwnerId, withoutAliases } from '../../schema/key-fields.ts';
import { makeCursor, openCursor } from '../../schema/lists.ts';
import { ApiId, Count, Fields, Id, KeyId, List, Sequence } from '../../schema/primitives.ts';
import { apiNotFound } from '../../serve/authorization.ts';
import { type AuditedKey, type Call, effectOf } from '../../serve/call.ts';
import { operation } from '../../serve/operation.ts';
import {
  CHANGES,
  checkLifetime,
  keyIdExample,
  type LifetimeStores,
  Refused,
  refusedIn,
  storedChanges,
} from '../key-answer.ts';
import type { Keys, PointedKey } from '../keys.ts';

/** Maximum number of keys that one call changes. */
export const MANY_KEYS_MAX = 1000;
/** Maximum body of a call that names keys: 1,000 ids of the maximum length, and a meta. */
const MANY_KEYS_BYTES_MAX = 131_072;

/** The fields that choose the keys of a call: by their ids, or by their identity, page after page. */
const CHOICE = {
  apiId: ApiId,
  keyIds: Type.Optional(
    Type.Array(KeyId, {
      minItems: 1,
      maxItems: MANY_KEYS_MAX,
      description: 'The keys. Keys that the API does not have are reported among the results.',
    }),
  ),
  externalId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: `Instead of keyIds: selects the keys of this identity, ${MANY_KEYS_MAX} per call.`,
    }),
  ),
  ownerId: Type.Optional(OwnerId),
  cursor: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 64,
      description: "Cursor from the previous call, for an identity's next keys.",
    }),
  ),
} satisfies TProperties;

/** Chosen keys of an API without duplicates, and the cursor of the next page. */
export interface KeyChoice {
  readonly apiId: string;
  readonly keyIds: readonly string[];
  readonly cursor?: string;
}

/** A cursor's place: the creation number of the first key of the page. */
const PLACE = /^owner:(\d{1,15})$/;

/**
 * Returns the chosen keys. Rejects with BAD_REQUEST unless keys are chosen in exactly one way, with NOT_FOUND
 * if there is no such API.
 */
async function choose(
  call: Call<Static<ReturnType<typeof Fields<typeof CHOICE>>>>,
  { view, apis }: { view: KeyView; apis: Apis },
): Promise<KeyChoice> {
  const { apiId, keyIds, externalId, cursor } = withoutAliases(call.request);
  if ((keyIds === undefined) === (externalId === undefined)) {
    const rule = 'give either these or externalId, which selects the keys of an identity';
    throw new ApiError('BAD_REQUEST', `keyIds: ${rule}`);
  }
  if (keyIds !== undefined) {
    if (cursor !== undefined) throw new ApiError('BAD_REQUEST', 'cursor: allowed only with externalId');
    if (!(await apis.get(apiId))) throw apiNotFound(apiId);
    return { apiId, keyIds: [...new Set(keyIds)] };
  }
  const listing = ['the previous call', apiId, externalId] as const;
  const [from] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
  const page = await view.ids(
    apiId,
    externalId,
    MANY_KEYS_MAX,
    from === undefined ? undefined : Number(from),
  );
  if (!page) throw apiNotFound(apiId);
  if (externalId !== undefined)
    call.note({ externalId: page.keyIds.length > 0 ? externalId : idAsSent(externalId) });
  const { keyIds: selected, next } = page;
  return {
    ...{ apiId, keyIds: selected },
    ...(next === undefined ? {} : { cursor: makeCursor(listing, `owner:${next}`) }),
  };
}

/** Outcomes for many keys, and the propagation of the last change. */
interface ManyOutcomes {
  readonly outcomes: readonly ChangeOutcome[];
  readonly propagation?: Progress;
}

/** Schema of the outcomes for many keys. */
const ManyResults = <Result extends string>(result: Result, example: object) =>
  Type.Object(
    {
      results: List(
        Type.Union([
          Type.Object({ result: Type.Literal(result), keyId: Id('the key'), sequence: Sequence }),
          Type.Object({
            result: Type.Literal('refused'),
            keyId: Id('the key'),
            code: Type.String({ description: 'NOT_FOUND: the API has no such key.' }),
            message: Type.String(),
          }),
        ]),
        { description: 'One outcome per key.' },
      ),
      refused: Refused,
      propagation: Type.Optional(Propagation),
      cursor: Type.Optional(
        Type.String({ description: "Cursor for the identity's next keys; absent if there are none." }),
      ),
    },
    { examples: [example] },
  );

/** The response that `ManyResults` describes. */
function manyResults<Result extends string>(
  result: Result,
  { outcomes, propagation }: ManyOutcomes,
  { cursor }: KeyChoice,
) {
  const results = outcomes.map(({ keyId, ...outcome }) => {
    if ('sequence' in outcome) return { result, keyId, sequence: outcome.sequence };
    const { code, message } = outcome.failure;
    return { result: 'refused' as const, keyId, code, message };
  });
  return {
    results,
    refused: refusedIn(results),
    ...(propagation ? { propagation } : {}),
    ...(cursor === undefined ? {} : { cursor }),
  };
}

/**
 * Writes the change of each key, waits for all together, and notes them for the audit log.
 * @param fields the changes to each key; undefined = delete the keys
 */
async function changeMany(
  call: Call,
  { changeWriter }: { changeWriter: ChangeWriter },
  { apiId, keyIds }: KeyChoice,
  fields: StoredFields | undefined,
  waitMs: number | undefined,
): Promise<ManyOutcomes> {
  const operation = fields ? 'update' : 'delete';
  const [first, ...others] = keyIds.map(
    (keyId): Write => ({ apiId, operation, keyId, fields: fields ?? {} }),
  );
  const after = fields && auditView(fields);
  const counts = { [`${operation}d`]: 0, refused: 0, unknown: 0 };
  const noteCounts = () => call.note({}, { after: { ...after, ...counts } });
  const record = (keys: readonly AuditedKey[]) => {
    void call.recordKeys(keys);
    noteCounts();
  };
  noteCounts();
  if (!first) return { outcomes: [] };
  const events: BatchEvents = {
    onWritten(changes) {
      counts[`${operation}d`] = (counts[`${operation}d`] ?? 0) + changes.length;
      record(
        changes.map(({ write: { keyId }, entry }) => ({
          keyId,
          outcome: 'OK',
          effect: effectOf(entry, after),
        })),
      );
    },
    onUnknown(writes) {
      counts.unknown += writes.length;
      record(
        writes.map(({ keyId }) => ({
          keyId,
          outcome: 'SERVICE_UNAVAILABLE',
          effect: after ? { after } : {},
        })),
      );
    },
    onEnd: () => call.giveTurnBack(),
  };
  const result = await changeWriter.applyAll([first, ...others], waitMs, events);
  counts.refused = result.outcomes.filter((each) => 'failure' in each).length;
  noteCounts();
  if (result.propagation) call.note({}, { sequence: result.propagation.sequence });
  return result;
}

/** Deletes keys like `changeMany`, and then the pointers that lead to them. */
async function deleteMany(
  call: Call,
  { keys, changeWriter }: { keys: Keys; changeWriter: ChangeWriter },
  choice: KeyChoice,
  waitMs: number | undefined,
): Promise<ManyOutcomes> {
  const { apiId, keyIds } = choice;
  const hashes = await keys.secretHashesOf(apiId, keyIds);
  const result = await changeMany(call, { changeWriter }, choice, undefined, waitMs);
  const deleted = result.outcomes.flatMap((each, i): PointedKey[] => {
    const secretHash = hashes[i];
    return 'sequence' in each && secretHash ? [{ keyId: each.keyId, secretHash }] : [];
  });
  await keys.forgetDeleted(apiId, deleted).catch((err: unknown) => {
    call.log.warn({ apiId, err }, 'pointers of deleted keys remain; they lead nowhere');
  });
  return result;
}

const { externalId: _externalId, ownerId: _alias, ...changes } = CHANGES;

const updateKeys = operation({
  name: 'keys.updateKeys',
  kind: 'change',
  stops: 'if disabled',
  summary: 'Change, disable or enable many keys',
  description:
    'Changes up to 1,000 keys of an API, selected by their ids or by their `externalId`. Returns once, when every change is complete, like updateKey; keys that the API does not have are reported among the results. After 503, any of the keys may have been changed: send the call again, which is harmless. If the identity has more keys, the response has a cursor for the next call. The `externalId` itself cannot be changed here.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({
    ...CHOICE,
    enabled: Type.Optional(
      Type.Boolean({ description: 'false: the keys are refused. true: they are accepted again.' }),
    ),
    ...changes,
    waitMs: WaitMs,
  }),
  response: ManyResults('updated', {
    results: [
      { result: 'updated', keyId: keyIdExample, sequence: 7 },
      { result: 'refused', keyId: 'key_none', code: 'NOT_FOUND', message: 'key key_none not found' },
    ],
    refused: 1,
    propagation: { ...propagationExample, waitedMs: 4 },
  }),
  event: { changed: 'key.updated', disabled: 'key.disabled', enabled: 'key.enabled' },
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', externalId: 'ada', enabled: false },
  neverShed: true,
  bodyBytesMax: MANY_KEYS_BYTES_MAX,
  async handle(
    call,
    needs: LifetimeStores & { roles: RoleNames; view: KeyView; changeWriter: ChangeWriter },
  ) {
    const { apiId, keyIds, externalId, ownerId, cursor, waitMs, ...changes } = call.request;
    await checkLifetime(needs, apiId, changes.expires);
    const fields = await storedChanges(needs.roles, changes);
    if (Object.keys(fields).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    const choice = await choose(call, needs);
    return manyResults('updated', await changeMany(call, needs, choice, fields, waitMs), choice);
  },
});

const deleteKeys = operation({
  name: 'keys.deleteKeys',
  kind: 'change',
  stops: 'always',
  summary: 'Delete many keys for good',
  description: 'Selects keys and returns like updateKeys.',
  permissions: ['api.<apiId>.delete_key'],
  request: Fields({ ...CHOICE, waitMs: WaitMs }),
  response: ManyResults('deleted', {
    results: [{ result: 'deleted', keyId: keyIdExample, sequence: 8 }],
    refused: 0,
    propagation: { ...propagationExample, sequence: 8, waitedMs: 4 },
  }),
  event: 'key.deleted',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', keyIds: [keyIdExample] },
  neverShed: true,
  bodyBytesMax: MANY_KEYS_BYTES_MAX,
  async handle(call, needs: { view: KeyView; apis: Apis; keys: Keys; changeWriter: ChangeWriter }) {
    const choice = await choose(call, needs);
    return manyResults('deleted', await deleteMany(call, needs, choice, call.request.waitMs), choice);
  },
});

export const deleteAllKeys = operation({
  name: 'apis.deleteKeys',
  kind: 'change',
  stops: 'always',
  id: 'deleteAllKeys',
  summary: 'Delete all keys of an API for good',
  description:
    'The API stays. Returns when every deletion is complete, like updateKey. If there are so many keys that this takes longer than FENCE_WAIT_MS, returns 503: send the call again for the rest.',
  permissions: ['api.<apiId>.delete_key'],
  request: Fields({
    apiId: ApiId,
    permanent: Type.Optional(
      Type.Literal(true, {
        description: 'Keys are always deleted for good; disable them instead if they may be needed again.',
      }),
    ),
    waitMs: WaitMs,
  }),
  response: Type.Object({
    deletedKeys: Count('Number of keys that this call deleted.'),
    propagation: Type.Optional(Propagation),
  }),
  event: 'key.deleted',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop' },
  neverShed: true,
  async handle(
    call,
    needs: { view: KeyView; clock: Clock; holdMs: number; keys: Keys; changeWriter: ChangeWriter },
  ) {
    const { apiId, waitMs } = call.request;
    const { view, clock, holdMs } = needs;
    const startedAtMs = clock.monotonicMs();
    let deletedKeys = 0;
    const pages: Progress[] = [];
    for (let from: number | undefined; ; ) {
      const page = await view.ids(apiId, undefined, MANY_KEYS_MAX, from);
      if (!page) throw apiNotFound(apiId);
      const { outcomes, propagation } = await deleteMany(call, needs, { apiId, keyIds: page.keyIds }, waitMs);
      deletedKeys += outcomes.filter((each) => 'sequence' in each).length;
      if (propagation) pages.push(propagation);
      call.note({}, { after: { deleted: deletedKeys } });
      if (page.next === undefined) return { deletedKeys, ...together(pages) };
      if (clock.monotonicMs() - startedAtMs >= holdMs) {
        throw unavailable(`${deletedKeys} keys are deleted, and there are more: send the call again`);
      }
      await call.recordKeys();
      from = page.next;
    }
  },
});

/** Returns the last propagation; its state is complete only if all are. */
function together(changes: readonly Progress[]): { readonly propagation?: Progress } {
  const last = changes.at(-1);
  if (!last) return {};
  const pending = changes.find(({ state }) => state === 'pending');
  return { propagation: pending ? { ...pending, sequence: last.sequence } : last };
}

export const manyKeysOperations = [updateKeys, deleteKeys] as const;
