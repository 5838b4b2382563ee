import type { FastifyRequest } from 'fastify';
import { authorize } from './operations/authorization.ts';
import type { Call } from './operations/call.ts';
import { isQuery, type Operation } from './operations/operation.ts';
import type { Services } from './operations/services.ts';
import type { App } from './server.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The call of an operation; undefined on every other path. */
    call: Call | undefined;
  }
  interface FastifyContextConfig {
    /** The operation that the route serves. */
    operation?: Operation;
  }
}

/**
 * Adds the routes of each operation. Call it after all hooks are registered, because the routes need them.
 */
export function register(app: App, operations: readonly Operation[], services: Services): void {
  for (const operation of operations) {
    const { name, bodyBytesMax, path = `/v1/${name}` } = operation;
    app.route({
      ...(bodyBytesMax === undefined ? {} : { bodyLimit: bodyBytesMax }),
      config: { operation },
      method: isGet(operation) ? 'GET' : 'POST',
      url: path,
      schema: schemaOf(operation),
      handler: async (request) =>
        operation.handle(await withAuthorization(operation, request, services), services),
    });
  }
}

/** Tells whether a call of the operation is a GET with a query. */
const isGet = (operation: Operation) => isQuery(operation) && operation.path === undefined;

/**
 * Returns the call of a request after checking its permissions, unless the operation does so itself. Rejects
 * with ApiError.
 */
async function withAuthorization(
  operation: Operation,
  { call }: FastifyRequest,
  { keys }: Services,
): Promise<Call> {
  if (!call) throw new Error('a route was not behind the hooks');
  if (!operation.authorizesItself) await authorize(operation, call, keys);
  return call;
}

/**
 * Returns the schema by which Fastify validates and serialises the operation and the reference documents it.
 */
function schemaOf(operation: Operation) {
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
