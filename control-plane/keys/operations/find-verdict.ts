import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { KEPT, RefusalData } from './refusal.ts';

/** Maximum number of APIs that one call examines. */
const APIS_MAX = 1000;

export const findVerdict = operation({
  name: 'verdicts.find',
  id: 'findVerdict',
  summary: 'Find the refusal of a request',
  description: `Finds it by the id that the answer had (\`requestId\`, \`X-Request-Id\`), in the APIs whose keys the root key may read; of more than 1,000 APIs, in the first. Only refusals of known keys are kept. ${KEPT}`,
  permissions: ['api.<apiId>.read_key'],
  authorizesItself: true,
  reads: true,
  request: Fields({
    requestId: Type.String({ pattern: '^[!-~]{1,128}$', description: 'The id of the request.' }),
  }),
  response: Type.Object({ apiId: Id('the API'), keyId: Id('the key'), refusal: RefusalData }),
  errors: ['NOT_FOUND'],
  example: { requestId: '0mzc9k4q8r2wfXa1' },
  async handle({ request: { requestId }, caller: { permissions } }, { apis, refusals }) {
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
