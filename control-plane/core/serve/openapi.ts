import { readFileSync } from 'node:fs';
import swagger, { type FastifyDynamicSwaggerOptions } from '@fastify/swagger';
import type { ErrorCode } from '#shared/rules/errors.ts';
import {
  ANY_BODY,
  ANY_REQUEST,
  errorComponents,
  errorComponentsV2,
  errorResponses,
  forGenerators,
} from '#shared/rules/openapi.ts';
import { VERSION } from '#shared/version.ts';
import { CALLS_ONCE_MAX } from './once.ts';
import { isGet, type Operation as ServedOperation } from './operation.ts';
import { serveReference } from './pages/reference.ts';
import type { App } from './server.ts';

/** The answer of each operation to its example; written from a real run by `npm run examples`. */
const ANSWERS = JSON.parse(readFileSync(new URL('./examples.json', import.meta.url), 'utf8')) as Readonly<
  Record<string, unknown>
>;

/** The document of one version of the interface. */
interface Generation {
  readonly below: '/v1/' | '/v2/';
  /** Path of the document. */
  readonly document: string;
  readonly title: string;
  /** Fastify's decorator that makes the document. */
  readonly decorator: 'swagger' | 'swaggerV2';
  readonly components: object;
}
const V1 = {
  ...{ below: '/v1/', title: 'Keyfence control plane', document: '/openapi.json' },
  decorator: 'swagger',
  components: errorComponents,
} satisfies Generation;
const V2: Generation = {
  ...{ below: '/v2/', title: 'Keyfence control plane, second generation' },
  ...{ document: '/openapi-v2.json', decorator: 'swaggerV2', components: errorComponentsV2 },
};

declare module 'fastify' {
  interface FastifyInstance {
    swaggerV2(): object;
  }
}

/**
 * Documents the routes that are added later: at `/openapi.json` and `/openapi-v2.json` for machines, at
 * `/docs` for people.
 * @param webhooks the schemas and the section about events that are sent
 */
export async function documentRoutes(
  app: App,
  webhooks: { readonly schemas: object; readonly section: Record<string, object> },
): Promise<void> {
  const schemas = { ...V1.components.schemas, ...webhooks.schemas };
  await app.register(
    swagger,
    optionsOf({ ...V1, components: { ...V1.components, schemas } }, webhooks.section),
  );
  await app.register(swagger, optionsOf(V2));
  for (const { document: path, decorator } of [V1, V2]) {
    let document: string | undefined;
    app.get(path, { schema: { hide: true } }, async (_request, reply) => {
      document ??= JSON.stringify(app[decorator]());
      reply.type('application/json; charset=utf-8');
      return document;
    });
  }
  serveReference(app);
}

/** @param webhooks the section about events that are sent */
function optionsOf(
  { below, title, decorator, components }: Generation,
  webhooks?: Record<string, object>,
): FastifyDynamicSwaggerOptions {
  return {
    decorator,
    transform: ({ schema, url }) => ({
      schema: url.startsWith(below) ? schema : { ...schema, hide: true },
      url,
    }),
    openapi: {
      openapi: '3.1.0',
      info: {
        title,
        version: VERSION,
        description: 'Manages API keys. Verifiers verify them, and have a document of their own.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      servers: [{ url: '/' }],
      security: [{ rootKey: [] }],
      components: {
        securitySchemes: {
          rootKey: {
            type: 'http',
            scheme: 'bearer',
            description: 'A root key. Never one of the keys of an API.',
          },
        },
      },
    },
    transformObject: (document) =>
      'openapiObject' in document
        ? forGenerators({
            ...withErrors(document.openapiObject, components),
            ...(webhooks ? { webhooks } : {}),
          })
        : {},
  };
}

/**
 * Returns the schema by which Fastify validates and serialises the operation and the reference documents it.
 */
export function routeSchema(operation: ServedOperation) {
  const { name, request, response, summary, description, permissions, errors, example } = operation;
  const [group = '', method = ''] = name.split('.');
  return {
    ...(isGet(operation) ? { querystring: request } : { body: request }),
    tags: [group],
    operationId: operation.id ?? method,
    summary,
    description: `${description}\n\nNeeds the permission \`${permissions.join(' and ')}\`.`,
    'x-example': example,
    'x-errors': errors,
    ...(operation.adds ? { 'x-adds': true } : {}),
    response: { 200: response },
  };
}

const IDEMPOTENCY_PARAMETER = {
  ...{ name: 'Idempotency-Key', in: 'header', required: false },
  schema: { type: 'string', minLength: 1, maxLength: 257 },
  description: `Your own name for this call. Repeated with it within a day, the call takes effect once and gets the first answer; with another body, 409. At most ${CALLS_ONCE_MAX.toLocaleString('en')} a day and caller.`,
};

const ANY_CALL: readonly ErrorCode[] = ['UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS', 'RATE_LIMITED'];

/**
 * Adds the examples and the errors of each operation. The errors are not in the routes' schemas, because errors are serialised
 * separately.
 */
function withErrors(document: object, errors: object): object {
  // Copy the document, because its schemas also validate the routes.
  const { paths, components, ...rest } = JSON.parse(JSON.stringify(document)) as {
    paths: Record<string, Record<string, Operation>>;
    components: object;
  };
  for (const [path, operation] of Object.entries(paths).flatMap(([path, methods]) =>
    Object.values(methods).map((operation): [string, Operation] => [path, operation]),
  )) {
    const { 'x-errors': own = [], 'x-example': example = {}, 'x-adds': adds } = operation;
    if (adds) Object.assign(operation, { parameters: [IDEMPOTENCY_PARAMETER] });
    delete operation['x-adds'];
    const body = operation.requestBody === undefined ? [] : ANY_BODY;
    for (const parameter of operation.parameters ?? []) {
      if (parameter.schema.default !== undefined) parameter.required = false;
      if (parameter.name in example) parameter.example = example[parameter.name];
    }
    for (const content of Object.values(operation.requestBody?.content ?? {})) {
      requireNoDefaults(content.schema);
      content.example = example;
    }
    delete operation['x-example'];
    for (const response of Object.values(operation.responses)) {
      response.description = 'Done.';
      for (const content of Object.values(response.content ?? {})) content.example = ANSWERS[path];
    }
    Object.assign(operation.responses, errorResponses([...ANY_REQUEST, ...ANY_CALL, ...body, ...own]));
    delete operation['x-errors'];
  }
  return { ...rest, components: { ...components, ...errors }, paths };
}

/**
 * Makes fields with a default optional in the document: validation fills them in, so the code always sees
 * them.
 */
function requireNoDefaults(schema: Schema): void {
  const { required, properties = {}, items } = schema;
  if (required) schema.required = required.filter((name) => properties[name]?.default === undefined);
  for (const part of [...Object.values(properties), ...(items ? [items] : [])]) requireNoDefaults(part);
}

interface Schema {
  required?: string[];
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

type Content = Readonly<Record<string, { readonly schema: Schema; example?: unknown }>>;

interface Operation {
  readonly responses: Record<string, { description: string; readonly content?: Content }>;
  readonly parameters?: readonly {
    readonly name: string;
    required?: boolean;
    example?: unknown;
    readonly schema: Schema;
  }[];
  readonly requestBody?: { readonly content: Content };
  'x-example'?: Readonly<Record<string, unknown>>;
  'x-errors'?: readonly ErrorCode[];
  'x-adds'?: true;
}
