// The entry `keyfence/nestjs` of the package.
import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  type CanActivate,
  type CustomDecorator,
  createParamDecorator,
  type ExecutionContext,
  HttpException,
  type OnModuleDestroy,
  SetMetadata,
} from '@nestjs/common';
import type { ValidKey } from '../library/key-verifier.ts';
import { wrongOptions } from '../library/options.ts';
import { allowanceHeaders } from './guard/answers.ts';
import { createGuard, type Guard, type Passage } from './guard/guard.ts';
import type { GuardOptions, RouteGuardOptions } from './guard/guard-options.ts';
import { removeIdentity } from './guard/header-lines.ts';
import { type EndableConnection, endCarrier, watchCarrier } from './guard/long-requests.ts';
import { Refusal } from './guard/refusal.ts';

export type { KeyVerifier, ValidKey } from '../library/key-verifier.ts';
export type { GuardOptions, OwnRefusal, RefusalNotice } from './guard/guard-options.ts';
export type { EndableConnection } from './guard/long-requests.ts';

/** A request of Nest on Express or on Fastify. */
export interface NestRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly params: unknown;
  readonly query: unknown;
  readonly ip?: string | undefined;
  /** The key that let the request pass. */
  apiKey?: ValidKey | undefined;
  readonly id?: unknown;
  /** The request of node:http, on Fastify. */
  readonly raw?: IncomingMessage;
}

/** The rules of a guard. Nest's exception filters get each refusal, as an HttpException. */
export type NestGuardOptions<R = NestRequest> = Omit<GuardOptions<R>, 'throwRefusals'>;
/** The rules of a handler or controller. */
export type NestRouteOptions<R = NestRequest> = Omit<RouteGuardOptions<R>, 'throwRefusals'>;

const RULES = 'keyfence:rules';

/**
 * Sets the rules that differ for a handler, or for all handlers of a controller. `false` opens them to
 * everybody.
 */
export const KeyRules = (rules: false | NestRouteOptions): CustomDecorator => SetMetadata(RULES, rules);

/** Injects the key that let the request pass: `@ApiKey() apiKey: ValidKey`. */
export const ApiKey: () => ParameterDecorator = createParamDecorator(
  (_data: unknown, context: ExecutionContext) => context.switchToHttp().getRequest<NestRequest>().apiKey,
);

/**
 * Guards the handlers of HTTP requests, on Express and on Fastify: globally with `app.useGlobalGuards`, or by
 * `@UseGuards`. No handler runs without a valid key. Handlers of other transports throw.
 */
export class KeyfenceGuard implements CanActivate, OnModuleDestroy {
  readonly #guard: Guard<NestRequest>;
  readonly #guards = new WeakMap<object, Guard<NestRequest>>();

  /** Throws a TypeError that names every wrong option. */
  constructor(options: NestGuardOptions) {
    this.#guard = createGuard(options, (request) => request.ip ?? carrierOf(request).socket?.remoteAddress);
  }

  canActivate(context: ExecutionContext): boolean | Promise<boolean> {
    if (context.getType() !== 'http') throw new Error('KeyfenceGuard: guards handlers of HTTP requests only');
    const guard = this.#guardOf(context);
    const http = context.switchToHttp();
    const request = http.getRequest<NestRequest>();
    const carrier = carrierOf(request);
    removeIdentity(carrier);
    if (guard === undefined) return true;
    const passage = guard.check({
      rawHeaders: carrier.rawHeaders,
      target: carrier.originalUrl ?? carrier.url ?? '',
      request,
      carrier,
      id: request.id,
    });
    const response = http.getResponse<NestResponse>();
    return passage instanceof Promise
      ? passage.then((latePassage) => settle(latePassage, request, response))
      : settle(passage, request, response);
  }

  /** Closes the client that was created for `url` or `unixSocket`. */
  async onModuleDestroy(): Promise<void> {
    await this.#guard.close();
  }

  #guardOf(context: ExecutionContext): Guard<NestRequest> | undefined {
    const rules = metadataOf(context.getHandler()) ?? metadataOf(context.getClass());
    if (rules === undefined) return this.#guard;
    if (rules === false) return undefined;
    if (typeof rules !== 'object' || rules === null)
      throw wrongOptions(['KeyRules: must be false or an object']);
    const own = this.#guards.get(rules) ?? this.#guard.with(rules);
    this.#guards.set(rules, own);
    return own;
  }
}

/** Returns the rules of a handler or controller. Nest loads reflect-metadata, which extends Reflect. */
const metadataOf = (target: object): unknown =>
  (Reflect as unknown as { getMetadata(name: string, target: object): unknown }).getMetadata(RULES, target);

type NodeRequest = IncomingMessage & { readonly originalUrl?: string };

/** Returns the request of node:http. */
const carrierOf = (request: NestRequest): NodeRequest => (request.raw ?? request) as NodeRequest;

/** A response of Express, or a reply of Fastify. */
type NestResponse = Pick<ServerResponse, 'setHeader'> | { header(name: string, value: string): unknown };

function settle(passage: Passage, request: NestRequest, response: NestResponse): boolean {
  const set = (name: string, value: string) =>
    'setHeader' in response ? response.setHeader(name, value) : response.header(name, value);
  if (passage instanceof Refusal) {
    for (const [name, value] of passage.headers) set(name, value);
    throw new HttpException(contentOf(passage), passage.status);
  }
  if (passage !== undefined) {
    request.apiKey = passage;
    for (const [name, value] of allowanceHeaders(passage) ?? []) set(name, value);
  }
  return true;
}

function contentOf({ headers, body }: Refusal): string | Record<string, unknown> {
  const isJson = headers.some(([name, value]) => /^content-type$/i.test(name) && /\bjson\b/.test(value));
  return isJson ? JSON.parse(body) : body;
}

/**
 * Watches the key with which a request passed a guard. The returned signal aborts, with a `WatchError`, within
 * a second after a change that makes the key no longer good is complete. The watch ends when `signal` aborts.
 * Throws an Error if no guard let the request pass with a key.
 */
export const watchKey = (request: NestRequest | IncomingMessage, signal: AbortSignal): AbortSignal =>
  watchCarrier(carrierOf(request as NestRequest), signal);

/**
 * Ends a response, a socket or a WebSocket of `ws` when the key of its request is no longer good, within a
 * second after the change is complete. Throws like `watchKey`.
 */
export const endWithKey = (request: NestRequest | IncomingMessage, connection: EndableConnection): void =>
  endCarrier(carrierOf(request as NestRequest), connection);
