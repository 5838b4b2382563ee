// The entry `keyfence/fastify` of the package.
import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { newRequestId } from '#shared/contract/request-id.ts';
import type { ValidKey } from '../library/key-verifier.ts';
import { wrongOptions } from '../library/options.ts';
import { createGuard, type Guard, type Passage, Refusal } from './guard.ts';
import type { GuardOptions, RouteGuardOptions } from './guard-options.ts';
import { removeIdentity } from './header-lines.ts';

export type { KeyVerifier, ValidKey } from '../library/key-verifier.ts';
export type { GuardOptions, RouteGuardOptions } from './guard-options.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The key that let the request pass; undefined where `config.apiKey` is false. */
    apiKey: ValidKey | undefined;
  }
  interface FastifyContextConfig {
    /** false: open to everybody. Else rules of this route alone, for what differs. */
    apiKey?: false | RouteGuardOptions<FastifyRequest>;
  }
}

/**
 * Guards every route of the instance that it is registered at, and of those registered there afterwards, 404 included:
 * without a good key no handler runs. The start fails where plugins were registered before it, since it could not guard theirs,
 * and where it is in a plugin of its own that has no routes, since it would guard none.
 */
export function keyfence(
  instance: FastifyInstance,
  options: GuardOptions<FastifyRequest>,
  done: (error?: Error) => void,
): void {
  try {
    register(instance, options);
  } catch (error) {
    // Fastify would not catch it.
    done(error as Error);
    return;
  }
  done();
}

function register(instance: FastifyInstance, options: GuardOptions<FastifyRequest>): void {
  const guard = createGuard(options);
  const guards = new WeakMap<object, Guard<FastifyRequest>>();
  const guardOf = (rules: unknown): Guard<FastifyRequest> | undefined => {
    if (rules === undefined) return guard;
    if (rules === false) return undefined;
    if (typeof rules !== 'object' || rules === null)
      throw wrongOptions(['config.apiKey: must be false or an object']);
    const routeGuard = guards.get(rules) ?? guard.with(rules);
    guards.set(rules, routeGuard);
    return routeGuard;
  };
  if (hasChildren(instance)) {
    throw wrongOptions(['register: keyfence comes before the plugins whose routes it is to guard']);
  }
  // Fastify makes routeOptions anew at each request: not asked for where no route can have rules of its own.
  let someHaveRules = instance.printRoutes() !== NO_ROUTES;
  if (!instance.hasDecorator(GUARD_MARK)) {
    instance.decorate(GUARD_MARK, true);
    instance.decorateRequest('apiKey', undefined);
  }
  instance.addHook('onRoute', ({ config }) => {
    // A wrong rule is noticed when the application starts.
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
      passage = own.check({ rawHeaders: raw.rawHeaders, target: raw.url ?? '', request, carrier: raw, id });
    } catch (error) {
      // Fastify would not catch it.
      next(error as Error);
      return;
    }
    if (passage instanceof Promise)
      void passage.then((latePassage) => settle(request, reply, latePassage, next));
    else settle(request, reply, passage, next);
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
  'register: keyfence guards no route, because the plugin that registers it has none; to guard those of its parent, wrap the plugin in fastify-plugin';

/** Tells whether an instance is that of a plugin, not the application's own. */
const isChild = (instance: FastifyInstance) => Object.getPrototypeOf(instance) !== Object.prototype;

/** The mark of instances whose requests have `apiKey`, with those made of them. */
const GUARD_MARK = Symbol('keyfence.guarded');

/** The text of printRoutes where there are no routes; whatever else it says, they are asked for their rules. */
const NO_ROUTES = '(empty tree)';

/** Hooks and the decoration are for the instance itself, not for one below it. */
Object.assign(keyfence, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'keyfence',
});

function settle(request: FastifyRequest, reply: FastifyReply, passage: Passage, next: () => void): void {
  if (!(passage instanceof Refusal)) {
    request.apiKey = passage;
    next();
    return;
  }
  // Somebody else may have answered during a look-up.
  if (reply.sent) return;
  const { status, headers, body } = passage;
  for (const [name, value] of headers) reply.header(name, value);
  reply.code(status).send(body);
}

/** Tells whether other instances were made of this one, which took over its hooks as they were then. */
function hasChildren(instance: FastifyInstance): boolean {
  const symbol = Object.getOwnPropertySymbols(instance).find(
    ({ description }) => description === 'fastify.children',
  );
  const children: unknown = symbol && Reflect.get(instance, symbol);
  return Array.isArray(children) && children.length > 0;
}
