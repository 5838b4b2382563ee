import { LRUCache } from 'lru-cache';
import type { Dispatcher, request } from 'undici';
import type { Clock } from '#shared/lang/clock.ts';
import { lookupBy, type Resolve } from '#shared/process/name-resolver.ts';
import { VERSION } from '#shared/version.ts';
import { type SigningEndpoint, secretsOf } from './endpoints.ts';
import type { AddressRules } from './public-addresses.ts';
import { signedHeaders } from './signature.ts';

/** Longest time for an attempt, from the name's look-up to the end of the response, milliseconds. */
const ATTEMPT_MS_MAX = 10_000;
const CONNECT_MS_MAX = 5000;
/** Bytes of a response that are read. */
const RESPONSE_BYTES_MAX = 65_536;
/** Characters of a response that are kept. */
const RESPONSE_KEPT = 1000;
/** Connections to one endpoint. */
const CONNECTIONS_MAX = 10;
/** Endpoints whose connections are kept; more than there may be endpoints. */
const ENDPOINTS_KEPT = 100;

/** The outcome of one request to an endpoint. */
export interface PostResult {
  readonly isDelivered: boolean;
  readonly durationMs: number;
  /** Status of the response; absent = there was none. */
  readonly status?: number;
  readonly response?: string;
  /** The reason why there was no response. */
  readonly error?: string;
}

/** Makes connections to endpoints. */
interface Client {
  readonly request: typeof request;
  readonly newAgent: () => Dispatcher;
}

interface PosterOptions {
  readonly rules: AddressRules;
  readonly clock: Clock;
  readonly resolve: Resolve;
}

/**
 * Posts signed events. Connects only to addresses that the rules allow: a name's addresses are checked where
 * they are resolved, and the connection goes to one of exactly these, so that a name cannot lead elsewhere a
 * moment later. Follows no redirect, uses no proxy, and always verifies certificates. Each endpoint has
 * connections of its own, so that one that is slow does not delay another at the same host.
 */
export class EventPoster {
  readonly #rules: AddressRules;
  readonly #clock: Clock;
  readonly #resolve: Resolve;
  readonly #agents = new LRUCache<string, Dispatcher>({
    max: ENDPOINTS_KEPT,
    dispose: (agent) => void agent.close(),
  });
  #client: Promise<Client> | undefined;

  constructor({ rules, clock, resolve }: PosterOptions) {
    this.#rules = rules;
    this.#clock = clock;
    this.#resolve = resolve;
  }

  /** Sends one event. Never rejects. `signal` ends the attempt. */
  async post(endpoint: SigningEndpoint, id: string, body: string, signal?: AbortSignal): Promise<PostResult> {
    const startedAtMs = this.#clock.monotonicMs();
    const durationMs = () => Math.round(this.#clock.monotonicMs() - startedAtMs);
    const abort = new AbortController();
    const timer = this.#clock.after(ATTEMPT_MS_MAX, () =>
      abort.abort(new Error(`no complete response within ${ATTEMPT_MS_MAX / 1000} s`)),
    );
    const end = () => abort.abort(new Error('the control plane stops'));
    if (signal?.aborted) end();
    signal?.addEventListener('abort', end, { once: true });
    try {
      const url = new URL(endpoint.url);
      refuse(this.#rules.hostFault(url));
      this.#client ??= this.#newClient();
      const { request, newAgent } = await this.#client;
      const agent = this.#agents.get(endpoint.endpointId) ?? newAgent();
      this.#agents.set(endpoint.endpointId, agent);
      const response = await request(url, {
        ...{ method: 'POST', body, dispatcher: agent, signal: abort.signal },
        headers: {
          'content-type': 'application/json',
          'user-agent': `keyfence/${VERSION}`,
          ...signedHeaders(secretsOf(endpoint, this.#clock.wallMs()), id, this.#clock.wallMs(), body),
        },
      });
      const text = await beginningOf(response.body);
      const { statusCode: status } = response;
      return {
        isDelivered: status >= 200 && status < 300,
        ...{ durationMs: durationMs(), status },
        ...(text === '' ? {} : { response: text }),
      };
    } catch (error) {
      return {
        isDelivered: false,
        durationMs: durationMs(),
        error: reasonOf(abort.signal.aborted ? abort.signal.reason : error),
      };
    } finally {
      timer.cancel();
      signal?.removeEventListener('abort', end);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#agents.values()].map((agent) => agent.destroy()));
  }

  /** Loads undici only when called, because loading takes 90 ms. */
  async #newClient(): Promise<Client> {
    const { Agent, buildConnector, request } = await import('undici');
    const connectorOf = (isPlain: boolean) =>
      buildConnector({
        timeout: CONNECT_MS_MAX,
        allowH2: false,
        rejectUnauthorized: true,
        lookup: lookupBy((host) => this.#allowed(host, isPlain)),
      });
    const [plain, secure] = [connectorOf(true), connectorOf(false)];
    const newAgent = () =>
      new Agent({
        connections: CONNECTIONS_MAX,
        connect: (options, callback) => (options.protocol === 'https:' ? secure : plain)(options, callback),
      });
    return { request, newAgent };
  }

  /** Resolves a name; rejects unless all its addresses are allowed. */
  async #allowed(host: string, isPlain: boolean) {
    const addresses = await this.#resolve(host);
    // If any is not allowed, the name belongs to somebody who tries.
    for (const { address } of addresses) refuse(this.#rules.addressFault(address, isPlain));
    if (addresses.length === 0) throw new Error(`${host} has no address`);
    return addresses;
  }
}

/** Throws for a broken rule. */
function refuse(fault: string | undefined): void {
  if (fault !== undefined) throw new Error(fault);
}

/** Reads a response up to its limit, so that its connection can be used again, and returns its beginning. */
async function beginningOf(body: AsyncIterable<Uint8Array> & { destroy(): unknown }): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    if (bytes < RESPONSE_KEPT) chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > RESPONSE_BYTES_MAX) break; // this ends the connection
  }
  return Buffer.concat(chunks).toString('utf8').slice(0, RESPONSE_KEPT);
}

function reasonOf(error: unknown): string {
  const { code, message, cause } = error as NodeJS.ErrnoException & { readonly cause?: unknown };
  if (message) return message;
  return code ?? (cause instanceof Error ? cause.message : 'no response');
}
