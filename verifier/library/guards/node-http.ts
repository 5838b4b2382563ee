// The entry `keyfence/http` of the package, for node:http, Connect and whatever has middleware of that form.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { credentialOf } from '../../doors/http/credentials.ts';
import { createGuard } from './guard.ts';
import type {
  GuardedRequest,
  GuardOptions,
  PassedKey,
  RefusedCode,
  RouteGuardOptions,
} from './guard-options.ts';
import { clientIpOf, connectGuard, upgradeGuard } from './http-guard.ts';
import { DEFAULT_RULES, rulesOf } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardedRequest, GuardOptions, OwnRefusal, PassedKey, RefusalNotice } from './guard-options.ts';
export { type EndableConnection, endWithKey, type PassedRequest, watchKey } from './long-requests.ts';

/** A guard of requests of node:http. `Key` is undefined too if the guard is `optional`. */
export interface HttpGuard<Key = PassedKey> {
  /**
   * Calls `handle` only if the request has a valid key, which is then also `request.apiKey`; otherwise answers
   * itself. If a function of the options throws, the answer is 500, and the error a warning of the process.
   */
  (request: GuardedRequest, response: ServerResponse, handle: (apiKey: Key) => void): void;
  /**
   * Guards the event `upgrade` of a server, as for WebSockets. Calls `accept` if the request has a valid key;
   * otherwise answers on the socket and closes it.
   */
  upgrade(request: GuardedRequest, socket: Duplex, accept: (apiKey: Key) => void): void;
}

/** The rules of a guard. node:http has no error handler to which refusals could be thrown. */
export type HttpGuardOptions = Omit<GuardOptions<IncomingMessage>, 'throwRefusals'>;

/** Creates a guard. Throws a TypeError that names every wrong option. */
export function keyfence(
  options: HttpGuardOptions & { readonly optional: true },
): HttpGuard<PassedKey | undefined>;
/** Creates the guard. */
export function keyfence(options: HttpGuardOptions): HttpGuard;
/** Creates the guard. */
export function keyfence(options: HttpGuardOptions): HttpGuard<PassedKey | undefined> {
  const guard = createGuard<IncomingMessage>({ ...options, throwRefusals: false }, clientIpOf);
  const middleware = connectGuard(guard);
  const handler = (
    request: GuardedRequest,
    response: ServerResponse,
    handle: (apiKey: PassedKey | undefined) => void,
  ) =>
    middleware(request, response, (error) => {
      if (error === undefined) handle(request.apiKey);
      else fail(response, error as Error);
    });
  return Object.assign(handler, { upgrade: upgradeGuard(guard) });
}

function fail(response: ServerResponse, error: Error): void {
  process.emitWarning(error);
  if (response.headersSent) response.destroy();
  else response.writeHead(500, { 'Content-Length': 0 }).end();
}

/**
 * Returns the key that a request presents, by the same rules as a guard, or the reason why it has no usable
 * key.
 */
export function credentialFrom(
  request: Pick<IncomingMessage, 'rawHeaders' | 'url'>,
  sources?: RouteGuardOptions['sources'],
): { readonly key: string } | { readonly fault: Extract<RefusedCode, 'KEY_MISSING' | 'KEY_AMBIGUOUS'> } {
  const rules = sources === undefined ? DEFAULT_RULES : rulesOf({ sources }, DEFAULT_RULES);
  return credentialOf(rules.headers.read(request.rawHeaders), request.url, rules.sources);
}
