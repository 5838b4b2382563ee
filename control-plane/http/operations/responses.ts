import { Type } from 'typebox';
import { perUsageField } from '#shared/usage.ts';
import { Event } from '../../core/audit-event.ts';
import { SHOWN_CREDITS } from '../../core/credit-schemas.ts';
import { Cursor, Id, List, Sequence, SHOWN_FIELDS, Time } from '../../core/field-schemas.ts';
import { Verifier } from '../../redis/fleet.ts';

/** Schemas of all responses: the single source of their serialisation and documentation. */

export const CreatedKey = Type.Object(
  {
    keyId: Id('the key'),
    key: Type.String({ description: 'The secret. Shown this once and stored nowhere.' }),
  },
  { examples: [{ keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' }] },
);

const { enabled, expires, ...described } = SHOWN_FIELDS;
/** A key as admins see it. */
export const Key = Type.Object({
  id: Id('the key'),
  keyId: Type.String({ description: 'The same.' }),
  apiId: Id('its API'),
  start: Type.String({ description: 'Beginning of the secret.' }),
  ...described,
  ...SHOWN_CREDITS,
  identity: Type.Optional(
    Type.Object({ id: Id('the identity'), externalId: Type.String() }, { description: 'Of its owner.' }),
  ),
  rerolledTo: Type.Optional(Id('the key that took its place, and shares its credits')),
  rerolledFrom: Type.Optional(Id('the key whose place it took')),
  enabled,
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  expires,
});
export const UsedKey = Type.Object({
  ...Key.properties,
  lastUsedAt: Type.Optional(
    Time('When a verifier last reported that it accepted the key; up to its USAGE_PERIOD_MS after it did'),
  ),
});
const Count = (description: string) => Type.Integer({ minimum: 0, description });
export const Verifications = Type.Object({
  verifications: List(
    Type.Object({
      time: Time('When the hour or day began'),
      ...perUsageField(({ code, sentence }) => Count(`Answered ${code}. ${sentence}`)),
    }),
    { description: 'In order of time, those without verifications too.' },
  ),
});
export const ApiVerifications = Type.Object({
  verifications: List(
    Type.Object({
      time: Type.Optional(Time('When the hour or day began; absent where they are grouped by tag')),
      tag: Type.Optional(Type.String({ description: 'Where they are grouped by tag.' })),
      other: Type.Optional(
        Type.Literal(true, {
          description:
            'The verdicts with tags that are not told apart: those after the first USAGE_TAGS_MAX of a day, and those beyond `limit`.',
        }),
      ),
      ...perUsageField(({ code, sentence }) => Count(`Answered ${code}. ${sentence}`)),
    }),
    {
      description:
        'In order of time; where they are grouped by tag, the most used first and the others last.',
    },
  ),
});
export const KeyPage = Type.Object({
  keys: List(UsedKey),
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
    { description: 'The outcome for each key, in its place.' },
  ),
});

const Propagation = Type.Object({
  state: Type.Union([Type.Literal('complete'), Type.Literal('pending')], {
    description: 'complete: no verifier answers by the state before the change any more.',
  }),
  by: Type.Optional(
    Type.Union([Type.Literal('acks'), Type.Literal('fence')], {
      description: 'acks: every verifier confirmed it. fence: those that did not can no longer answer.',
    }),
  ),
  sequence: Sequence,
  durable: Type.Boolean({ description: 'true: the change survives a crash or a failover of Redis.' }),
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

export const Permissions = Type.Array(
  Type.Object({ id: Id('the permission: itself'), name: Type.String({ description: 'The same.' }) }),
  {
    description: 'All that the key may do now.',
    examples: [[{ id: 'files.read', name: 'files.read' }]],
  },
);

export const RerolledKey = Type.Object(
  {
    keyId: Id('the new key'),
    key: CreatedKey.properties.key,
    endsAt: Type.Optional(Time('When the old key ends; absent where it is refused already')),
    propagation: Propagation,
  },
  {
    examples: [
      {
        keyId: 'key_0mzc9m1q8r2wfXa1Bc2e',
        key: 'shop_7LkUX9rXq0bYt6yqkq7Z4o3dT1fWa',
        endsAt: 1_790_000_000_000,
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

export const Remaining = Type.Object({
  remaining: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
    description:
      'Credits after the change; null = as many as are asked for. Once it is complete, exact but for what verifiers spend meanwhile.',
  }),
  propagation: Propagation,
});

/** Outcomes for many keys, and the propagation of the last change. */
const manyResults = <Result extends string>(result: Result, example: object) =>
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
        { description: 'The outcome for each key, once.' },
      ),
      propagation: Type.Optional(Propagation),
      cursor: Type.Optional(
        Type.String({ description: "For the owner's next keys; absent when there are none." }),
      ),
    },
    { examples: [example] },
  );
const complete = { state: 'complete', by: 'acks', durable: true, verifiers: 2 };
export const UpdatedKeys = manyResults('updated', {
  results: [
    { result: 'updated', keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', sequence: 7 },
    { result: 'refused', keyId: 'key_none', code: 'NOT_FOUND', message: 'key key_none not found' },
  ],
  propagation: { ...complete, sequence: 7, waitedMs: 4 },
});
export const DeletedKeys = manyResults('deleted', {
  results: [{ result: 'deleted', keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', sequence: 8 }],
  propagation: { ...complete, sequence: 8, waitedMs: 4 },
});
export const DeletedAllKeys = Type.Object({
  deletedKeys: Type.Integer({ minimum: 0, description: 'Keys that this call deleted.' }),
  propagation: Type.Optional(Propagation),
});

const DEFAULTS = {
  defaultPrefix: Type.Optional(Type.String({ description: 'The `prefix` of keys created without one.' })),
  defaultBytes: Type.Optional(Type.Integer({ description: 'The `byteLength` of keys created without one.' })),
};
export const CreatedApi = Type.Object({ apiId: Id('the API'), name: Type.String(), ...DEFAULTS });
export const UpdatedApi = Type.Object({ apiId: Id('the API') });
export const Api = Type.Object({
  id: Id('the API'),
  name: Type.Optional(Type.String()),
  ...DEFAULTS,
  createdAt: Time('When it was created'),
  keys: Type.Optional(Count('Number of its keys; shown with the permission to read them.')),
  foreignKeys: Type.Optional(
    Type.Literal(true, {
      description: 'Some of its keys are of another format, found only by verifiers with FOREIGN_KEYS on.',
    }),
  ),
  protocol: Type.Optional(
    Type.Integer({
      minimum: 2,
      description:
        'What its verifiers must understand, because of what some of its keys have or had; absent: any can follow it.',
    }),
  ),
});
export const ApiPage = Type.Object({ apis: List(Api), cursor: Cursor });

export const CreatedRootKey = Type.Object({
  rootKeyId: Id('the root key'),
  key: Type.String({ description: 'The secret. Shown this once and stored nowhere.' }),
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

export const EventPage = Type.Object({ events: List(Event), cursor: Cursor });

export const VerifierPage = Type.Object({ verifiers: List(Verifier), cursor: Cursor });
