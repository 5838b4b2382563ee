import { createHmac } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Dispatcher, request } from 'undici';
import type { Clock } from '#shared/process/clock.ts';
import { lookupBy, type Resolve } from '#shared/process/name-resolver.ts';
import { IpRanges, rangesText, wordsOf } from '#shared/rules/ip-ranges.ts';
import { VERSION } from '#shared/version.ts';
import { SECRET_PREFIX, type SigningEndpoint, secretsOf, type WebhookEndpoints } from './endpoints.ts';

/**
 * Returns the headers of a message as Standard Webhooks 1.0.0 defines them: its id, the time of sending, and an
 * HMAC-SHA-256 with each secret.
 * @param secrets the current signing secret, and the former one while it is valid
 * @param nowMs Unix milliseconds
 */
function signedHeaders(
  secrets: readonly string[],
  id: string,
  nowMs: number,
  body: string,
): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1000));
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
  };
}

/** Ranges of IPv4 that are not globally reachable, or have no single holder (IANA special-purpose registry, RFC 6890). */
const SPECIAL_V4 = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12'],
  ...['192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15'],
  ...['198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4'],
];
/** Global unicast addresses of IPv6 (RFC 4291), and what lies among them without being reachable by itself. */
const GLOBAL_V6 = ['2000::/3'];
const SPECIAL_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

/** Decides to which addresses the control plane may connect for somebody else. */
export class AddressRules {
  readonly #special = new IpRanges(rangesText([...SPECIAL_V4, ...SPECIAL_V6]));
  readonly #global = new IpRanges(rangesText(GLOBAL_V6));
  readonly #networks: IpRanges;

  /** @param networks ranges that are allowed besides public addresses */
  constructor(networks: readonly string[]) {
    this.#networks = new IpRanges(rangesText(networks));
  }

  /** Tells whether an address is public, or in the networks of the configuration. */
  allows(address: string): boolean {
    const words = wordsOf(address);
    if (words === undefined) return false;
    if (this.#networks.has(address)) return true;
    if (this.#special.has(address)) return false;
    return words.length === 1 || this.#global.has(address);
  }

  /**
   * Returns the rule that an address breaks, for a message; undefined = it may be used.
   * @param isPlain true for a connection without TLS
   */
  addressFault(address: string, isPlain: boolean): string | undefined {
    const advice = `to allow it, start the control plane with WEBHOOK_NETWORKS=${address}`;
    if (!this.allows(address))
      return `${address} is not a public address, and not in WEBHOOK_NETWORKS; ${advice}`;
    if (isPlain && !this.#networks.has(address))
      return `http:// is allowed only for addresses in WEBHOOK_NETWORKS; ${advice}`;
    return undefined;
  }

  /** Returns the same for the host of a URL if it is an address; undefined for a name. */
  hostFault({ hostname, protocol }: URL): string | undefined {
    const isName = !hostname.startsWith('[') && wordsOf(hostname) === undefined;
    return isName ? undefined : this.addressFault(hostname.replace(/^\[|\]$/g, ''), protocol === 'http:');
  }
}

/** Longest time for an attempt, from the name's look-up to the end of the response, milliseconds. */
export const ATTEMPT_MS_MAX = 10_000;
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

/** The outcome of a test event. */
export interface TestResult {
  readonly delivered: boolean;
  readonly eventId: string;
  readonly durationMs: number;
  readonly status?: number;
  readonly response?: string;
  readonly error?: string;
}

/** Sends a test event to an endpoint; undefined = there is no such endpoint. */
export async function sendTestEvent(
  { endpoints, poster, clock }: { endpoints: WebhookEndpoints; poster: EventPoster; clock: Clock },
  endpointId: string,
): Promise<TestResult | undefined> {
  const all = await endpoints.signing();
  const endpoint = all.find((each) => each.endpointId === endpointId);
  if (!endpoint) return undefined;
  const nowMs = clock.wallMs();
  const eventId = `event_t${nowMs}-${endpointId}`;
  const body = { type: 'webhook.test', timestamp: new Date(nowMs).toISOString(), data: { endpointId } };
  const { isDelivered: delivered, ...result } = await poster.post(endpoint, eventId, JSON.stringify(body));
  return { delivered, eventId, ...result };
}

/** Returns the rule that an endpoint's URL breaks, as far as that shows without a look-up; undefined = none. */
export function urlFault(rules: AddressRules, text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) return 'must be a URL that begins with https://';
  if (url.username || url.password) return 'must not have a user or password';
  if (url.hash) return 'must not have a fragment';
  return rules.hostFault(url);
}
