import { Type } from 'typebox';
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

const fields = {
  id: Id('the identity'),
  externalId: Type.String({ description: "The owner in the caller's own system." }),
  enabled: Enabled('false: no key of the owner is accepted.'),
  meta: Type.Object({}, { additionalProperties: true, description: 'As it was given.' }),
  ratelimits: Ratelimits({ description: 'Rate limits that all keys of the owner share, in all APIs.' }),
};
export const Identity = Type.Object(fields);
export const IdentityPage = Type.Object({
  identities: List(Identity),
  total: Type.Integer({ minimum: 0, description: 'All identities.' }),
  cursor: Cursor,
});
export const CreatedIdentity = Type.Object({
  identityId: Id('the identity'),
  propagation: Type.Optional(Propagated.properties.propagation),
});
export const UpdatedIdentity = Type.Object({ ...fields, propagation: Propagated.properties.propagation });
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
    },
    strict,
  ),
  CreatedIdentity,
  {
    summary: 'Create an identity',
    description:
      'An identity is one customer: all keys of all APIs with its `externalId`, those that there are and those that come. Answers when every verifier knows that they are its own; `propagation` is of the last key that was there already. After 503 send it again; 409 then means that the identity is there, and all keys are its own.',
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
      waitMs: Type.Optional(WaitMs),
    },
    strict,
  ),
  UpdatedIdentity,
  {
    summary: 'Change an identity, or stop a customer',
    description:
      'One change, however many keys the owner has. Answers when it is complete, as updateKey does: with `enabled` false no verifier, anywhere, still accepts any of them. Keys keep their own `enabled`.',
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
