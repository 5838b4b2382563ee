import {
  ANY_BODY,
  ANY_REQUEST,
  errorComponents,
  errorComponentsV2,
  errorResponses,
  forGenerators,
} from '../../shared/rules/openapi.ts';
import { codesWhere, VERDICT_CODES, VERDICTS } from '../../shared/rules/verdict-codes.ts';
import { VERSION } from '../../shared/version.ts';
import { QUESTION_SCHEMA, QUESTION_SCHEMA_V2, RELEASE_SCHEMA } from '../../verifier/core/question.ts';
import { DATA_SCHEMAS, VERDICT_FIELDS } from '../../verifier/core/verdict-body.ts';
import { DIALECTS } from '../../verifier/doors/http/authz.ts';
import { CHECKS_MAX, RATE_LIMIT_SCHEMA } from '../../verifier/doors/http/rate-limit.ts';

const text = (description: string) => ({ type: 'string', description });

const or = new Intl.ListFormat('en', { type: 'disjunction' });
const MEANINGS = VERDICT_CODES.map((code) => `${code}: ${VERDICTS[code].sentence}`).join(' ');
const verdict = {
  type: 'object',
  properties: {
    valid: { type: 'boolean', description: 'Whether to let the caller in.' },
    code: {
      type: 'string',
      enum: VERDICT_CODES,
      description: `${MEANINGS} FORBIDDEN, where the key is not of the API that \`apiId\` names or not of one that this verifier serves, goes before all others, so that nothing else is told about such a key. FORBIDDEN for the address of the client goes after EXPIRED. Where the code is ${or.format(codesWhere(({ showsKey }) => !showsKey))} nothing else is told but \`requestId\`. More codes may come; judge by \`valid\`.`,
    },
    ...Object.fromEntries(Object.entries(VERDICT_FIELDS).map(([name, { schema }]) => [name, schema])),
    requestId: text('As in X-Request-Id.'),
  },
  required: ['valid', 'code', 'requestId'],
};

const header = (description: string) => ({ description, required: true, schema: { type: 'string' } });
const problem = (description: string) => ({
  description,
  content: {
    'application/problem+json': {
      schema: {
        type: 'object',
        properties: {
          title: { type: 'string' },
          status: { type: 'integer' },
          code: text('Why, for machines.'),
          detail: text('Why, for people.'),
          cost: { type: 'integer', description: 'Of a 429 that no wait helps: what the request needs.' },
          remaining: { type: 'integer', description: 'Then also what is left.' },
          requestId: text('As in X-Request-Id.'),
        },
        required: ['title', 'status', 'code', 'requestId'],
      },
    },
  },
});

const gatewayAnswers = {
  200: {
    description: 'The key is good; the client may pass. No body.',
    headers: {
      'X-Key-Id': header('The id of the key.'),
      'X-Key-Api-Id': header('The API that it is of.'),
      'X-Key-Name': header('Percent-encoded; empty where it has none.'),
      'X-Key-External-Id': header('Percent-encoded; empty where it has none.'),
    },
  },
  401: problem(
    `No key, two keys, or a verdict of ${or.format(codesWhere(({ status }) => status === 401))}. With \`WWW-Authenticate\`.`,
  ),
  400: problem('What stands in the place of permissions is no query of them.'),
  403: problem(
    'The key is of another API, whether or not it is disabled or expired; it may not be used from the address or the web page of the client; or it lacks a permission that is required.',
  ),
  429: problem(
    'The key was used too often or has too few credits, or too many requests came without a key. With `RateLimit`, `X-Key-Code`, and `Retry-After` where a wait may help. For nginx and HAProxy the status is 403.',
  ),
  404: problem('No such path, or what stands in the place of an API cannot be the id of one.'),
  503: problem('Nothing could be decided: refuse the client. With `Retry-After`.'),
};

const REQUIRED =
  'Permissions that the key must have, percent-encoded, as `files.read` or `a%20AND%20(b%20OR%20c)`. With API_IDS, `require/{query}/` may also stand without an API before it.';
const OF_API =
  'The API to which the key must belong, or `*` for any. With API_IDS, `api/{apiId}/` may also be left out, and the key may be of any of those.';
const SCOPES = {
  'api/{apiId}/': 'OfApi',
  'api/{apiId}/require/{query}/': 'OfApiRequiring',
  'api/{apiId}/optional/': 'OfApiOptional',
} as const;

/**
 * The paths of each dialect, with the API that the key must belong to. All methods get the same answer.
 */
