import { readFileSync } from 'node:fs';
import swagger, { type FastifyDynamicSwaggerOptions } from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { ErrorCode } from '#shared/contract/errors.ts';
import {
  ANY_BODY,
  ANY_REQUEST,
  errorComponents,
  errorComponentsV2,
  errorResponses,
} from '#shared/contract/openapi-errors.ts';
import { VERSION } from '#shared/version.ts';
import type { App } from './server.ts';

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
const STYLE = readFileSync(new URL('./openapi.css', import.meta.url), 'utf8');
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
for (const [name, section] of [['Keyfence', ''], ['Overview', ''], ['APIs', 'apis'], ['Identities', 'identities'], ['Roles', 'roles'], ['Root keys', 'root-keys'], ['Fleet', 'fleet'], ['Audit', 'audit']]) {
  const link = document.createElement('a');
  link.href = '/dashboard/#/' + section;
  link.textContent = name;
  header.append(link);
}
const here = document.createElement('a');
here.href = '/docs';
here.textContent = 'Reference';
here.setAttribute('aria-current', 'page');
header.append(here);
document.body.prepend(header);
const named = (field) => field.closest('tr')?.querySelector('.parameter__name')?.textContent ?? 'Body';
const mend = () => {
  // Of its own accord the library nests links into buttons, names no field, and lets nobody scroll by the keyboard.
  for (const link of document.querySelectorAll('.opblock-summary-control a[href]')) link.removeAttribute('href');
  for (const field of document.querySelectorAll(':is(.opblock, .modal-ux) :is(input, select, textarea):not([aria-label], [id])'))
    field.setAttribute('aria-label', named(field));
  for (const sample of document.querySelectorAll('pre.microlight:not([tabindex])')) sample.tabIndex = 0;
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
`;
/** The verifier's operation, for people who look for it in this reference; written by `npm run docs`. */
const VERIFY_KEY = JSON.parse(readFileSync(new URL('./verify-key.json', import.meta.url), 'utf8')) as object;

/** The document of one version of the interface. */
interface Generation {
  readonly below: `/${string}/`;
  readonly title: string;
  /** Fastify's decorator that makes the document. */
  readonly decorator: 'swagger' | 'swaggerV2';
  readonly components: object;
}
const V1: Generation = {
  ...{ below: '/v1/', title: 'Keyfence control plane', decorator: 'swagger', components: errorComponents },
};
const V2: Generation = {
  ...{ below: '/v2/', title: 'Keyfence control plane, second generation' },
  ...{ decorator: 'swaggerV2', components: errorComponentsV2 },
};

declare module 'fastify' {
  interface FastifyInstance {
    swaggerV2(): object;
  }
}

/**
 * Documents the routes that are added later: at `/openapi.json` and `/openapi-v2.json` for machines, at
 * `/docs` for people.
 */
export async function documentRoutes(app: App): Promise<void> {
  for (const generation of [V1, V2]) await app.register(swagger, optionsOf(generation));
  await app.register(swaggerUi, {
    routePrefix: '/docs',
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
    transformSpecification: (document) => ({ ...document, paths: { ...document['paths'], ...VERIFY_KEY } }),
  });
  for (const [path, decorator] of [
    ['/openapi.json', V1.decorator],
    ['/openapi-v2.json', V2.decorator],
  ] as const) {
    let document: string | undefined;
    app.get(path, { schema: { hide: true } }, async (_request, reply) => {
      document ??= JSON.stringify(app[decorator]());
      reply.type('application/json; charset=utf-8');
      return document;
    });
  }
}

function optionsOf({ below, title, decorator, components }: Generation): FastifyDynamicSwaggerOptions {
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
      'openapiObject' in document ? withErrors(document.openapiObject, components) : {},
  };
}

const ANY_CALL: readonly ErrorCode[] = ['UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS', 'RATE_LIMITED'];

/**
 * Adds the errors of each operation. They are not in the routes' schemas, because errors are serialised
 * separately.
 */
function withErrors(document: object, errors: object): object {
  // Copy the document, because its schemas also validate the routes.
  const { paths, components, ...rest } = JSON.parse(JSON.stringify(document)) as {
    paths: Record<string, Record<string, Operation>>;
    components: object;
  };
  for (const operation of Object.values(paths).flatMap((methods) => Object.values(methods))) {
    const { 'x-errors': own = [] } = operation;
    const body = operation.requestBody === undefined ? [] : ANY_BODY;
    for (const parameter of operation.parameters ?? [])
      if (parameter.schema.default !== undefined) parameter.required = false;
    for (const content of Object.values(operation.requestBody?.content ?? {})) {
      requireNoDefaults(content.schema);
      content.example = operation['x-example'];
    }
    delete operation['x-example'];
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

interface Operation {
  readonly responses: object;
  readonly parameters?: readonly { required?: boolean; readonly schema: Schema }[];
  readonly requestBody?: {
    readonly content: Readonly<Record<string, { readonly schema: Schema; example?: unknown }>>;
  };
  'x-example'?: object;
  'x-errors'?: readonly ErrorCode[];
}
