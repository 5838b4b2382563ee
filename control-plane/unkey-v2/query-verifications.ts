import { Type } from 'typebox';
import { List } from '../core/schemas/field-schemas.ts';
import { parseUsageQuery } from '../core/usage-query/parse.ts';
import { QUERY_LENGTH_MAX } from '../core/usage-query/query.ts';
import { granularityOf, rowsOf } from '../core/usage-query/rows.ts';
import { Fields } from '../http/operations/request-parts.ts';
import { operationV2 } from './operation-v2.ts';
import { seriesOf } from './query-series.ts';

export const queryVerifications = operationV2({
  name: 'analytics.getVerifications',
  summary: 'Ask for counts of verifications in SQL',
  description:
    'Answers a SELECT from counts that are kept by hour for two days and by day for a month; control-plane/analytics.md says which. Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_analytics'],
  authorizesItself: true,
  request: Fields({
    query: Type.String({ minLength: 1, maxLength: QUERY_LENGTH_MAX, description: 'A SELECT.' }),
  }),
  data: List(Type.Object({}, { additionalProperties: Type.Union([Type.String(), Type.Integer()]) }), {
    description: 'One object per row, with the names of the SELECT. Times are Unix milliseconds.',
  }),
  example: {
    query:
      "SELECT outcome, SUM(count) AS total FROM key_verifications_per_day_v1 WHERE key_space_id = 'shop' AND time >= now() - INTERVAL 7 DAY GROUP BY outcome ORDER BY total DESC",
  },
  errors: ['NOT_FOUND'],
  async handle({ request, caller }, services) {
    const nowMs = services.clock.wallMs();
    const query = parseUsageQuery(request.query, nowMs);
    const granularity = granularityOf(query, nowMs);
    return services.costlyReads.run(caller.id, async () => ({
      data: rowsOf(query, granularity, await seriesOf(query, { granularity, nowMs }, caller, services)),
    }));
  },
});
