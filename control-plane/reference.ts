import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { ErrorCode } from '#shared/errors.ts';
import { ANY_BODY, ANY_REQUEST, errorComponents, errorResponses } from '#shared/openapi.ts';
import { VERSION } from '#shared/verifier-status.ts';
import type { App } from './server.ts';

/** Scripts and styles are files of ours; nothing inline, nothing from elsewhere, and it talks to nobody else. */
const REFERENCE_CSP = {
  'default-src': "'none'",
  'script-src': "'self'",
  'style-src': "'self'",
  'img-src': "'self' data:",
  'connect-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'none'",
  'frame-ancestors': "'none'",
};

/** Documents the routes that are added after it: at `/openapi.json` for machines, at `/docs` for people. */
export async function documentRoutes(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Keyfence control plane',
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
    transformObject: (document) => ('openapiObject' in document ? withErrors(document.openapiObject) : {}),
  });
  await app.register(swaggerUi, {
    routePrefix: '/docs',
    staticCSP: REFERENCE_CSP,
    uiConfig: { layout: 'BaseLayout', docExpansion: 'list', tryItOutEnabled: true },
    theme: { title: 'Keyfence reference' },
  });
  let document: string | undefined;
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) => {
    document ??= JSON.stringify(app.swagger());
    reply.type('application/json; charset=utf-8');
    return document;
  });
}

const ANY_CALL: readonly ErrorCode[] = ['UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS', 'RATE_LIMITED'];

/** Adds what each operation can end in. Not as schemas of routes: errors are serialised by themselves. */
function withErrors(document: object): object {
  const { paths, components, ...rest } = document as {
    paths: Record<string, Record<string, Operation>>;
    components: object;
  };
  for (const operation of Object.values(paths).flatMap((methods) => Object.values(methods))) {
    const { 'x-errors': own = [] } = operation;
    const body = operation.requestBody === undefined ? [] : ANY_BODY;
    Object.assign(operation.responses, errorResponses([...ANY_REQUEST, ...ANY_CALL, ...body, ...own]));
    delete operation['x-errors'];
  }
  return { ...rest, components: { ...components, ...errorComponents }, paths };
}

interface Operation {
  readonly responses: object;
  readonly requestBody?: object;
  'x-errors'?: readonly ErrorCode[];
}
