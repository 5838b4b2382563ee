import { validateHeaderName, validateHeaderValue } from 'node:http';
import { wrongOptions } from '../options.ts';
import type { OwnRefusal, RefusalNotice, RefusedCode } from './guard-options.ts';

type Line = readonly [name: string, value: string];

/** A response that replaces the handler's. */
export class Refusal implements RefusalNotice {
  readonly status: number;
  readonly code: RefusedCode;
  readonly keyId?: string;
  readonly requestId: string;
  readonly headers: readonly Line[];
  readonly body: string;

  constructor(about: RefusalNotice, headers: readonly Line[], body: string) {
    this.status = about.status;
    this.code = about.code;
    if (about.keyId !== undefined) this.keyId = about.keyId;
    this.requestId = about.requestId;
    this.headers = headers;
    this.body = body;
  }

  /** Returns what the application's `onRefused` gets. */
  notice(): RefusalNotice {
    const { status, code, keyId, requestId } = this;
    return { status, code, requestId, ...(keyId === undefined ? {} : { keyId }) };
  }

  /** Returns the refusal with the parts that the application replaces. Throws a TypeError if they are wrong. */
  with(own: unknown): Refusal {
    if (own === undefined) return this;
    const { status = this.status, headers = {}, body } = ownParts(own);
    const type: Line[] =
      body === undefined
        ? []
        : [['Content-Type', typeof body === 'string' ? 'text/plain; charset=utf-8' : 'application/json']];
    const lines: readonly Line[] = [...type, ...Object.entries(headers)];
    for (const [name, value] of lines) {
      validateHeaderName(name);
      validateHeaderValue(name, value);
    }
    const merged = new Map([...this.headers, ...lines].map((line) => [line[0].toLowerCase(), line]));
    const text = body === undefined ? this.body : typeof body === 'string' ? body : JSON.stringify(body);
    return new Refusal({ ...this, status }, [...merged.values()], text);
  }

  /** Returns the refusal as a response of the Fetch API. */
  response(): Response {
    const { status, headers, body } = this;
    return new Response(body, { status, headers: headers.map(([name, value]) => [name, value]) });
  }
}

/** Checks what the application's `onRefused` returned. A refusal must stay one. */
function ownParts(own: unknown): OwnRefusal {
  if (typeof own !== 'object' || own === null) throw wrongOptions(['onRefused: must return an object']);
  // If `onRefused` returned a promise, its unhandled rejection would end the process.
  if (own instanceof Promise) {
    void own.catch(() => undefined);
    throw wrongOptions(['onRefused: must not return a promise']);
  }
  const { status, body } = own as OwnRefusal;
  if (status !== undefined && !(Number.isInteger(status) && status >= 400 && status <= 599))
    throw wrongOptions(['onRefused: status must be a whole number from 400 to 599']);
  if (body !== undefined && typeof body !== 'string' && (typeof body !== 'object' || body === null))
    throw wrongOptions(['onRefused: body must be a text or an object']);
  return own as OwnRefusal;
}

/**
 * A refusal for the framework's error handler. It has the properties that the error handlers of Express,
 * Fastify, Hono and Koa read: `status`, `statusCode`, `headers`, `expose` and `getResponse`.
 */
export class RefusedError extends Error {
  readonly status: number;
  readonly statusCode: number;
  readonly code: RefusedCode;
  readonly keyId: string | undefined;
  readonly requestId: string;
  /** The headers of the refusal, except for the type of its body. */
  readonly headers: Readonly<Record<string, string>>;
  /** The body with which the guard would have answered itself. */
  readonly body: string;
  readonly expose = true;
  readonly #refusal: Refusal;

  constructor(refusal: Refusal) {
    super(`refused: ${refusal.code}`);
    this.name = 'RefusedError';
    this.status = refusal.status;
    this.statusCode = refusal.status;
    this.code = refusal.code;
    this.keyId = refusal.keyId;
    this.requestId = refusal.requestId;
    this.headers = Object.fromEntries(refusal.headers.filter(([name]) => !/^content-type$/i.test(name)));
    this.body = refusal.body;
    this.#refusal = refusal;
  }

  /** Returns the response with which the guard would have answered itself. */
  getResponse(): Response {
    return this.#refusal.response();
  }
}
