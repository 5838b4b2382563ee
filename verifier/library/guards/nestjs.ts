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
import { allowanceHeaders, createGuard, type Guard, type Passage, routeGuards } from './guard.ts';
import type { GuardOptions, PassedKey, RouteGuardOptions } from './guard-options.ts';
import { Refusal } from './refusal.ts';
import { DEFAULT_RULES, removeIdentity, rulesOf } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardOptions, OwnRefusal, PassedKey, RefusalNotice } from './guard-options.ts';
export { type EndableConnection, endWithKey, type PassedRequest, watchKey } from './long-requests.ts';

/** A request of Nest on Express or on Fastify. */
export interface NestRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly params: unknown;
  readonly query: unknown;
  readonly ip?: string | undefined;
  /** The key that let the request pass. */
  apiKey?: PassedKey | undefined;
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
 * everybody. Throws a TypeError that names every wrong option.
 */
export function KeyRules(rules: false | NestRouteOptions): CustomDecorator {
  // Checks the rules now, so that a wrong rule stops the application at its start.
  if (rules !== false) rulesOf(rules, DEFAULT_RULES);
  return SetMetadata(RULES, rules);
}

/** Injects the key that let the request pass: `@ApiKey() apiKey: PassedKey`. */
export const ApiKey: () => ParameterDecorator = createParamDecorator(
  (_data: unknown, context: ExecutionContext) => context.switchToHttp().getRequest<NestRequest>().apiKey,
);

/**
 * Guards the handlers of HTTP requests, on Express and on Fastify: globally with `app.useGlobalGuards`, or by
 * `@UseGuards`. No handler runs without a valid key. Handlers of other transports throw.
 */
export class KeyfenceGuard implements CanActivate, OnModuleDestroy {
  readonly #guard: Guard<NestRequest>;
  readonly #guardOf: (rules: unknown) => Guard<NestRequest> | undefined;

  /** Throws a TypeError that names every wrong option. */
  constructor(options: NestGuardOptions) {
    this.#guard = createGuard(options, (request) => request.ip ?? nodeRequest(request).socket?.remoteAddress);
    this.#guardOf = routeGuards(this.#guard, 'KeyRules');
  }

  canActivate(context: ExecutionContext): boolean | Promise<boolean> {
    if (context.getType() !== 'http') throw new Error('KeyfenceGuard: guards handlers of HTTP requests only');
    const guard = this.#guardOf(metadataOf(context.getHandler()) ?? metadataOf(context.getClass()));
    const http = context.switchToHttp();
    const request = http.getRequest<NestRequest>();
    const carrier = nodeRequest(request);
    removeIdentity(carrier);
    if (guard === undefined) return true;
    const response = http.getResponse<NestResponse>();
    const passage = guard.check({
      rawHeaders: carrier.rawHeaders,
      target: carrier.originalUrl ?? carrier.url ?? '',
      request,
      carrier,
      ending: 'raw' in response ? response.raw : response,
      id: request.id,
    });
    return passage instanceof Promise
      ? passage.then((latePassage) => applyPassage(latePassage, request, response))
      : applyPassage(passage, request, response);
  }

  /** Closes the client that was created for `url` or `unixSocket`. */
  async onModuleDestroy(): Promise<void> {
    await this.#guard.close();
  }
}

/** Returns the rules of a handler or controller. Nest loads reflect-metadata, which extends Reflect. */
const metadataOf = (target: object): unknown =>
  (Reflect as unknown as { getMetadata(name: string, target: object): unknown }).getMetadata(RULES, target);

type NodeRequest = IncomingMessage & { readonly originalUrl?: string };

/** Returns the request of node:http. */
const nodeRequest = (request: NestRequest): NodeRequest => (request.raw ?? request) as NodeRequest;

/** A response of Express, or a reply of Fastify. */
type NestResponse =
  | ServerResponse
  | { readonly raw: ServerResponse; header(name: string, value: string): unknown };

function applyPassage(passage: Passage, request: NestRequest, response: NestResponse): boolean {
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
