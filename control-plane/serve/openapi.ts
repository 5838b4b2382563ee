import { readFileSync } from 'node:fs';
import swagger, { type FastifyDynamicSwaggerOptions } from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
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
import { isGet, type Operation as ServedOperation } from './operation.ts';
import { LINKS, PAGE_STYLE } from './pages/page.ts';
import type { App } from './server.ts';
import { eventSchemas, webhookSection } from './webhook-document.ts';

/**
 * The page loads scripts and styles only from this server, has no inline code, and talks only to this server.
 */
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

/** The page's style: like the dashboard's, also on phones and in dark mode. */
const STYLE = PAGE_STYLE + readFileSync(new URL('./pages/reference.css', import.meta.url), 'utf8');
/**
 * Additions to the library's page: the viewport for phones, the reader's colour scheme, and the dashboard's
 * header.
 */
const SCRIPT = `
const width = document.createElement('meta');
width.name = 'viewport';
width.content = 'width=device-width, initial-scale=1';
document.head.append(width);
const dark = matchMedia('(prefers-color-scheme: dark)');
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', follow);
follow();
const header = document.createElement('header');
header.className = 'keyfence';
for (const [name, path] of ${JSON.stringify(LINKS)}) {
  const link = document.createElement('a');
  link.href = path;
  link.textContent = name;
  if (path === (location.pathname.startsWith('/docs/v2') ? '/docs/v2' : '/docs')) link.setAttribute('aria-current', 'page');
  header.append(link);
}
document.body.prepend(header);
// Calls are made in the session of the dashboard, unless a root key is entered here.
const send = window.fetch;
const csrfToken = () => send('/dashboard/session').then((answer) => answer.json()).then((session) => session.csrfToken, () => undefined);
window.fetch = async (resource, options) => {
  const request = new Request(resource, options);
  const isOwn = new URL(request.url).origin === location.origin && !request.headers.has('authorization');
  const token = isOwn && /^[/]v[12][/]/.test(new URL(request.url).pathname) ? await csrfToken() : undefined;
  if (token) request.headers.set('x-keyfence-csrf', token);
  return send(request);
};
void csrfToken().then((token) => {
  const link = document.createElement('a');
  link.href = '/dashboard/';
  link.className = 'session';
  link.textContent = token ? 'Signed in' : 'Sign in';
  header.append(link);
});
const named = (field) => field.closest('tr')?.querySelector('.parameter__name')?.textContent ?? 'Body';
const mend = () => {
  // Of its own accord the library nests links into buttons, names no field, and lets nobody scroll by the keyboard.
  for (const link of document.querySelectorAll('.opblock-summary-control a[href]')) link.removeAttribute('href');
  for (const field of document.querySelectorAll(':is(.opblock, .modal-ux) :is(input, select, textarea):not([aria-label], [id])'))
    field.setAttribute('aria-label', named(field));
  for (const servers of document.querySelectorAll('select#servers:not([aria-label])')) servers.setAttribute('aria-label', 'Server');
  for (const sample of document.querySelectorAll('pre.microlight:not([tabindex])')) sample.tabIndex = 0;
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
`;
/** The verifier's operations, for people who look for them in this reference; written by `npm run docs`. */
const BY_VERIFIERS = JSON.parse(
  readFileSync(new URL('./by-verifiers.json', import.meta.url), 'utf8'),
) as Readonly<Record<'/v1/' | '/v2/', object>>;

/** The answer of each operation to its example; written from a real run by `npm run examples`. */
const ANSWERS = JSON.parse(readFileSync(new URL('./examples.json', import.meta.url), 'utf8')) as Readonly<
  Record<string, unknown>
>;

/** The document of one version of the interface. */
interface Generation {
  readonly below: '/v1/' | '/v2/';
  /** Paths of the document for machines, and of the page for people. */
  readonly document: string;
  readonly page: string;
  readonly title: string;
  /** Fastify's decorator that makes the document. */
  readonly decorator: 'swagger' | 'swaggerV2';
  readonly components: object;
}
const V1: Generation = {
  ...{ below: '/v1/', title: 'Keyfence control plane', document: '/openapi.json', page: '/docs' },
  decorator: 'swagger',
  components: { ...errorComponents, schemas: { ...errorComponents.schemas, ...eventSchemas() } },
};
const V2: Generation = {
  ...{ below: '/v2/', title: 'Keyfence control plane, second generation' },
  ...{ document: '/openapi-v2.json', page: '/docs/v2' },
  ...{ decorator: 'swaggerV2', components: errorComponentsV2 },
};

declare module 'fastify' {
  interface FastifyInstance {
    swaggerV2(): object;
  }
}

/**
 * Documents the routes that are added later: at `/openapi.json` and `/openapi-v2.json` for machines, at
 * `/docs` and `/docs/v2` for people.
 */
export async function documentRoutes(app: App, operations: readonly ServedOperation[]): Promise<void> {
  await app.register(swagger, optionsOf(V1, webhookSection(operations)));
  await app.register(swagger, optionsOf(V2));
  for (const { document: path, decorator } of [V1, V2]) {
    let document: string | undefined;
    app.get(path, { schema: { hide: true } }, async (_request, reply) => {
      document ??= JSON.stringify(app[decorator]());
      reply.type('application/json; charset=utf-8');
      return document;
    });
  }
  // Each page in a scope of its own, because the library decorates the scope.
  for (const generation of [V2, V1]) await app.register((scope: App) => showPage(scope, generation));
}

/** Serves the page of a generation. */
async function showPage(app: App, { below, page, decorator }: Generation): Promise<void> {
  await app.register(swaggerUi, {
    routePrefix: page,
    staticCSP: REFERENCE_CSP,
    uiConfig: {
      layout: 'BaseLayout',
      docExpansion: 'list',
      tryItOutEnabled: true,
      // The library's theme whose colours are legible.
      syntaxHighlight: { theme: 'obsidian' },
    },
    theme: {
      title: 'Keyfence reference',
      css: [{ filename: 'keyfence.css', content: STYLE }],
      js: [{ filename: 'keyfence.js', content: SCRIPT }],
    },
    transformSpecification() {
      const document = app[decorator]() as { readonly paths: object };
      return { ...document, paths: { ...document.paths, ...BY_VERIFIERS[below] } };
    },
  });
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
    response: { 200: response },
  };
}

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
    const { 'x-errors': own = [], 'x-example': example = {} } = operation;
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
}
