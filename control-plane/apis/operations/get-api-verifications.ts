import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { apiNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, Fields, period, timeOf } from '../../serve/request-parts.ts';
import { usageCounts } from '../../serve/response-parts.ts';
import { List, Time } from '../../serve/schemas/field-schemas.ts';

export const getApiVerifications = operation({
  name: 'apis.getVerifications',
  id: 'getApiVerifications',
  summary: 'See how often keys of an API were verified',
  description:
    'By hour or day like keys.getVerifications, for all keys of the API together, including deleted ones; or by day and by the tags of verifyKey. Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_key', 'api.<apiId>.read_api'],
  request: Fields({
    apiId: ApiId,
    ...period,
    tag: Type.Optional(
      Type.String({ minLength: 1, maxLength: 128, description: 'Only verdicts with this tag, by day.' }),
    ),
    groupBy: Type.Optional(Type.Literal('tag', { description: 'One sum per tag over the whole period.' })),
    limit: Type.String({
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      default: '1000',
      description: 'Maximum number of tags listed separately, 1..1000; the others are summed up as `other`.',
    }),
  }),
  response: Type.Object({
    verifications: List(
      Type.Object({
        time: Type.Optional(Time('When the hour or day began; absent if grouped by tag')),
        tag: Type.Optional(Type.String({ description: 'Present if grouped by tag.' })),
        other: Type.Optional(
          Type.Literal(true, {
            description:
              'The sum of all tags not listed separately: those after the first 1,000 of a day, and those beyond `limit`.',
          }),
        ),
        ...usageCounts,
      }),
      {
        description: 'In order of time; if grouped by tag, the most used first and `other` last.',
      },
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop' },
  async handle({ request, caller }, { apis, usage, clock, costlyReads }) {
    const { apiId, granularity, start, end, tag, groupBy, limit } = request;
    const byTag = groupBy === 'tag';
    if ((byTag || tag !== undefined) && granularity === 'hour')
      throw new ApiError('BAD_REQUEST', 'granularity: must be day; tags are counted by day');
    if (byTag && tag !== undefined)
      throw new ApiError('BAD_REQUEST', 'tag: must be absent if groupBy is given');
    if (!(await apis.get(apiId))) throw apiNotFound(apiId);
    const span = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    if (byTag) {
      const verifications = () => usage.byTag(apiId, Number(limit), span);
      return { verifications: await costlyReads.run(caller.id, verifications) };
    }
    if (tag !== undefined) return { verifications: await usage.seriesOfTag(apiId, tag, span) };
    return { verifications: await usage.series(apiId, undefined, span) };
  },
});
