import { neverShed } from './guards/load-shedding.ts';
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
    /** The operation that the route is for. */
    operation?: Operation;
  }
}

/** Adds a route for each operation, whose answers need all hooks: it comes after them. */
export function register(app: App, operations: readonly Operation[], services: Services): void {
  for (const operation of operations) {
    app.route({
      method: isQuery(operation) ? 'GET' : 'POST',
      url: `/v1/${operation.name}`,
      schema: schemaOf(operation),
      ...(operation.bodyBytesMax === undefined ? {} : { bodyLimit: operation.bodyBytesMax }),
      config: { operation, ...(operation.neverShed ? neverShed : {}) },
      handler: async ({ call }) => {
        if (!call) throw new Error('a route was not behind the hooks');
        if (!operation.authorizesItself) await authorize(operation, call, services.keys);
        return operation.handle(call, services);
      },
    });
  }
}

/** The operation as Fastify validates and serialises it, and as the reference documents it. */
function schemaOf(operation: Operation) {
  const { name, request, response, permissions, summary, description, errors } = operation;
  const [group = '', method = ''] = name.split('.');
  return {
    ...(isQuery(operation) ? { querystring: request } : { body: request, 'x-example': operation.example }),
    tags: [group],
    operationId: operation.id ?? method,
    summary,
    description: `${description}\n\nNeeds the permission \`${permissions.join(' and ')}\`.`,
    'x-errors': errors,
    response: { 200: response },
  };
}
