import type { FastifyRequest } from 'fastify';
import { envelope } from '../unkey-v2/envelope.ts';
import type { Face } from '../unkey-v2/face.ts';
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
    const { name, bodyBytesMax, onlyV2, v2 } = operation;
    const options = {
      ...(bodyBytesMax === undefined ? {} : { bodyLimit: bodyBytesMax }),
      config: { operation },
    };
    if (!onlyV2)
      app.route({
        ...options,
        method: isQuery(operation) ? 'GET' : 'POST',
        url: `/v1/${name}`,
        schema: schemaOf(operation),
        handler: async (request) =>
          operation.handle(await withAuthorization(operation, request, services), services),
      });
    if (!v2) continue;
    app.route({
      ...options,
      method: 'POST',
      url: `/v2/${v2.name ?? name}`,
      schema: schemaOfFace(operation, v2),
      handler: async (request) => {
        const call = await withAuthorization(operation, request, services);
        const body = call.request;
        call.request = await v2.toRequest(body, services);
        const response = await operation.handle(call, services);
        const answer = await v2.toAnswer(response, { body, call, services });
        return { meta: { requestId: request.id }, ...answer };
      },
    });
  }
}

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
  const { name, id, request, response, summary, description } = operation;
  return {
    ...(isQuery(operation) ? { querystring: request } : { body: request }),
    'x-example': operation.example,
    ...openapiSchema(operation, { name, ...(id === undefined ? {} : { id }), summary, description }),
    response: { 200: response },
  };
}

/** Returns the same for the operation's form in version 2 of the interface. */
function schemaOfFace(operation: Operation, face: Face) {
  const { name = operation.name, summary = operation.summary, description = operation.description } = face;
  return {
    body: face.request,
    'x-example': face.example,
    ...openapiSchema(operation, { name, summary, description }),
    response: { 200: envelope(face) },
  };
}

function openapiSchema(
  { permissions, errors }: Operation,
  { name, id, summary, description }: Pick<Operation, 'name' | 'id' | 'summary' | 'description'>,
) {
  const [group = '', method = ''] = name.split('.');
  return {
    tags: [group],
    operationId: id ?? method,
    summary,
    description: `${description}\n\nNeeds the permission \`${permissions.join(' and ')}\`.`,
    'x-errors': errors,
  };
}
