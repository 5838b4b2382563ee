import { Type } from 'typebox';
import { REFUSALS_KEPT } from '#shared/redis/refusal-records.ts';
import { Time } from '../../serve/schemas/field-schemas.ts';

export const RefusalData = Type.Object({
  time: Time('When it was, by the clock of the verifier'),
  code: Type.String({ description: 'The code of the verdict.' }),
  reason: Type.Optional(
    Type.Literal('address', {
      description: "The key may not be used from the client's address (`allowedIps`).",
    }),
  ),
  requestId: Type.Optional(
    Type.String({ description: 'As the answer had it; absent = the verifier is part of an application.' }),
  ),
  verifierId: Type.String({ description: 'The verifier, as in fleet.listVerifiers.' }),
  clientIp: Type.Optional(Type.String({ description: 'Address of the client, if the verifier knew it.' })),
  route: Type.Optional(
    Type.String({
      description: "Method and path of the client's request, without the query, if the gateway told them.",
    }),
  ),
});

/** The sentence of descriptions about the refusals that are kept. */
export const KEPT = `Verifiers report up to their USAGE_PERIOD_MS late. Kept are the latest ${REFUSALS_KEPT.ofKey} of a key for seven days, of the ${REFUSALS_KEPT.keysOfApi.toLocaleString('en')} keys of an API that were refused last.`;
