import { Type } from 'typebox';
import { API_ID_PATTERN } from '#shared/api-id.ts';
import { Cursor, FIELDS, Id, List } from '../../core/field-schemas.ts';
import { Ratelimits } from '../../core/limit-schemas.ts';
import { GetPropagation } from './key-requests.ts';
import { gets, posts } from './operation.ts';
import { ExternalId, strict, WaitMs } from './request-parts.ts';
import { Limit } from './requests.ts';
import { Propagated } from './responses.ts';

/** Operations on identities, with their schemas. */

const IdentityId = Type.String({
  pattern: '^identity_[A-Za-z0-9_-]{1,71}$',
  description: "An identity's id, as createIdentity returned it.",
});
const Enabled = (description: string) => Type.Boolean({ description });
const { meta } = FIELDS;
const given = {
  meta: Type.Optional(meta),
  ratelimits: Type.Optional(
    Ratelimits({
      description:
        'Rate limits that all keys of the owner share, in all APIs, each obeyed where a verification names it; where a key has one of that name itself, that one counts. `[]` takes all away.',
    }),
  ),
};

/** A tenant has few APIs; who has many leaves this out. */
const APIS_MAX = 100;
const ApiIds = Type.Array(Type.String({ pattern: `^${API_ID_PATTERN}$` }), {
  ...{ minItems: 1, maxItems: APIS_MAX, uniqueItems: true },
  description:
    'The APIs in which it holds, where several tenants have APIs here; absent = all. A key of another API with this `externalId` has no identity.',
});

const fields = {
  id: Id('the identity'),
  externalId: Type.String({ description: "The owner in the caller's own system." }),
  enabled: Enabled('false: no key of the owner is accepted.'),
  meta: Type.Object({}, { additionalProperties: true, description: 'As it was given.' }),
  ratelimits: Ratelimits({ description: 'Rate limits that all keys of the owner share, in all APIs.' }),
  apiIds: Type.Optional(List(Type.String(), { description: 'The APIs in which it holds; absent = all.' })),
};
export const Identity = Type.Object(fields);
export const IdentityPage = Type.Object({
  identities: List(Identity),
  total: Type.Integer({ minimum: 0, description: 'All identities.' }),
  cursor: Cursor,
});
export const CreatedIdentity = Type.Object({
  identityId: Id('the identity'),
  propagation: Propagated.properties.propagation,
});
export const UpdatedIdentity = Type.Object({
  ...Type.Partial(Type.Object(fields)).properties,
  id: fields.id,
  propagation: Propagated.properties.propagation,
});
const which = { identityId: Type.Optional(IdentityId), externalId: Type.Optional(ExternalId) };
const identityId = 'identity_0mzc9k4q8r2wfXa1Bc2d';

export const createIdentity = posts(
  'identities.createIdentity',
  Type.Object(
    {
      externalId: ExternalId,
      ...given,
      enabled: Type.Boolean({
        default: true,
        description: 'false: no key of the owner is accepted until it is enabled.',
      }),
      apiIds: Type.Optional(ApiIds),
      waitMs: Type.Optional(WaitMs),
    },
    strict,
  ),
  CreatedIdentity,
  {
    summary: 'Create an identity',
    description:
      'An identity is one customer: all keys of all APIs with its `externalId`, those that there are and those that come. One change, however many keys that are: it answers when it is complete, as updateKey does. After 503 send it again; 409 then means that the identity is there, and updateIdentity, with the same fields, that every verifier knows it.',
    permission: 'root.*.create_identity',
    errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
    example: { externalId: 'ada', meta: { plan: 'pro' } },
  },
);

export const getIdentity = gets('identities.getIdentity', Type.Object(which, strict), Identity, {
  summary: 'Look at an identity',
  description: 'By its id, or by the `externalId` of its owner.',
  permission: 'root.*.read_identity',
  errors: ['NOT_FOUND'],
});

export const listIdentities = gets(
  'identities.listIdentities',
  Type.Object(
    {
      limit: Limit('Identities'),
      cursor: Type.Optional(
        Type.String({ minLength: 1, maxLength: 64, description: 'From the page before.' }),
      ),
    },
    strict,
  ),
  IdentityPage,
  {
    summary: 'List all identities',
    description: 'Shows them in order of creation.',
    permission: 'root.*.read_identity',
    errors: [],
  },
);

export const updateIdentity = posts(
  'identities.updateIdentity',
  Type.Object(
    {
      ...which,
      enabled: Type.Optional(
        Enabled(
          'false disables all keys of the owner, in all APIs; true brings back those that are enabled.',
        ),
      ),
      ...given,
      apiIds: Type.Optional(Type.Union([ApiIds, Type.Null()])),
      waitMs: Type.Optional(WaitMs),
    },
    strict,
  ),
  UpdatedIdentity,
  {
    summary: 'Change an identity, or stop a customer',
    description:
      'One change, however many keys the owner has. Answers when it is complete, as updateKey does: with `enabled` false no verifier, anywhere, still accepts any of them. Keys keep their own `enabled`. Who may not read identities is told the id and `propagation` alone.',
    permission: 'root.*.update_identity',
    errors: ['NOT_FOUND'],
    example: { externalId: 'ada', enabled: false },
  },
);

export const deleteIdentity = posts(
  'identities.deleteIdentity',
  Type.Object({ identityId: IdentityId, waitMs: Type.Optional(WaitMs) }, strict),
  Propagated,
  {
    summary: 'Delete an identity',
    description:
      'Its keys stay, with their own `enabled`, and so one that is disabled cannot be deleted: its keys would be accepted again.',
    permission: 'root.*.delete_identity',
    errors: ['NOT_FOUND', 'CONFLICT'],
    example: { identityId },
  },
);

export const getIdentityPropagation = gets(
  'identities.getIdentityPropagation',
  Type.Object({ identityId: IdentityId, sequence: GetPropagation.properties.sequence }, strict),
  Propagated,
  {
    summary: "See how far an identity's change has come",
    description: 'For changes that answered `pending`.',
    permission: 'root.*.read_identity',
    errors: ['NOT_FOUND', 'CONFLICT'],
  },
);
