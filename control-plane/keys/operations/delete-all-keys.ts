import { Type } from 'typebox';
import { unavailable } from '#shared/contract/errors.ts';
import { apiNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Fields, WaitMs } from '../../serve/request-parts.ts';
import { Count, Propagation } from '../../serve/response-parts.ts';
import type { Propagation as Progress } from '../../writer/writer.ts';
import { deleteMany } from './change-many.ts';
import { MANY_KEYS_MAX } from './choice.ts';

export const deleteAllKeys = operation({
  name: 'apis.deleteKeys',
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
  async handle(call, services) {
    const { apiId, waitMs } = call.request;
    const { view, clock, holdMs } = services;
    const startedAtMs = clock.monotonicMs();
    let deletedKeys = 0;
    const pages: Progress[] = [];
    for (let from: number | undefined; ; ) {
      const page = await view.ids(apiId, undefined, MANY_KEYS_MAX, from);
      if (!page) throw apiNotFound(apiId);
      const { outcomes, propagation } = await deleteMany(
        call,
        services,
        { apiId, keyIds: page.keyIds },
        waitMs,
      );
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