const gatewayPaths = Object.fromEntries(
  DIALECTS.flatMap(({ name, takesPath, operationId, gateways }) =>
    (Object.keys(SCOPES) as (keyof typeof SCOPES)[]).map((scope) => {
      const dialect = takesPath ? `${name}/{path}` : name;
      const parameters = ['apiId', 'query', 'path']
        .filter((name) => `${scope}${dialect}`.includes(`{${name}}`))
        .map((name) => ({
          name,
          in: 'path',
          required: true,
          schema: { type: 'string' },
          ...(name === 'apiId' ? { description: OF_API } : {}),
          ...(name === 'query' ? { description: REQUIRED } : {}),
        }));
      const get = {
        tags: ['gateways'],
        operationId: `${operationId}${SCOPES[scope]}`,
        summary: `May a client pass? For ${gateways}`,
        description: `Asked with the headers of the client, whatever the method. The key is where CREDENTIAL_SOURCES says.${scope.includes('optional') ? ' A request without a key gets 200 with empty headers. `optional/` may also stand after `require/{query}/`.' : ''}`,
        security: [],
        ...(parameters.length > 0 ? { parameters } : {}),
        responses: gatewayAnswers,
      };
      return [`/authz/${scope}${dialect}`, { get }];
    }),
  ),
);

/** Errors of the calls that need a root key with VERIFY_ROOT_KEYS=required. */
const ANY_CALL = [...ANY_REQUEST, ...ANY_BODY, 'UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS'] as const;
/** No root key, or one. */
const security = [{}, { rootKey: [] }];

const meta = {
  type: 'object',
  properties: { requestId: text('As in X-Request-Id.') },
  required: ['requestId'],
};

/** A schema, and an example of it. */
interface Shown {
  readonly schema: object;
  readonly example: object;
}

/** A call whose every decided outcome is 200, also a refusal. */
const call = (
  head: Readonly<Record<'operationId' | 'summary' | 'description', string> & { tags: readonly string[] }>,
  request: Shown,
  outcome: Shown & { readonly description: string },
  errors: object,
) => {
  const { description, ...shown } = outcome;
  return {
    post: {
      ...head,
      security,
      requestBody: { required: true, content: { 'application/json': request } },
      responses: { 200: { description, content: { 'application/json': shown } }, ...errors },
    },
  };
};

/** An outcome in the form of version 2. */
const outcomeV2 = (description: string, properties: object, required: readonly string[], data: object) => ({
  description,
  schema: {
    type: 'object',
    properties: { meta, data: { type: 'object', properties, required } },
    required: ['meta', 'data'],
  },
  example: { meta: { requestId: '0mzc9k4q8r2wfXa1' }, data },
});

/** The errors of version 2, under separate names in the same document. */
const ofV2 = <T>(part: Readonly<Record<string, T>>) =>
  Object.fromEntries(Object.entries(part).map(([name, value]) => [`${name}V2`, value]));
const componentsV2 = JSON.parse(
  JSON.stringify(errorComponentsV2).replaceAll('#/components/schemas/Error', '#/components/schemas/ErrorV2'),
) as typeof errorComponentsV2;
const responsesV2 = Object.fromEntries(
  Object.entries(errorResponses(ANY_CALL)).map(([status, { $ref }]) => [status, { $ref: `${$ref}V2` }]),
);

const rateLimitCall = (
  operationId: string,
  summary: string,
  request: Shown,
  outcome: ReturnType<typeof outcomeV2>,
) =>
  call(
    {
      tags: ['ratelimit'],
      operationId,
      summary,
      description:
        'Every decided outcome is 200, also a refusal: read it in the body. All verifiers together let at most the limit pass in a window.',
    },
    request,
    outcome,
    responsesV2,
  );
