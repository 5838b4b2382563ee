import type { FastifyInstance } from 'fastify';

/**
 * Returns true if child instances exist. They copied the hooks of this instance at their creation. Fastify keeps
 * them under a symbol of its own; without it, a guard that is registered too late is not noticed.
 */
export function hasChildren(instance: FastifyInstance): boolean {
  const symbol = Object.getOwnPropertySymbols(instance).find(
    ({ description }) => description === 'fastify.children',
  );
  const children: unknown = symbol && Reflect.get(instance, symbol);
  return Array.isArray(children) && children.length > 0;
}

/**
 * Returns true for the instance of a plugin, which inherits from its parent, false for the application's own.
 * If every instance inherited, an application without routes would fail at its start.
 */
export const isChild = (instance: FastifyInstance) => Object.getPrototypeOf(instance) !== Object.prototype;
