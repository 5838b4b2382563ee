// The entry `keyfence/fastify` of the package.
import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { newRequestId } from '#shared/rules/request-id.ts';
import { hasChildren, isChild } from '../../doors/node-internals/fastify-instances.ts';
import { wrongOptions } from '../options.ts';
import { allowanceHeaders, createGuard, type Passage, routeGuards } from './guard.ts';
import type { GuardOptions, PassedKey, RouteGuardOptions } from './guard-options.ts';
import { Refusal } from './refusal.ts';
import { removeIdentity } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type {
  GuardOptions,
  OwnRefusal,
  PassedKey,
  RefusalNotice,
  RouteGuardOptions,
} from './guard-options.ts';
export { type EndableConnection, endWithKey, type PassedRequest, watchKey } from './long-requests.ts';
export { RefusedError } from './refusal.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /**
     * The key that let the request pass. Only behind a guard that is not `optional`: elsewhere use
     * `optionalKey`.
     */
    apiKey: PassedKey;
  }
  interface FastifyContextConfig {
    /** false = open to everybody. An object contains the rules that differ for this route. */
    apiKey?: false | RouteGuardOptions<FastifyRequest>;
  }
}

/**
 * Guards every route of the instance that registers it, and of all plugins registered after it, including
 * 404: no handler runs without a valid key. The start fails if plugins were registered before it, because it
 * could not guard their routes. The start also fails if it is registered in a plugin that has no routes,
 * because it would guard none.
 */
export function keyfence(
  instance: FastifyInstance,
  options: GuardOptions<FastifyRequest>,
  done: (error?: Error) => void,
): void {
  try {
    register(instance, options);
  } catch (error) {
    // Fastify would not catch the error.
    done(error as Error);
    return;
  }
  done();
}

function register(instance: FastifyInstance, options: GuardOptions<FastifyRequest>): void {
  const guard = createGuard(options, ({ ip }) => ip);
  const guardOf = routeGuards(guard, 'config.apiKey');
  if (hasChildren(instance)) {
    throw wrongOptions([
      'register: keyfence must be registered before the plugins whose routes it should guard',
    ]);
  }
  // Fastify builds routeOptions anew at each request, so they are read only if a route may have rules of its
  // own.
  let someHaveRules = instance.printRoutes() !== NO_ROUTES;
  if (!instance.hasDecorator(GUARD_MARK)) {
    instance.decorate(GUARD_MARK, true);
    instance.decorateRequest('apiKey', undefined as never);
  }
  instance.addHook('onRoute', ({ config }) => {
    // Reads the rules now, so that a wrong rule stops the application at its start.
    if (guardOf(config?.apiKey) !== guard) someHaveRules = true;
  });
  const onRequest: onRequestHookHandler = (request, reply, next) => {
    const { raw, id } = request;
    removeIdentity(raw);
    const own = someHaveRules ? guardOf(request.routeOptions.config.apiKey) : guard;
    if (own === undefined) {
      next();
      return;
    }
    let passage: Passage | Promise<Passage>;
    try {
      const { rawHeaders, url: target = '' } = raw;
      passage = own.check({ rawHeaders, target, request, carrier: raw, ending: reply.raw, id });
    } catch (error) {
      // Fastify would not catch the error.
      next(error as Error);
      return;
    }
    if (passage instanceof Promise)
      void passage.then((latePassage) => applyPassage(request, reply, latePassage, next), next);
    else applyPassage(request, reply, passage, next);
  };
  const name = `keyfence-${newRequestId()}`;
  instance.addHook('onRequest', Object.defineProperty(onRequest, 'name', { value: name }));
  instance.addHook('onReady', (done) => {
    const isAlone = isChild(instance) && !instance.printRoutes({ includeHooks: true }).includes(name);
    done(isAlone ? wrongOptions([NOTHING_GUARDED]) : undefined);
  });
  instance.addHook('onClose', () => guard.close());
}

const NOTHING_GUARDED =
  'register: keyfence guards no route, because the plugin that registers it has none; to guard the routes of its parent, wrap the plugin in fastify-plugin';

/** Marks instances whose requests have `apiKey`; child instances inherit the mark. */
const GUARD_MARK = Symbol('keyfence.guarded');

/** The text of printRoutes if there are no routes. With any other text, each route's rules are read. */
const NO_ROUTES = '(empty tree)';

/** Makes hooks and decorations apply to the registering instance itself instead of a child. */
Object.assign(keyfence, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'keyfence',
});

function applyPassage(
  request: FastifyRequest,
  reply: FastifyReply,
  passage: Passage,
  next: () => void,
): void {
  if (!(passage instanceof Refusal)) {
    if (passage !== undefined) {
      request.apiKey = passage;
      const lines = allowanceHeaders(passage);
      if (lines !== undefined) for (const [name, value] of lines) reply.header(name, value);
    }
    next();
    return;
  }
  // The application may have answered during the look-up.
  if (reply.sent) return;
  const { status, headers, body } = passage;
  for (const [name, value] of headers) reply.header(name, value);
  reply.code(status).send(body);
}

/** Returns the key that let the request pass; undefined = the route is open, or its guard is optional. */
export const optionalKey = (request: FastifyRequest): PassedKey | undefined => request.apiKey;
