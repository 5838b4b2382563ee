import { apiNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';

export const deleteApi = operation({
  name: 'apis.deleteApi',
  summary: 'Delete an API with all its keys',
  description:
    'Returns when the deletion is complete, like updateKey. The id can be used again once the keys are removed.',
  permissions: ['api.<apiId>.delete_api'],
  request: Fields({ apiId: ApiId, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'api.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop' },
  neverShed: true,
  async handle(call, { changeWriter }) {
    const { apiId, waitMs } = call.request;
    const write = { apiId, operation: 'api-deleted', keyId: '', fields: {} } as const;
    const propagation = await changeWriter.apply(write, waitMs, ({ sequence }) => {
      call.giveTurnBack();
      call.note({}, { sequence });
    });
    if (!propagation) throw apiNotFound(apiId);
    return { propagation };
  },
});
