import { lookup as systemLookup } from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { Agent, buildConnector, request } from 'undici';
import type { Clock } from '#shared/lang/clock.ts';
import { VERSION } from '#shared/version.ts';
import type { AddressRules } from '../core/webhooks/public-addresses.ts';
import { signedHeaders } from '../core/webhooks/signature.ts';
import { type SigningEndpoint, secretsOf } from '../redis/webhooks/endpoints.ts';

/** Longest time for an attempt, from the name's look-up to the end of the response, milliseconds. */
const ATTEMPT_MS_MAX = 10_000;
const CONNECT_MS_MAX = 5000;
/** Bytes of a response that are read. */
const RESPONSE_BYTES_MAX = 65_536;
/** Characters of a response that are kept. */
const RESPONSE_KEPT = 1000;
/** Connections to one endpoint. */
const CONNECTIONS_MAX = 10;

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

/** Resolves a name to all its addresses. */
type Resolve = (host: string) => Promise<readonly { readonly address: string; readonly family: number }[]>;

interface PosterOptions {
  readonly rules: AddressRules;
  readonly clock: Clock;
  readonly resolve?: Resolve;
}

/**
 * Posts signed events. Connects only to addresses that the rules allow: a name's addresses are checked where
 * they are resolved, and the connection goes to one of exactly these, so that a name cannot lead elsewhere a
 * moment later. Follows no redirect, uses no proxy, and always verifies certificates.
 */
export class EventPoster {
  readonly #rules: AddressRules;
  readonly #clock: Clock;
  readonly #resolve: Resolve;
  readonly #agent: Agent;

  constructor({ rules, clock, resolve = (host) => systemLookup(host, { all: true }) }: PosterOptions) {
    this.#rules = rules;
    this.#clock = clock;
    this.#resolve = resolve;
    const connectorOf = (isPlain: boolean) =>
      buildConnector({
        timeout: CONNECT_MS_MAX,
        allowH2: false,
        rejectUnauthorized: true,
        lookup: this.#lookup(isPlain),
      });
    const [plain, secure] = [connectorOf(true), connectorOf(false)];
    this.#agent = new Agent({
      connections: CONNECTIONS_MAX,
      connect: (options, callback) => (options.protocol === 'https:' ? secure : plain)(options, callback),
    });
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
      this.#checkLiteral(url);
      const response = await request(url, {
        ...{ method: 'POST', body, dispatcher: this.#agent, signal: abort.signal },
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
    await this.#agent.destroy();
  }

  /** Throws if the URL has an address, not a name, that is not allowed. */
  #checkLiteral({ hostname, protocol }: URL): void {
    const address = hostname.replace(/^\[|\]$/g, '');
    if (isIP(address) !== 0) this.#check(address, protocol === 'http:');
  }

  #check(address: string, isPlain: boolean): void {
    const fault = addressFault(this.#rules, address, isPlain);
    if (fault !== undefined) throw new Error(fault);
  }

  /** Returns a look-up for connections, which yields only addresses that are allowed. */
  #lookup(isPlain: boolean): LookupFunction {
    return (host, { all = false }, callback) => {
      this.#resolve(host)
        .then((addresses) => {
          // If any is not allowed, the name belongs to somebody who tries.
          for (const { address } of addresses) this.#check(address, isPlain);
          const [first] = addresses;
          if (!first) throw new Error(`${host} has no address`);
          return { first, addresses };
        })
        .then(
          ({ first, addresses }) =>
            all ? callback(null, [...addresses]) : callback(null, first.address, first.family),
          (error: NodeJS.ErrnoException) => callback(error, all ? [] : '', 0),
        );
    };
  }
}

/** Returns the rule that an address breaks, for a message; undefined = it may be used. */
export function addressFault(rules: AddressRules, address: string, isPlain: boolean): string | undefined {
  if (!rules.allows(address)) return `${address} is not a public address, and not in WEBHOOK_NETWORKS`;
  if (isPlain && !rules.isOwn(address)) return `http:// is allowed only for addresses in WEBHOOK_NETWORKS`;
  return undefined;
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
