import { List } from '../core/schemas/field-schemas.ts';
import { Fields } from '../http/operations/request-parts.ts';
import { PageCursor, PageLimit, pageOf } from './envelope.ts';
import { operationV2 } from './operation-v2.ts';
import { Namespace, OverrideData, overrideData } from './override.ts';

export const listOverrides = operationV2({
  name: 'ratelimit.listOverrides',
  summary: 'List the overrides of a namespace',
  description: 'Shows them in order of creation; a namespace without overrides has an empty list.',
  permissions: ['root.*.read_override'],
  request: Fields({ namespace: Namespace, limit: PageLimit, cursor: PageCursor }),
  data: List(OverrideData),
  paged: true,
  example: { namespace: 'email.send', limit: 100 },
  errors: [],
  async handle({ request: { namespace, ...page } }, { overrides }) {
    const listing = ['ratelimit.listOverrides', namespace] as const;
    const { items, pagination } = pageOf(await overrides.list(namespace), page, listing);
    return { data: items.map(overrideData), pagination };
  },
});