const limitAnswer = {
  limit: { type: 'integer', description: 'The limit that applied: that of the override, if there is one.' },
  remaining: { type: 'integer' },
  reset: { type: 'integer', description: 'End of the current window, Unix milliseconds.' },
  overrideId: { type: 'string', description: 'The override that applied; absent = none.' },
};
const check = { namespace: 'email.send', identifier: 'ada', limit: 10, duration: 60_000 };
const limitExample = { limit: 10, remaining: 9, reset: 1_795_600_020_000 };
/** The paths of rate limits that belong to no key. */
const rateLimitPaths = {
  '/v2/ratelimit.limit': rateLimitCall(
    'limit',
    'Take from a rate limit that belongs to no key',
    { schema: RATE_LIMIT_SCHEMA, example: check },
    outcomeV2(
      'The outcome.',
      {
        success: { type: 'boolean', description: 'false: the limit is reached; refuse the caller.' },
        ...limitAnswer,
      },
      ['success', 'limit', 'remaining', 'reset'],
      { success: true, ...limitExample },
    ),
  ),
  '/v2/ratelimit.multiLimit': rateLimitCall(
    'multiLimit',
    'Take from several rate limits, each on its own',
    {
      schema: { type: 'array', minItems: 1, maxItems: CHECKS_MAX, items: RATE_LIMIT_SCHEMA },
      example: [check],
    },
    outcomeV2(
      'The outcome.',
      {
        passed: { type: 'boolean', description: 'true: all checks passed.' },
        limits: {
          type: 'array',
          items: {
            type: 'object',
            properties: {
              namespace: { type: 'string' },
              identifier: { type: 'string' },
              passed: { type: 'boolean' },
              ...limitAnswer,
            },
            required: ['namespace', 'identifier', 'passed', 'limit', 'remaining', 'reset'],
          },
        },
      },
      ['passed', 'limits'],
      {
        passed: true,
        limits: [{ namespace: 'email.send', identifier: 'ada', passed: true, ...limitExample }],
      },
    ),
  ),
};

const HOLD_EXAMPLE = 'hold_verifier_0VeTZ3mbQ0wH4pYkR1sN_8fJ2kQx7Tb9mVw3nLr5sYg';

