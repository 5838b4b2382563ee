import { type TArrayOptions, type TSchema, Type } from 'typebox';

/** Every answer's shape: the single source of its serialisation and its documentation. */

const Sequence = Type.Integer({ minimum: 0, description: "A change's place in its API's log." });
const Time = (description: string) => Type.Integer({ description: `${description}, Unix milliseconds.` });

const List = <Item extends TSchema>(item: Item, options: TArrayOptions = {}) =>
  Type.Immutable(Type.Array(item, options));
const Id = (what: string) => Type.String({ description: `The id of ${what}.` });
const Cursor = Type.Optional(Type.String({ description: 'For the next page; absent on the last one.' }));

export const CreatedKey = Type.Object(
  {
    keyId: Id('the key'),
    key: Type.String({ description: 'The secret. It is told this once and kept nowhere.' }),
  },
  { examples: [{ keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' }] },
);

/** A key as admins see it. */
const Key = Type.Object({
  id: Id('the key'),
  keyId: Type.String({ description: 'The same.' }),
  apiId: Id('its API'),
  start: Type.String({ description: 'What the secret begins with.' }),
  name: Type.Optional(Type.String()),
  meta: Type.Object({}, { additionalProperties: true }),
  externalId: Type.Optional(Type.String()),
  enabled: Type.Boolean(),
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  expires: Type.Optional(Time('From when on it is refused')),
});
export const UsedKey = Type.Object({
  ...Key.properties,
  lastUsedAt: Type.Optional(
    Time('When a verifier last reported that it accepted the key; up to its USAGE_PERIOD_MS after it did'),
  ),
});
const Count = (description: string) => Type.Integer({ minimum: 0, description });
const Never = Type.Literal(0, { description: 'Always 0; for clients of the v1 SDK, which ask for it.' });
export const Verifications = Type.Object({
  verifications: List(
    Type.Object({
      time: Time('When the hour or day began'),
      success: Count('Verified and accepted.'),
      disabled: Count('Refused because it was disabled.'),
      expired: Count('Refused because it had expired.'),
      forbidden: Count('Refused because it is of another API than was asked for.'),
      rateLimited: Never,
      usageExceeded: Never,
    }),
    { description: 'In order of time, those without verifications too.' },
  ),
});
export const KeyPage = Type.Object({
  keys: List(Key),
  total: Type.Integer({ minimum: 0, description: 'All keys of the API, whatever the filter.' }),
  cursor: Cursor,
});

export const ImportResults = Type.Object({
  results: List(
    Type.Union([
      Type.Object({
        result: Type.Union([Type.Literal('created'), Type.Literal('exists')]),
        keyId: Id('the key'),
      }),
      Type.Object({ result: Type.Literal('refused'), code: Type.String(), message: Type.String() }),
    ]),
    { description: 'What became of each key, in its place.' },
  ),
});

const Propagation = Type.Object({
  state: Type.Union([Type.Literal('complete'), Type.Literal('pending')], {
    description: 'complete: no verifier answers by what was before.',
  }),
  by: Type.Optional(
    Type.Union([Type.Literal('acks'), Type.Literal('fence')], {
      description: 'acks: every verifier confirmed it. fence: those that did not can no longer answer.',
    }),
  ),
  sequence: Sequence,
  durable: Type.Boolean({ description: 'Whether it survives a crash or a failover of Redis.' }),
  verifiers: Type.Integer({ minimum: 0, description: 'Verifiers registered for the API.' }),
  waitedMs: Type.Number({ minimum: 0 }),
  completeBy: Type.Optional(Time('Pending: when it is complete at the latest, if Redis stays in reach')),
  laggards: Type.Optional(
    List(Type.String(), { description: 'Verifiers that have not confirmed it, the first 100.' }),
  ),
});
export const Propagated = Type.Object(
  { propagation: Propagation },
  {
    examples: [
      {
        propagation: {
          state: 'complete',
          by: 'acks',
          sequence: 7,
          durable: true,
          verifiers: 2,
          waitedMs: 3.2,
        },
      },
    ],
  },
);

export const CreatedApi = Type.Object({ apiId: Id('the API'), name: Type.String() });
export const Api = Type.Object({
  id: Id('the API'),
  name: Type.Optional(Type.String()),
  createdAt: Time('When it was created'),
  foreignKeys: Type.Optional(
    Type.Literal(true, {
      description: 'Some of its keys are of another format, found only by verifiers with FOREIGN_KEYS on.',
    }),
  ),
});
export const ApiPage = Type.Object({ apis: List(Api), cursor: Cursor });

export const CreatedRootKey = Type.Object({
  rootKeyId: Id('the root key'),
  key: Type.String({ description: 'The secret. It is told this once and kept nowhere.' }),
});
export const UpdatedRootKey = Type.Object({ rootKeyId: Id('the root key'), enabled: Type.Boolean() });
export const RootKeyList = Type.Object({
  rootKeys: List(
    Type.Object({
      rootKeyId: Id('the root key'),
      name: Type.String(),
      permissions: List(Type.String()),
      enabled: Type.Boolean(),
      createdAt: Time('When it was created'),
    }),
  ),
});

const Effect = (description: string) =>
  Type.Optional(Type.Object({}, { additionalProperties: true, description }));
export const EventCaller = Type.Object({
  rootKeyId: Type.Optional(Id('who called')),
  address: Type.String({ description: 'Where the call came from; unknown where that could not be told.' }),
});
export const EventSubject = Type.Object({
  apiId: Type.Optional(Type.String()),
  keyId: Type.Optional(Type.String()),
  rootKeyId: Type.Optional(Type.String()),
});
/** An event of the audit log; `ListedEvent` is its type. */
export const Event = Type.Object({
  id: Type.String({ description: 'Sorts by when events were recorded.' }),
  time: Time('When the call arrived'),
  requestId: Type.String(),
  operation: Type.String(),
  outcome: Type.String({ description: 'OK, or the code of the error.' }),
  by: EventCaller,
  on: EventSubject,
  before: Effect('What was changed, as it was; of meta only the length and a hash.'),
  after: Effect('What was changed, as it is.'),
  sequence: Type.Optional(Sequence),
  incomplete: Type.Optional(
    Type.Literal(true, {
      description: 'What is stored of it does not fit; what could not be read is left out or `unknown`.',
    }),
  ),
});
export const EventPage = Type.Object({ events: List(Event), cursor: Cursor });

const FollowedApi = Type.Object({
  apiId: Type.String(),
  member: Type.String({
    description: 'The name that `propagation.laggards` gives, should it hold a change up.',
  }),
  state: Type.Union([Type.Literal('live'), Type.Literal('fenced'), Type.Literal('joining')], {
    description:
      'live: answers from memory. fenced: its lease ran out. joining: not in sync yet, or not any more.',
  }),
  position: Sequence,
  lag: Type.Integer({ minimum: 0, description: 'Changes that it knows of and has not applied.' }),
  leaseRemainingMs: Type.Integer({
    minimum: 0,
    description: 'How much longer it may answer from memory without hearing from Redis, ms.',
  }),
});

/** A verifier as it reported itself; `VerifierStatus` is its type. */
export const Verifier = Type.Object({
  id: Type.String({
    pattern: '^verifier_[0-9A-Za-z]{20}$',
    description: 'Of this process; ids sort by start.',
  }),
  host: Type.String({ maxLength: 256 }),
  version: Type.String({ maxLength: 64 }),
  startedAt: Time('When it started'),
  reportedAt: Time('When it said all this'),
  verdicts: Type.Object(
    { memory: Type.Integer({ minimum: 0 }), redis: Type.Integer({ minimum: 0 }) },
    { description: 'Verdicts since its start; the hit rate is memory ÷ both.' },
  ),
  keysInMemory: Type.Integer({ minimum: 0 }),
  settings: Type.Optional(
    Type.Object(
      { foreignKeys: Type.Boolean(), syncPeriodMs: Type.Integer({ minimum: 0 }) },
      { description: 'FOREIGN_KEYS and SYNC_PERIOD_MS, which must fit keys and LEASE_MS.' },
    ),
  ),
  apis: List(FollowedApi, { maxItems: 100, description: 'Those in trouble first.' }),
  apisNotShown: Type.Integer({ minimum: 0, description: 'Followed APIs beyond those.' }),
});

export const VerifierPage = Type.Object({ verifiers: List(Verifier), cursor: Cursor });
