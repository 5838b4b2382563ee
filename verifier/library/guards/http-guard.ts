import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { allowanceHeaders, type Guard, type Passage } from './guard.ts';
import type { GuardedRequest, PassedKey } from './guard-options.ts';
import { Refusal } from './refusal.ts';
import { type Ending, endOfSocket } from './request-holds.ts';
import { removeIdentity } from './rules.ts';

type Next = (error?: unknown) => void;

/** Returns the address of a client of node:http, or as Express knows it. */
export const clientIpOf = (request: GuardedRequest): string | undefined =>
  request.ip ?? request.socket?.remoteAddress;

/** Returns a guard as middleware of Connect, which Express has too: errors go to `next`. */
export function connectGuard<R extends IncomingMessage>(guard: Guard<R>) {
  return (request: GuardedRequest, response: ServerResponse, next: Next): void => {
    let passage: Passage | Promise<Passage>;
    try {
      passage = check(guard, request, response);
    } catch (error) {
      next(error);
      return;
    }
    if (passage instanceof Promise)
      void passage.then((latePassage) => applyPassage(request, response, latePassage, next), next);
    else applyPassage(request, response, passage, next);
  };
}

/** Returns a guard of the event `upgrade`. A failure closes the connection. */
export function upgradeGuard<R extends IncomingMessage>(guard: Guard<R>) {
  return (request: GuardedRequest, socket: Duplex, accept: (apiKey: PassedKey | undefined) => void): void => {
    const destroy = () => void socket.destroy();
    // Nobody else listens before the socket is accepted.
    socket.on('error', destroy);
    const refuse = (error: Error) => {
      process.emitWarning(error);
      destroy();
    };
    void (async () => check(guard, request, endOfSocket(socket)))().then((passage) => {
      if (passage instanceof Refusal) {
        socket.end(rawResponse(passage), destroy);
        return;
      }
      socket.off('error', destroy);
      if (passage !== undefined) request.apiKey = passage;
      accept(passage);
    }, refuse);
  };
}

function check<R extends IncomingMessage>(
  guard: Guard<R>,
  request: GuardedRequest,
  ending: Ending,
): Passage | Promise<Passage> {
  removeIdentity(request);
  const { rawHeaders, originalUrl, url = '', id } = request;
  const target = originalUrl ?? url;
  const ownRequest = request as IncomingMessage as R;
  return guard.check({ rawHeaders, target, request: ownRequest, carrier: request, ending, id });
}

function applyPassage(request: GuardedRequest, response: ServerResponse, passage: Passage, next: Next): void {
  if (!(passage instanceof Refusal)) {
    if (passage !== undefined) {
      request.apiKey = passage;
      const lines = allowanceHeaders(passage);
      if (lines !== undefined && !response.headersSent)
        for (const [name, value] of lines) response.setHeader(name, value);
    }
    next();
    return;
  }
  // The application may have answered during the look-up.
  if (response.headersSent) return;
  const { status, headers, body } = passage;
  for (const [name, value] of headers) response.setHeader(name, value);
  response.writeHead(status, { 'Content-Length': Buffer.byteLength(body) }).end(body);
}

function rawResponse({ status, headers, body }: Refusal): string {
  const lines = [...headers, ['Content-Length', String(Buffer.byteLength(body))], ['Connection', 'close']];
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${head}\r\n${body}`;
}
