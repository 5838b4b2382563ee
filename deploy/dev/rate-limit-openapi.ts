import { CHECKS_MAX, RATE_LIMIT_SCHEMA } from '../../verifier/http/rate-limit.ts';

const limitAnswer = {
  limit: { type: 'integer', description: 'The limit that applied: that of the override, if there is one.' },
  remaining: { type: 'integer' },
  reset: { type: 'integer', description: 'End of the current window, Unix milliseconds.' },
  overrideId: { type: 'string', description: 'The override that applied; absent = none.' },
};
/** Parts that all paths of version 2 share. */
interface Common {
  readonly meta: object;
  readonly responses: object;
  readonly security: object;
}

const check = { namespace: 'email.send', identifier: 'ada', limit: 10, duration: 60_000 };
const limitExample = { limit: 10, remaining: 9, reset: 1_795_600_020_000 };
/** A path of the rate limits, with the schema and an example of its request and of its data. */
const rateLimitPath = (
  { meta, responses, security }: Common,
  { operationId, summary }: { operationId: string; summary: string },
  request: { schema: object; example: unknown },
  data: { schema: object; example: unknown },
) => ({
  post: {
    ...{ tags: ['ratelimit'], operationId, summary },
    description:
      'Every decided outcome is 200, also a refusal: read it in the body. All verifiers together let at most the limit pass in a window.',
    security,
    requestBody: { required: true, content: { 'application/json': request } },
    responses: {
      200: {
        description: 'The outcome.',
        content: {
          'application/json': {
            schema: { type: 'object', properties: { meta, data: data.schema }, required: ['meta', 'data'] },
            example: { meta: { requestId: '0mzc9k4q8r2wfXa1' }, data: data.example },
          },
        },
      },
      ...responses,
    },
  },
});

/** The paths of rate limits that belong to no key. */
export function rateLimitPaths(meta: object, responses: object, security: object) {
  const common = { meta, responses, security };
  return {
    '/v2/ratelimit.limit': rateLimitPath(
      common,
      { operationId: 'limit', summary: 'Take from a rate limit that belongs to no key' },
      { schema: RATE_LIMIT_SCHEMA, example: check },
      {
        schema: {
          type: 'object',
          properties: {
            success: { type: 'boolean', description: 'false: the limit is reached; refuse the caller.' },
            ...limitAnswer,
          },
          required: ['success', 'limit', 'remaining', 'reset'],
        },
        example: { success: true, ...limitExample },
      },
    ),
    '/v2/ratelimit.multiLimit': rateLimitPath(
      common,
      { operationId: 'multiLimit', summary: 'Take from several rate limits, each on its own' },
      {
        schema: { type: 'array', minItems: 1, maxItems: CHECKS_MAX, items: RATE_LIMIT_SCHEMA },
        example: [check],
      },
      {
        schema: {
          type: 'object',
          properties: {
            passed: { type: 'boolean', description: 'true: all checks passed.' },
            limits: {
              type: 'array',
              items: {
                type: 'object',
                properties: {
                  ...{ namespace: { type: 'string' }, identifier: { type: 'string' } },
                  ...{ passed: { type: 'boolean' }, ...limitAnswer },
                },
                required: ['namespace', 'identifier', 'passed', 'limit', 'remaining', 'reset'],
              },
            },
          },
          required: ['passed', 'limits'],
        },
        example: {
          passed: true,
          limits: [{ namespace: 'email.send', identifier: 'ada', passed: true, ...limitExample }],
        },
      },
    ),
  };
}