const oauthError = (description: string) => ({
  description,
  content: {
    'application/json': {
      schema: {
        type: 'object',
        properties: { error: text('Why, for machines.'), error_description: text('Why, for people.') },
        required: ['error', 'error_description'],
      },
    },
  },
});
const fact = (description: string) => ({ type: 'integer', format: 'int64', description });
const ofLimit = {
  ...{ name: text('Its name.'), limit: fact('Uses allowed in a window; holds allowed at a time.') },
  from: text('The record that has it: `key`, `identity` or `role`.'),
  sharedBy: text('`key`, or `identity` = all keys of the identity together.'),
};
const getSelfPath = {
  '/v1/keys.getSelf': {
    post: {
      tags: ['keys'],
      operationId: 'getSelf',
      summary: 'See what a key has left, with the key itself',
      description:
        'The key in `Authorization: Bearer` is its own authorisation. Takes nothing and is not counted. A key with `allowedIps` or `allowedOrigins` gets 403.',
      security: [{ key: [] }],
      requestBody: {
        required: false,
        content: {
          'application/json': { schema: { type: 'object', additionalProperties: false }, example: {} },
        },
      },
      responses: {
        200: {
          description: 'The key, its limits and credits.',
          content: {
            'application/json': {
              schema: {
                type: 'object',
                properties: {
                  ...{ keyId: text('The key.'), apiId: text('Its API.'), name: text('Its name.') },
                  ...{ externalId: text('Its customer.'), environment: text('Its environment.') },
                  roles: {
                    type: 'array',
                    items: { type: 'string' },
                    description: 'Its roles, such as a plan.',
                  },
                  permissions: { type: 'array', items: { type: 'string' }, description: 'Its permissions.' },
                  ...{
                    expires: fact('When it expires, Unix milliseconds.'),
                    at: fact('As of when this is told.'),
                  },
                  credits: {
                    type: 'object',
                    properties: { remaining: fact('Credits left.'), sharedBy: ofLimit.sharedBy },
                    description: 'Absent: credits are not counted.',
                  },
                  limits: {
                    type: 'array',
                    items: {
                      type: 'object',
                      properties: {
                        ...{ ...ofLimit, used: fact('Uses in the current window.') },
                        ...{ per: text('The window.'), resetsAt: fact('When it ends, Unix milliseconds.') },
                      },
                    },
                  },
                  concurrency: {
                    type: 'array',
                    items: { type: 'object', properties: { ...ofLimit, inUse: fact('Holds at present.') } },
                  },
                  requestId: text('As in X-Request-Id.'),
                },
                required: ['keyId', 'apiId', 'at', 'limits', 'concurrency', 'requestId'],
              },
              example: {
                ...{ keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', apiId: 'shop', name: 'Ada', at: 1_790_000_000_000 },
                credits: { remaining: 95, sharedBy: 'key' },
                limits: [
                  {
                    ...{ name: 'default', limit: 100, sharedBy: 'key', from: 'key', used: 5, per: '1m' },
                    resetsAt: 1_790_000_060_000,
                  },
                ],
                ...{ concurrency: [], requestId: '0mzc9k4q8r2wfXa1' },
              },
            },
          },
        },
        ...errorResponses([...ANY_REQUEST, 'UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS']),
      },
    },
  },
};
const issueTokenPath = {
  '/v1/keys.issueToken': call(
    {
      tags: ['keys'],
      operationId: 'issueToken',
      summary: 'Issue a token about a key',
      description:
        'A JWT for services behind the API, where the API has `tokens`. It ends before a disable of the key is complete. A verification like any other: counted, and taken from credits and limits. Served where TOKEN_KEY is set, with the public keys at `/.well-known/jwks.json`.',
    },
    {
      schema: {
        type: 'object',
        properties: {
          key: text('The key.'),
          audience: text(
            '`aud` of the token: one of the `tokenAudiences` of the API; default: the first, which is the id of the API where none are set.',
          ),
          permissions: {
            type: 'array',
            items: { type: 'string' },
            maxItems: 100,
            description: 'Permissions of the key that the token has; default: all. 403 if the key lacks one.',
          },
        },
        required: ['key'],
        additionalProperties: false,
      },
      example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' },
    },
    {
      description: 'The token.',
      schema: {
        type: 'object',
        properties: {
          token: text('A JWT, signed with EdDSA.'),
          expiresAt: fact('When it ends, Unix milliseconds.'),
          requestId: text('As in X-Request-Id.'),
        },
        required: ['token', 'expiresAt', 'requestId'],
      },
      example: {
        ...{ token: 'eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJrZXlfMCJ9.c2ln', expiresAt: 1_790_000_008_000 },
        requestId: '0mzc9k4q8r2wfXa1',
      },
    },
    errorResponses([...ANY_CALL, 'UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS', 'NOT_FOUND', 'RATE_LIMITED']),
  ),
};
const introspectionPath = {
  '/oauth2/introspect': {
    post: {
      tags: ['keys'],
      operationId: 'introspect',
      summary: 'Introspect a key as an access token (RFC 7662)',
      description:
        'A verification like any other, which spends credits and limits that always apply. A refused key is not active, whatever the reason, and so is one with `allowedIps` or `allowedOrigins`. Answers must not be cached for longer than a disabled key may pass.',
      security: [{}, { rootKey: [] }, { rootKeyAsPassword: [] }],
      requestBody: {
        required: true,
        content: {
          'application/x-www-form-urlencoded': {
            schema: {
              type: 'object',
              properties: {
                token: text('The secret that the caller presented.'),
                token_type_hint: text('Ignored.'),
              },
              required: ['token'],
            },
            example: { token: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' },
          },
        },
      },
      responses: {
        200: {
          description: 'Whether the key is good.',
          content: {
            'application/json': {
              schema: {
                type: 'object',
                properties: {
                  active: { type: 'boolean', description: 'true: let the caller in.' },
                  scope: text(
                    'Permissions of the key and of its roles, with a space between; absent if it has none.',
                  ),
                  client_id: text('The id of the key.'),
                  sub: text('Its `externalId`; its id if it has none.'),
                  aud: text('Its API.'),
                  exp: {
                    type: 'integer',
                    description: 'When it expires, Unix seconds; absent if it does not.',
                  },
                  token_type: text('Always `Bearer`.'),
                },
                required: ['active'],
              },
              example: {
                ...{ active: true, scope: 'files.read', client_id: 'key_0mzc9k4q8r2wfXa1Bc2d', sub: 'ada' },
                ...{ aud: 'shop', token_type: 'Bearer' },
              },
            },
          },
        },
        400: oauthError('`invalid_request`: no token, or two.'),
        401: oauthError('`invalid_client`: the root key is missing, unknown or disabled.'),
        403: oauthError('`insufficient_scope`: the root key lacks `api.<apiId>.verify_key`.'),
        413: oauthError('`invalid_request`: the body is too long.'),
        415: oauthError('`invalid_request`: the body is no form.'),
        503: oauthError(
          '`temporarily_unavailable`: nothing could be decided: refuse the caller, and ask again.',
        ),
      },
    },
  },
};

/**
 * The document that the verifier serves at `/openapi.json`. It is stored as a file, so that the sidecar need
 * not build it.
 */
export const verifierDocument = forGenerators({
  openapi: '3.1.0',
  info: {
    title: 'Keyfence verifier',
    version: VERSION,
    description:
      'Answers whether a key is good. Runs next to the API that asks; needs a root key only with VERIFY_ROOT_KEYS=required.',
    license: { name: 'MIT', identifier: 'MIT' },
  },
  servers: [{ url: '/' }],
  paths: {
    '/v1/keys.verifyKey': call(
      {
        tags: ['keys'],
        operationId: 'verifyKey',
        summary: 'Verify a key',
        description:
          'Every decided outcome is 200, also a refusal. 503 means that nothing could be decided: refuse the caller, and ask again.',
      },
      { schema: QUESTION_SCHEMA, example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe', apiId: 'shop' } },
      {
        description: 'The verdict.',
        schema: verdict,
        example: {
          valid: true,
          code: 'VALID',
          keyId: 'key_0mzc9k4q8r2wfXa1Bc2d',
          apiId: 'shop',
          enabled: true,
          meta: { plan: 'pro' },
          name: 'Ada',
          permissions: ['files.read'],
          requestId: '0mzc9k4q8r2wfXa1',
        },
      },
      errorResponses(ANY_CALL),
    ),
    '/v2/keys.verifyKey': call(
      {
        tags: ['keys'],
        operationId: 'verifyKeyV2',
        summary: 'Verify a key, for clients of the second generation',
        description:
          'The same question and the same verdict in the form of `@unkey/api` 2. Every decided outcome is 200, also a refusal.',
      },
      {
        schema: QUESTION_SCHEMA_V2,
        example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe', permissions: 'files.read' },
      },
      outcomeV2(
        'The verdict.',
        {
          valid: verdict.properties.valid,
          code: { ...verdict.properties.code, description: MEANINGS },
          ...DATA_SCHEMAS,
        },
        ['valid', 'code'],
        {
          ...{ valid: true, code: 'VALID', keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', name: 'Ada' },
          ...{ meta: { plan: 'pro' }, enabled: true, permissions: ['files.read'] },
        },
      ),
      responsesV2,
    ),
    '/v1/keys.release': call(
      {
        tags: ['keys'],
        operationId: 'release',
        summary: 'End a hold, and charge what its work cost',
        description:
          'At the verifier that gave the hold. Frees its places. The same call again gets the same answer for a minute.',
      },
      { schema: RELEASE_SCHEMA, example: { hold: HOLD_EXAMPLE, cost: 1234 } },
      {
        description: 'The cost.',
        schema: {
          type: 'object',
          properties: {
            charged: { type: 'integer', description: 'Credits; 0 for a key with unlimited credits.' },
            short: {
              type: 'integer',
              description: 'The part of the cost that was not there; absent = none.',
            },
            remaining: {
              type: 'integer',
              description: 'Credits left; absent = unlimited, or unknown since a change.',
            },
            ratelimits: {
              type: 'array',
              description: 'The same of each rate limit that the hold reserved; absent = none.',
              items: {
                type: 'object',
                properties: {
                  name: text('Its name.'),
                  charged: { type: 'integer', description: 'What the work cost, as far as it was there.' },
                  short: { type: 'integer', description: 'The part of the cost that was not there.' },
                  lost: {
                    type: 'integer',
                    description: 'What the work did not need and nobody can use, because its window is over.',
                  },
                  remaining: { type: 'integer', description: 'What is left in the window.' },
                },
                required: ['name', 'charged'],
              },
            },
            requestId: text('As in X-Request-Id.'),
          },
          required: ['charged', 'requestId'],
        },
        example: { charged: 1234, remaining: 8766, requestId: '0mzc9k4q8r2wfXa1' },
      },
      errorResponses([...ANY_CALL, 'HOLD_UNKNOWN']),
    ),
    ...rateLimitPaths,
    ...getSelfPath,
    ...issueTokenPath,
    ...introspectionPath,
    ...gatewayPaths,
  },
  components: {
    securitySchemes: {
      key: { type: 'http', scheme: 'bearer', description: 'The key itself.' },
      rootKey: {
        type: 'http',
        scheme: 'bearer',
        description: 'Only with VERIFY_ROOT_KEYS=required: a root key of the control plane.',
      },
      rootKeyAsPassword: {
        type: 'http',
        scheme: 'basic',
        description: 'The same root key as the password; the user may be any.',
      },
    },
    schemas: { ...errorComponents.schemas, ...ofV2(componentsV2.schemas) },
    responses: { ...errorComponents.responses, ...ofV2(componentsV2.responses) },
  },
});
